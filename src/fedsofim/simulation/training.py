"""`train`: plan, simulate, and hand back everything a reader of the result needs."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.accounting import Charge
from fedsofim.core.budget import Budget
from fedsofim.core.method import Method
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.plan import Plan, Trust, Weights, check_budget, make_plan
from fedsofim.core.preparation import Step
from fedsofim.core.summary import privacy_summary
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split
from fedsofim.errors import InputError, expect_whole, is_whole, one_of
from fedsofim.files import write_text, write_whole
from fedsofim.methods import make
from fedsofim.progress import SILENT, Progress
from fedsofim.recipes import Choices, Situation, by_hand, choose
from fedsofim.simulation.preparing import Prepared, prepare
from fedsofim.simulation.simulator import Trace, check_finite, simulate


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: parameters, test accuracy by round, and the ledger its epsilon is derived from."""

    plan: Plan
    split: Split
    seed: int
    params: Any
    trace: Trace
    seconds: float
    chosen: Choices  # by the recipe; the plan has what was chosen by hand instead
    prepared: Prepared = Prepared()  # what the model does to records before its parameters meet them

    @property
    def accuracy(self) -> dict[int, float]:
        """Test accuracy in percent after each evaluated round."""
        return {int(t): float(a) for t, a in zip(self.trace.rounds, self.trace.accuracy, strict=True)}

    @property
    def final_accuracy(self) -> float:
        return float(self.trace.accuracy[-1])

    @property
    def ledger(self) -> tuple[Charge, ...]:
        return self.plan.ledger

    @property
    def by_hand(self) -> list[str]:
        """Which of the recipe's choices were set otherwise."""
        p, c = self.plan, self.chosen
        pairs = {
            "method": (p.method.name, c.method),
            "rounds": (p.rounds, c.rounds),
            "clip": (p.clip, c.clip),
            "weights": (p.weights, c.weights),
            "preparation": (p.preparation, c.preparation),
        }
        return [name for name, (ours, theirs) in pairs.items() if ours != theirs]

    def predict(self, x: Any) -> np.ndarray:
        """Predicted classes of records as they come (records x features); what they were prepared by is in the run."""
        wanted = self.split.dataset.x_train.shape[1:]
        expected = f"expected numbers of shape (records, {', '.join(map(str, wanted))}), as in training"
        try:
            x = np.asarray(x, np.float32)
        except (TypeError, ValueError):  # text, or rows of unequal length
            raise InputError(f"predict got a {type(x).__name__} that is no array of numbers; {expected}") from None
        if x.ndim != len(wanted) + 1 or x.shape[1:] != wanted:
            raise InputError(f"predict got an array of shape {x.shape}; {expected}")
        return np.asarray(self.plan.model.logits(self.params, jnp.asarray(self.prepared.map(x)))).argmax(axis=-1)

    def summary(self) -> dict[str, Any]:
        """The run as plain data: what `--json` prints."""
        p = self.plan
        tens = {str(t): round(a, 4) for t, a in self.accuracy.items() if t % 10 == 0 or t == p.rounds}
        return {
            "method": p.method.name,
            "recipe": self.chosen.recipe,
            "chosen": dict(self.chosen.why),
            "by_hand": self.by_hand,
            "dataset": self.split.dataset.name,
            "partition": self.split.description,
            "clients": len(p.sizes),
            "seed": self.seed,
            "preparation": [str(step) for step in p.preparation],
            **privacy_summary(p),
            "accuracy": tens,
            "final_accuracy": round(self.final_accuracy, 4),
            "seconds": round(self.seconds, 3),
        }

    def plot(self, path: str | Path) -> None:
        """Accuracy over rounds, as a picture."""
        from fedsofim.simulation.figures import curves

        curves({self.plan.method.name: [self.trace]}, path)

    def save(self, folder: str | Path) -> Path:
        """Write result.json and params.npz into a folder, each whole or not at all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        leaves = {f"leaf{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(self.params))}
        write_whole(folder / "params.npz", lambda f: np.savez(f, **cast(Any, leaves)))
        write_text(folder / "result.json", json.dumps(self.summary(), indent=2))
        return folder


def train(
    split: Split,
    method: Method | None = None,
    budget: Budget | None = None,
    rounds: int | None = None,
    *,
    recipe: str = "auto",
    clip: float | None = None,
    trust: Trust = "local",
    weights: Weights | None = None,
    model: Model | None = None,
    preparation: Sequence[Step] | None = None,
    seed: int = 0,
    every: int = 1,
    progress: Progress = SILENT,
) -> Run:
    """Train under one budget on split data, evaluated every so many rounds. NO_PRIVACY means without noise.

    What is not given is as the recipe has it: `auto`, the recommended one, or `paper`, the paper's protocol. A method
    given here runs in the recipe's preparation with its own settings. What a preparation releases is charged too.
    """
    if not is_whole(seed) or not -(2**63) <= seed < 2**63:
        raise InputError(f"seed is {seed!r}; expected a whole number of at most 64 bits")
    expect_whole("every", every, 1)
    if not callable(getattr(progress, "at", None)):
        raise InputError(f"progress is {progress!r}; expected a fs.Progress, as fs.progress_bar gives one")
    given = Given(method=method, rounds=rounds, clip=clip, weights=weights, model=model, preparation=preparation)
    plan, chosen = planned(split, budget, recipe=recipe, trust=trust, given=given)
    began = time.perf_counter()
    seen, made = prepare(plan, split, seed)
    params, trace = simulate(plan, seen, seed, every=every, progress=progress)
    check_finite(params)
    seconds = time.perf_counter() - began
    return Run(
        plan=plan,
        chosen=chosen,
        split=split,
        seed=seed,
        params=params,
        trace=trace,
        seconds=seconds,
        prepared=made,
    )


@dataclass(frozen=True, kw_only=True)
class Given:
    """What was chosen by hand; None is left to the recipe."""

    method: Method | None = None
    rounds: int | None = None
    clip: float | None = None
    weights: Weights | None = None
    model: Model | None = None
    preparation: Sequence[Step] | None = None


def planned(split: Split, budget: Any, *, recipe: str, trust: Trust, given: Given) -> tuple[Plan, Choices]:
    """The priced plan of a run, and what the recipe chose for it."""
    check_kinds(split, given.method, given.model)
    check_budget(budget)
    one_of("trust", trust, get_args(Trust))
    chosen = choices_for(split, budget, recipe=recipe, trust=trust, head=given.model in (None, softmax_head()))
    run = by_hand(chosen, rounds=given.rounds, clip=given.clip, weights=given.weights, preparation=given.preparation)
    plan = plan_for(
        split,
        given.method or make(chosen.method, dict(chosen.settings), budget.epsilon),
        budget,
        run.rounds,
        model=given.model or softmax_head(chosen.start),
        clip=run.clip,
        trust=trust,
        weights=run.weights,
        preparation=run.preparation,
    )
    return plan, chosen


def choices_for(split: Split, budget: Budget, *, recipe: str, trust: Trust, head: bool = True) -> Choices:
    """What a recipe chooses for this split: reads its sizes and shapes only."""
    situation = Situation(
        budget=budget,
        sizes=tuple(split.sizes),
        shape=split.dataset.x_train.shape[1:],
        classes=split.dataset.classes,
        trust=trust,
        head=head,
    )
    return choose(recipe, situation)


class Rest(TypedDict, total=False):
    """What `make_plan` takes beside what the data decides."""

    clip: float
    trust: Trust
    weights: Weights
    preparation: Sequence[Step]


def plan_for(
    split: Split, method: Method, budget: Budget, rounds: int, model: Model | None = None, **rest: Unpack[Rest]
) -> Plan:
    """The priced plan of a run on this split: reads shapes, sizes and the largest feature only."""
    check_kinds(split, method, model)
    _check_scale(split)
    plan = make_plan(
        method,
        model or softmax_head(),
        sizes=split.sizes,
        shape=split.dataset.x_train.shape[1:],
        classes=split.dataset.classes,
        budget=budget,
        rounds=rounds,
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
        raise InputError(f"the method is the text {method!r}; make it with fs.make({method!r})")
    if callable(method) and not isinstance(method, Method):
        name = getattr(method, "__name__", "method")
        raise InputError(f"the method is the function {name}; call it to make one: {name}()")
    if method is not None and not isinstance(method, Method):
        raise InputError(f"the method is a {type(method).__name__}; expected a fs.Method, for example fs.fedsofim()")
    if model is not None and not isinstance(model, Model):
        raise InputError(f"the model is {model!r}; expected a fs.Model, for example fs.softmax_head()")


def _check_logits(plan: Plan) -> None:
    """One number for each class of each record, or accuracy would make no sense."""
    shape, classes = plan.shape, plan.classes
    params = jax.eval_shape(lambda: plan.model.init(jax.random.key(0), shape, classes))
    found = jax.eval_shape(plan.model.logits, params, jax.ShapeDtypeStruct((2, *shape), jnp.float32))
    if getattr(found, "shape", None) != (2, classes):
        raise InputError(
            f"the model's logits of 2 records have shape {getattr(found, 'shape', None)}; expected (2, {classes}), one "
            "for each class"
        )


def _check_scale(split: Split) -> None:
    largest = float(np.abs(split.dataset.x_train).max())
    if largest > 1e15:  # its square no longer fits float32, so norms would not either
        raise InputError(
            f"{split.dataset.name}: a feature has size {largest:.3g}; expected below 1e15. Rescale by a public constant"
        )
