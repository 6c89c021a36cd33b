"""The lines of a ledger: what was released, one line for each site of each request, and what lines add up to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsofim.core.accounting import Charge, spent
from fedsofim.core.budget import in_words
from fedsofim.deploy.noise import slack
from fedsofim.errors import Refused

_KINDS = 16  # of sampled releases that are priced as such: each takes part in every convolution
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
    """Like lines added up: one charge for each kind of release."""
    kinds: dict[tuple, list[float]] = {}
    for line in lines:
        each = line.weight / line.releases
        total = kinds.setdefault((line.ratio, line.multiplier, each, line.sample), [0, 0.0])
        total[0] += line.releases
        total[1] += line.weight
    charges, multipliers = [], {}
    beyond = _beyond(kinds)
    for site, ((ratio, multiplier, _, sample), (releases, weight)) in enumerate(kinds.items()):
        if site in beyond:
            sample = 1.0
        charges.append(
            Charge(site=site, label="", clip=1.0, ratio=ratio, releases=int(releases), weight=weight, sample=sample)
        )
        multipliers[site] = multiplier
    return charges, multipliers


def _beyond(kinds: Mapping[tuple, Sequence[float]]) -> set[int]:
    """Which kinds are priced as if they read all records, which never costs less: the cheapest of too many sampled."""
    sampled = [
        (weight * (ratio / multiplier) * (ratio / multiplier) if multiplier > 0 else math.inf, site)
        for site, ((ratio, multiplier, _, sample), (_, weight)) in enumerate(kinds.items())
        if sample < 1
    ]
    return {site for _, site in sorted(sampled, reverse=True)[_KINDS:]}
