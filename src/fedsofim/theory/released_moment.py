"""A head's constants from a charged release instead of the records: the engine's own second moment of unit records."""

import math
from dataclasses import dataclass

from fedsofim.core.budget import Budget
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Trust
from fedsofim.core.preparation import UnitNorm, Whitened
from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.training import Given, planned
from fedsofim.tasks import refuse_other_than_classes
from fedsofim.theory.heads import HeadConstants, from_released

_HALF = 0.5  # the constant beside a unit record, in place of the bias's 1


@dataclass(frozen=True)
class Released:
    constants: HeadConstants
    share: float  # of the budget's mu²


def released_constants(
    split: Split, budget: Budget, *, C_g: float, ridge: float, share: float = 0.1, trust: Trust = "local", seed: int = 0
) -> Released:
    """Constants of a head on [x/|x|; 1/2], λ_max(S) from one release that costs `share` of the budget's mu²."""
    refuse_other_than_classes("a statement about a head", split.dataset.task)
    if not budget.private:
        raise InputError("a release without noise is no release; expected a budget, or --constants records")
    steps = (UnitNorm(), Whitened(share, damping=1.0))  # the map is not used, so neither is its damping
    plan, _ = planned(split, budget, recipe="auto", trust=trust, given=Given(preparation=steps))
    made = prepare(plan, split, seed)[1]
    constants = from_released(
        made.released[Phase.MOMENTS]["second"],
        made.stds[Phase.MOMENTS],
        radius=math.sqrt(1 + _HALF**2),
        classes=split.dataset.classes,
        C_g=C_g,
        ridge=ridge,
    )
    return Released(constants, share)
