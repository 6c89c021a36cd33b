"""`train`: plan, simulate, and hand back everything a reader of the result needs."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.files import write_whole
from fedsofim.models import Model, softmax_head
from fedsofim.plan import Plan, Trust, Weights, plan
from fedsofim.privacy import Budget, Charge
from fedsofim.round import Method
from fedsofim.simulate import Trace, check_finite, simulate, standardized
from fedsofim.standardize import PrivateMoments


@dataclass(frozen=True)
class Run:
    """A finished run: parameters, test accuracy by round, and the ledger its epsilon is derived from."""

    plan: Plan
    data: Split
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
        return self.plan.charges

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Predicted classes."""
        return np.asarray(self.plan.model.logits(self.params, jnp.asarray(x))).argmax(axis=-1)

    def summary(self) -> dict[str, Any]:
        """The run as plain data: what `--json` prints."""
        p = self.plan
        tens = {str(t): round(a, 4) for t, a in self.accuracy.items() if t % 10 == 0 or t == p.rounds}
        return {
            "method": p.method.name,
            "dataset": self.data.data.name,
            "partition": self.data.description,
            "clients": len(p.sizes),
            "seed": self.seed,
            "standardised": self.data.data.notes.get("standardised", "no"),
            **privacy_summary(p),
            "accuracy": tens,
            "final_accuracy": round(self.final_accuracy, 4),
            "seconds": round(self.seconds, 3),
        }

    def plot(self, path: str | Path) -> None:
        """Accuracy over rounds, as a picture."""
        from fedsofim.figures import curves

        curves({self.plan.method.name: [self.trace]}, path)

    def save(self, folder: str | Path) -> Path:
        """Write result.json and params.npz into a folder, each whole or not at all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        leaves = {f"leaf{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(self.params))}
        write_whole(folder / "params.npz", lambda f: np.savez(f, **cast(Any, leaves)))
        text = json.dumps(self.summary(), indent=2)
        write_whole(folder / "result.json", lambda f: f.write(text.encode()))
        return folder


def train(
    data: Split,
    method: Method,
    budget: Budget | None,
    rounds: int = 70,
    *,
    clip: float = 10.0,
    trust: Trust = "local",
    weights: Weights = "uniform",
    model: Model | None = None,
    standardize: PrivateMoments | None = None,
    seed: int = 0,
    every: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Train a method under one budget on split data. Budget None means without noise, and epsilon infinite.

    `standardize` first releases the features' moments, charged to the same budget; the run's `data` is then the
    standardised one, and so is what its `predict` takes.
    """
    settled = plan_for(
        data, method, budget, rounds, clip=clip, trust=trust, weights=weights, model=model, standardize=standardize
    )
    began = time.perf_counter()
    data = standardized(settled, data, seed)
    params, trace = simulate(settled, data, seed, every=every, progress=progress)
    check_finite(params)
    return Run(settled, data, seed, params, trace, time.perf_counter() - began)


def plan_for(
    data: Split,
    method: Method,
    budget: Budget | None,
    rounds: int,
    *,
    clip: float = 10.0,
    trust: Trust = "local",
    weights: Weights = "uniform",
    model: Model | None = None,
    standardize: PrivateMoments | None = None,
) -> Plan:
    """The priced plan of a run on this data: reads shapes, sizes and the largest feature only."""
    _check_scale(data)
    return plan(
        method,
        model or softmax_head(),
        sizes=data.sizes,
        shape=data.data.x_train.shape[1:],
        classes=data.data.classes,
        budget=budget,
        rounds=rounds,
        clip=clip,
        trust=trust,
        weights=weights,
        standardize=standardize,
    )


def privacy_summary(p: Plan) -> dict[str, Any]:
    """What a run releases and costs, as plain data."""
    return {
        "epsilon": p.epsilon if math.isfinite(p.epsilon) else None,  # None: no guarantee
        "delta": p.delta,
        "mu": p.mu if p.mu is not None and math.isfinite(p.mu) else None,
        "sigma_g": p.sigma_g,
        "noise_std": p.noise_std,
        "clip": p.clip if math.isfinite(p.clip) else None,
        "rounds": p.rounds,
        "releases": p.releases,
        "trust": p.trust,
        "weights": p.weights,
        "note": p.method.note,
        "ledger": [_entry(p, c) for c in p.charges],
    }


def _entry(p: Plan, c: Charge) -> dict[str, Any]:
    """One line of the ledger. `unit_releases` is what it costs, in independent releases of unit noise; a number in
    `charged_as` means the account is wrong on purpose (a preset that reruns a published one)."""
    multiplier = p.multipliers[c.site]
    numbers = {"clip": c.clip, "sensitivity": c.ratio * c.clip, "multiplier": multiplier, "std": multiplier * c.clip}
    return {
        "what": c.label,
        "releases": c.releases,
        "unit_releases": c.weight,
        "charged_as": c.charged,
        **{k: v if math.isfinite(v) else None for k, v in numbers.items()},
        "sampled": c.sample,
        "share": c.share,
    }


def _check_scale(data: Split) -> None:
    largest = float(np.abs(data.data.x_train).max())
    if largest > 1e15:  # its square no longer fits float32, so norms would not either
        raise InputError(
            f"{data.data.name}: a feature has size {largest:.3g}; expected below 1e15. Rescale by a public constant"
        )
