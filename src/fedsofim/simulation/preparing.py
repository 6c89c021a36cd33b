"""The preparation of a run: each step's release, then the same map at every client, and at whoever uses the model."""

from dataclasses import replace

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
    init_key, noise_key = keys(seed)
    params = start_parameters(plan, split, init_key)
    released: dict[Phase, Released] = {}
    stds = {s.phase: plan.mean_std(s.phase) for s in plan.preparation if s.phase is not None}
    for step in plan.preparation:
        if step.phase is not None:
            found = ask_once(plan, step.phase, split, params, noise_key)
            released[step.phase] = jax.tree.map(np.asarray, found)
        split = mapped(split, prepared((step,), released, stds))
    return split, Prepared(steps=plan.preparation, released=released, stds=stds)


def mapped(split: Split, apply: Map) -> Split:
    """Every record mapped, those for testing too."""
    d = split.dataset
    parts = {name: getattr(d, name) for name in ("x_train", "x_test", "x_val")}
    return replace(split, dataset=replace(d, **{k: None if x is None else apply(x) for k, x in parts.items()}))
