"""`train`: plan, simulate, and hand back everything a reader of the result needs."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.accounting import Charge
from fedsofim.core.budget import Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import Method
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.plan import Plan, Trust, Weights, make_plan
from fedsofim.core.summary import privacy_summary
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split
from fedsofim.errors import InputError, expect_whole, is_whole
from fedsofim.files import write_text, write_whole
from fedsofim.progress import SILENT, Progress
from fedsofim.simulation.simulator import Trace, check_finite, simulate
from fedsofim.simulation.standardizing import standardized


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: parameters, test accuracy by round, and the ledger its epsilon is derived from."""

    plan: Plan
    split: Split
    seed: int
    params: Any
    trace: Trace
    seconds: float

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

    def predict(self, x: Any) -> np.ndarray:
        """Predicted classes of records (records x features)."""
        wanted = self.split.dataset.x_train.shape[1:]
        expected = f"expected numbers of shape (records, {', '.join(map(str, wanted))}), as in training"
        try:
            x = np.asarray(x, np.float32)
        except (TypeError, ValueError):  # text, or rows of unequal length
            raise InputError(f"predict got a {type(x).__name__} that is no array of numbers; {expected}") from None
        if x.ndim != len(wanted) + 1 or x.shape[1:] != wanted:
            raise InputError(f"predict got an array of shape {x.shape}; {expected}")
        return np.asarray(self.plan.model.logits(self.params, jnp.asarray(x))).argmax(axis=-1)

    def summary(self) -> dict[str, Any]:
        """The run as plain data: what `--json` prints."""
        p = self.plan
        tens = {str(t): round(a, 4) for t, a in self.accuracy.items() if t % 10 == 0 or t == p.rounds}
        return {
            "method": p.method.name,
            "dataset": self.split.dataset.name,
            "partition": self.split.description,
            "clients": len(p.sizes),
            "seed": self.seed,
            "standardised": self.split.dataset.notes.get("standardised", "no"),
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
    method: Method,
    budget: Budget,
    rounds: int = 70,
    *,
    clip: float = 10.0,
    trust: Trust = "local",
    weights: Weights = "uniform",
    model: Model | None = None,
    standardize: FeatureMoments | None = None,
    seed: int = 0,
    every: int = 1,
    progress: Progress = SILENT,
) -> Run:
    """Train a method under one budget on split data, evaluated every so many rounds. NO_PRIVACY means without noise.

    `standardize` first releases the features' moments, charged to the same budget; the run's `split` is then the
    standardised one, and so is what its `predict` takes.
    """
    if not is_whole(seed) or not -(2**63) <= seed < 2**63:
        raise InputError(f"seed is {seed!r}; expected a whole number of at most 64 bits")
    expect_whole("every", every, 1)
    if not callable(getattr(progress, "at", None)):
        raise InputError(f"progress is {progress!r}; expected a fs.Progress, as fs.progress_bar gives one")
    plan = plan_for(
        split, method, budget, rounds, clip=clip, trust=trust, weights=weights, model=model, standardize=standardize
    )
    began = time.perf_counter()
    split = standardized(plan, split, seed)
    params, trace = simulate(plan, split, seed, every=every, progress=progress)
    check_finite(params)
    seconds = time.perf_counter() - began
    return Run(plan=plan, split=split, seed=seed, params=params, trace=trace, seconds=seconds)


class Choices(TypedDict, total=False):
    """What `make_plan` takes beside what the data decides."""

    clip: float
    trust: Trust
    weights: Weights
    standardize: FeatureMoments | None


def plan_for(
    split: Split, method: Method, budget: Budget, rounds: int, model: Model | None = None, **choices: Unpack[Choices]
) -> Plan:
    """The priced plan of a run on this split: reads shapes, sizes and the largest feature only."""
    check_kinds(split, method, model, choices.get("standardize"))
    _check_scale(split)
    plan = make_plan(
        method,
        model or softmax_head(),
        sizes=split.sizes,
        shape=split.dataset.x_train.shape[1:],
        classes=split.dataset.classes,
        budget=budget,
        rounds=rounds,
        **choices,
    )
    _check_logits(plan.model, split)
    return plan


def check_kinds(split: Any, method: Any, model: Any, standardize: Any) -> None:
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
    if not isinstance(method, Method):
        raise InputError(f"the method is a {type(method).__name__}; expected a fs.Method, for example fs.fedsofim()")
    if model is not None and not isinstance(model, Model):
        raise InputError(f"the model is {model!r}; expected a fs.Model, for example fs.softmax_head()")
    if standardize is not None and not isinstance(standardize, FeatureMoments):
        raise InputError(f"standardize is {standardize!r}; expected fs.FeatureMoments(), or nothing")


def _check_logits(model: Model, split: Split) -> None:
    """One number for each class of each record, or accuracy would make no sense."""
    shape, classes = split.dataset.x_train.shape[1:], split.dataset.classes
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), shape, classes))
    found = jax.eval_shape(model.logits, params, jax.ShapeDtypeStruct((2, *shape), jnp.float32))
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
