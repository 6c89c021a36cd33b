"""The preparation of a run: each step's release, then the same map at every client, and at whoever uses the model."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.core.preparation import Map, Released, prepared
from fedsofim.core.prepared import Prepared
from fedsofim.data.partition import Split
from fedsofim.simulation.simulator import ask_once, keys, start_parameters


def prepare(plan: Plan, split: Split, seed: int) -> tuple[Split, Prepared]:
    """The split as the rounds see it, and what made it so. A plan without preparation leaves it as it is."""
    if not plan.preparation:
        return split, Prepared()
    stds = {s.phase: plan.mean_std(s.phase) for s in plan.preparation if s.phase is not None}
    known = _kept(
        split,
        (
            plan.preparation,
            tuple(stds.items()),
            plan.client_weights.tobytes(),
            plan.trust,
            plan.each and plan.budget,
            seed,
        ),
    )
    init_key, noise_key = keys(seed)
    params = start_parameters(plan, split, init_key)
    for step in plan.preparation:
        if step.phase is not None and step.phase not in known:
            found = ask_once(plan, step.phase, split, params, noise_key)
            known[step.phase] = jax.tree.map(np.asarray, found)
        split = mapped(split, prepared((step,), known, stds))
    return split, Prepared(steps=plan.preparation, released=dict(known), stds=stds)


class _Kept:
    """What was released for the preparations of the last split. Equal requests have equal answers, so the methods of a
    comparison, which all prepare the same records in the same way, ask once. Forgotten with the split."""

    def __init__(self) -> None:
        self.split: Callable[[], Split | None] = lambda: None
        self.released: dict[Any, dict[Phase, Released]] = {}

    def __call__(self, split: Split, key: Any) -> dict[Phase, Released]:
        if self.split() is not split:
            self.split, self.released = weakref.ref(split), {}
        return self.released.setdefault(key, {})


_kept = _Kept()


def mapped(split: Split, apply: Map) -> Split:
    """Every record mapped, those for testing too."""
    d = split.dataset
    parts = {name: getattr(d, name) for name in ("x_train", "x_test", "x_val")}
    return replace(split, dataset=replace(d, **{k: None if x is None else apply(x) for k, x in parts.items()}))
