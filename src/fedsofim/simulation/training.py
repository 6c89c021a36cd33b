"""`train`: plan, simulate, and hand back everything a reader of the result needs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, get_args

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.budgets import AnyBudget
from fedsofim.core.keys import key_of
from fedsofim.core.method import Method
from fedsofim.core.models import Model, for_task, is_linear, linear
from fedsofim.core.plan import Plan, Trust, Weights, make_plan
from fedsofim.core.plan_checks import check_budget, warn_of_loose
from fedsofim.core.preparation import Step
from fedsofim.core.queries import SoftmaxGradient
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split
from fedsofim.errors import InputError, expect_whole, is_whole, one_of, shown
from fedsofim.methods import make
from fedsofim.progress import SILENT, Progress
from fedsofim.recipes import Choices, Situation, by_hand, choose
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.run import Run
from fedsofim.simulation.simulator import a_seed_nobody_knows, check_finite, overflowed, simulate_to_end
from fedsofim.tasks import CLASSES, LABELS, Task, refuse_other_than_classes


def train(
    split: Split,
    method: Method | None = None,
    budget: AnyBudget | None = None,
    rounds: int | None = None,
    *,
    recipe: str = "auto",
    clip: float | None = None,
    trust: Trust = "local",
    weights: Weights | None = None,
    model: Model | None = None,
    preparation: Sequence[Step] | None = None,
    participants: int | None = None,
    batch_rate: float = 1.0,
    client_rate: float = 1.0,
    seed: int | None = None,
    every: int = 1,
    progress: Progress = SILENT,
    on_round: Callable[[int, dict[str, float]], Any] | None = None,
    min_clients: int | None = None,
) -> Run:
    """Train under a budget on split data, evaluated every so many rounds. NO_PRIVACY means without noise,
    Budgets([...]) a budget for each client.

    `on_round(round, {"accuracy": percent, "loss": ...})` is called for every evaluated round, while others are still to
    come ("rmse" instead, of numbers and counts); trackers.py has ready ones.

    What is not given is as the recipe has it: `auto`, the recommended one, or `paper`, the paper's protocol. A method
    given here runs in the recipe's preparation with its own settings. What a preparation releases is charged too.

    `min_clients`: under trust="secure-sum", noise for a federation that goes on with so many; here all of them come.

    `seed`: of the initial weights and of all noise, so that a run can be repeated. Whoever knows or guesses it can take
    the noise off, the method's own program too. Without one the noise is of this machine's entropy, and kept nowhere.
    """
    drawn = _checked(seed)
    expect_whole("every", every, 1)
    if not callable(getattr(progress, "at", None)):
        raise InputError(f"progress is {shown(progress)}; expected a fs.Progress, as fs.progress_bar gives one")
    given = Given(method=method, rounds=rounds, clip=clip, weights=weights, model=model, preparation=preparation,
                  participants=participants, batch_rate=batch_rate, client_rate=client_rate)  # fmt: skip
    plan, chosen = planned(split, budget, recipe=recipe, trust=trust, given=given, min_clients=min_clients)
    began = time.perf_counter()
    seen, made = prepare(plan, split, drawn)
    metric = plan.task.metric
    watch = None if on_round is None else lambda t, score, loss: on_round(t, {metric: score, "loss": loss})
    end, trace = simulate_to_end(plan, seen, drawn, every=every, progress=progress, watch=watch)
    check_finite(end.params)
    seconds = time.perf_counter() - began
    run = Run(plan=plan, chosen=chosen, split=split, seed=seed, params=end.params, state=end.state, trace=trace,
              seconds=seconds, prepared=made)  # fmt: skip
    _check_answers(run)
    return run


def _check_answers(run: Run) -> None:
    """Parameters may be finite and the answers not."""
    if not np.isfinite(run.trace.loss[-1]) and run.metrics.values[run.plan.task.metric] is None:
        raise InputError(overflowed("model's answers for test records"))


def _checked(seed: int | None) -> int:
    """The seed that was given, or one that nobody knows."""
    if seed is not None and (not is_whole(seed) or not -(2**63) <= seed < 2**63):
        raise InputError(f"seed is {shown(seed)}; expected a whole number of at most 64 bits")
    return a_seed_nobody_knows() if seed is None else seed


@dataclass(frozen=True, kw_only=True)
class Given:
    """What was chosen by hand; None is left to the recipe."""

    method: Method | None = None
    rounds: int | None = None
    clip: float | None = None
    weights: Weights | None = None
    model: Model | None = None
    preparation: Sequence[Step] | None = None
    participants: int | None = None
    batch_rate: float = 1.0
    client_rate: float = 1.0


def planned(
    split: Split, budget: Any, *, recipe: str, trust: Trust, given: Given, min_clients: int | None = None
) -> tuple[Plan, Choices]:
    """The priced plan of a run, and what the recipe chose for it."""
    check_kinds(split, given.method, given.model)
    check_budget(budget)
    warn_of_loose(budget, sum(split.units))
    one_of("trust", trust, get_args(Trust))
    check_model(given.model, split.dataset.task)
    chosen = choices_for(split, budget, recipe=recipe, trust=trust, model=given.model, min_clients=min_clients,
                         weights=given.weights)  # fmt: skip
    run = by_hand(chosen, rounds=given.rounds, clip=given.clip, weights=given.weights, preparation=given.preparation)
    plan = plan_for(
        split,
        given.method or make(chosen.method, dict(chosen.settings), budget.epsilon),
        budget,
        run.rounds,
        model=given.model or linear(split.dataset.task, chosen.start),
        clip=run.clip,
        trust=trust,
        weights=run.weights,
        preparation=run.preparation,
        participants=given.participants,
        batch_rate=given.batch_rate,
        client_rate=given.client_rate,
        min_clients=min_clients,
    )
    return plan, chosen


def choices_for(
    split: Split, budget: AnyBudget, *, recipe: str, trust: Trust, model: Model | None = None,
    min_clients: int | None = None, weights: Weights | None = None,
) -> Choices:  # fmt: skip
    """What a recipe chooses for this split and model (None: the linear one): reads sizes and shapes only."""
    situation = Situation(
        budget=budget,
        sizes=split.units,
        shape=split.dataset.x_train.shape[1:],
        classes=split.dataset.outputs,
        trust=trust,
        head=model is None or is_linear(model),
        takes="any features" if model is None else model.takes,
        task=split.dataset.task,
        min_clients=min_clients,
        quiet=weights == "quiet",
    )
    return choose(recipe, situation)


class Rest(TypedDict, total=False):
    """What `make_plan` takes beside what the data decides."""

    clip: float
    trust: Trust
    weights: Weights
    preparation: Sequence[Step]
    participants: int | None
    batch_rate: float
    client_rate: float
    min_clients: int | None


def plan_for(
    split: Split, method: Method, budget: AnyBudget, rounds: int, model: Model | None = None, **rest: Unpack[Rest]
) -> Plan:
    """The priced plan of a run on this split: reads shapes, sizes and the largest feature only."""
    check_kinds(split, method, model)
    _check_scale(split)
    if split.unit != "record" and split.most is None and budget.private:
        raise InputError(
            f"how many records of a {split.unit} count is not said, and how a sum is computed would follow from the "
            "largest one's: give a public number (--records-per-person, most=)"
        )
    plan = make_plan(
        method,
        linear(split.dataset.task) if model is None else for_task(model, split.dataset.task),
        sizes=split.units,
        unit=split.unit,
        places=split.places,
        shape=split.dataset.x_train.shape[1:],
        classes=split.dataset.outputs,
        budget=budget,
        rounds=rounds,
        task=split.dataset.task,
        **rest,
    )
    _check_logits(plan)
    return plan


def check_kinds(split: Any, method: Any, model: Any) -> None:
    """What was given is of the kind that was asked for; what is wrong is said in one sentence."""
    if isinstance(split, Dataset):
        raise InputError(f"the data is the dataset {split.name}, which no clients hold yet; deal it out with fs.split")
    if not isinstance(split, Split):
        raise InputError(f"the data is a {type(split).__name__}; expected a split, as fs.split gives one")
    if isinstance(method, str):
        raise InputError(f"the method is the text {shown(method)}; make it with fs.make({shown(method)})")
    if callable(method) and not isinstance(method, Method):
        name = getattr(method, "__name__", "method")
        raise InputError(f"the method is the function {name}; call it to make one: {name}()")
    if method is not None and not isinstance(method, Method):
        raise InputError(f"the method is a {type(method).__name__}; expected a fs.Method, for example fs.fedsofim()")
    if model is not None and not isinstance(model, Model):
        raise InputError(f"the model is {shown(model)}; expected a fs.Model, for example fs.softmax_head()")


def check_model(model: Model | None, task: Task) -> None:
    """The closed form of a gradient is the softmax head's, whatever the loss says."""
    if model is not None and isinstance(model.gradient, SoftmaxGradient):
        refuse_other_than_classes("softmax_head", task)


def _check_logits(plan: Plan) -> None:
    """One number for each class of each record, or what else the task asks for: else accuracy would make no sense."""
    shape, classes = plan.shape, plan.classes
    params = jax.eval_shape(lambda: plan.model.init(key_of(0), shape, classes))
    found = jax.eval_shape(plan.model.logits, params, jax.ShapeDtypeStruct((2, *shape), jnp.float32))
    if getattr(found, "shape", None) != (2, classes):
        each = {CLASSES: "for each class", LABELS: "for each label"}.get(plan.task.kind, f"for {plan.task}")
        raise InputError(
            f"the model's logits of 2 records have shape {getattr(found, 'shape', None)}; expected (2, {classes}), one "
            f"{each}"
        )


def _check_scale(split: Split) -> None:
    """The value is not said: a refusal is outside the promise, and is no place for a record."""
    if float(np.abs(split.dataset.x_train).max()) > 1e15:  # its square no longer fits float32, so norms would not
        raise InputError(
            f"{split.dataset.name}: a feature is too large; expected sizes below 1e15. Rescale by a public constant. "
            "np.abs(data.x_train).max(axis=0) shows you the largest of each column; keep it to yourself"
        )
