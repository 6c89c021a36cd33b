"""The lines of a ledger: what was released, one line for each site of each request, and what lines add up to.

**Whoever asks chooses by what was answered**: the next job, its noise, whether there is one. A plan is fixed before it
runs; a ledger is not. For releases that are mu-GDP this costs nothing. Say that whatever is still asked has Σ mu_r² <=
B². Of the last release delta is at most that of a Gaussian of B; and if after a release of mu_r the rest is at most a
Gaussian of sqrt(B² - mu_r²), whatever came out, both are one of B, whichever mu_r was asked for. So by induction a cap
on mu² is a cap on delta(epsilon).

Sampled releases have other curves: of two that cost the same at one epsilon, one is worse above it and the other below,
and who takes the first after a large loss and the second after a small one has more of both (a test has the numbers).
So here a sampled release counts as if it had read all records, which it never exceeds (core/sampled.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedsofim.core.accounting import Charge, spent
from fedsofim.core.budget import in_words
from fedsofim.deploy.noise import slack
from fedsofim.errors import Refused

_ROUNDING = 1e-6  # relative: a run calibrated to exactly the cap adds up to it only within float rounding


@dataclass(frozen=True, kw_only=True)
class Line:
    """One release site of one ask, priced: what the ledger keeps for ever."""

    label: str
    clip: float
    ratio: float  # L2 sensitivity over clip
    multiplier: float  # noise std over clip
    releases: int
    weight: float  # in independent releases at that multiplier
    sample: float
    coordinates: int


def epsilon_of_lines(lines: Sequence[Line], delta: float) -> float:
    """Composed epsilon at delta of everything in a ledger, less the sampler's slack; 0 for an empty one."""
    if not lines:
        return 0.0
    left = delta - sum(line.releases * slack(line.coordinates) for line in lines)
    if left <= 0:
        return math.inf
    charges, multipliers = _as_charges(lines)
    return spent(charges, multipliers, left)


def within_cap(before: Sequence[Line], more: Sequence[Line], cap: float, delta: float) -> float:
    """The epsilon spent once `more` is added; Refused above the cap."""
    after = epsilon_of_lines([*before, *more], delta)
    if not after <= cap * (1 + _ROUNDING):
        raise Refused(
            f"it would bring the epsilon spent on this node's data from {in_words(epsilon_of_lines(before, delta))} to "
            f"{in_words(after)}, above the cap of {cap:g} (delta {delta:g})"
        )
    return after


def _as_charges(lines: Sequence[Line]) -> tuple[list[Charge], dict[int, float]]:
    """Like lines added up: one charge for each kind of release, as if it had read all records."""
    kinds: dict[tuple[float, float], list[float]] = {}
    for line in lines:
        total = kinds.setdefault((line.ratio, line.multiplier), [0, 0.0])
        total[0] += line.releases
        total[1] += line.weight
    charges = [
        Charge(site=site, label="", clip=1.0, ratio=ratio, releases=int(releases), weight=weight)
        for site, ((ratio, _), (releases, weight)) in enumerate(kinds.items())
    ]
    return charges, {site: multiplier for site, (_, multiplier) in enumerate(kinds)}
