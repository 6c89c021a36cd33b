"""Features standardised by the clients' own private moments: the release, then the same map at every client."""

from dataclasses import replace

import numpy as np

from fedsofim.core.feature_moments import FeatureMoments, standardizer
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.data.partition import Split
from fedsofim.simulation.simulator import ask_once, keys, start_parameters


def standardized(plan: Plan, split: Split, seed: int) -> Split:
    """The split as its clients map it after releasing their feature moments; unchanged if the plan has none."""
    if plan.standardize is None:
        return split
    init_key, noise_key = keys(seed)
    params = start_parameters(plan, split, init_key)
    released = ask_once(plan, Phase.MOMENTS, split, params, noise_key)
    return _mapped(split, plan.standardize, released)


def _mapped(split: Split, how: FeatureMoments, released: dict) -> Split:
    """Every record mapped by the released mean and scale; what was done goes into the notes."""
    apply = standardizer(how, released)

    def mapped(x: np.ndarray | None) -> np.ndarray | None:
        return None if x is None else apply(x)

    d = split.dataset
    note = f"by private moments (share {how.share:g} of the budget, radius {how.radius:g}); in the ledger"
    parts = {part: mapped(getattr(d, part)) for part in ("x_train", "x_test", "x_val")}
    return replace(split, dataset=replace(d, **parts, notes=d.notes | {"standardised": note}))  # pyright: ignore
