"""Whole ledgers: what charges add up to, and the noise that makes them add up to a budget.

A ledger is a list of charges: everything that leaves a client, with its price.

**What a charge costs.** A site whose mechanism costs w releases at unit noise (mechanisms.py proves each) and whose
sums one record moves by at most ratio·clip is, at noise std = multiplier·clip, mu-GDP with mu² =
w·(ratio/multiplier)²: the clip cancels. Charges on all records add up, mu² = Σ mu_i², exactly and adaptively
(gaussian.py); sampled ones are bounded (sampled.py), and those of clients that take part by chance (drawn_clients.py).

**Calibration.** Let B be the budget's mu. A site with a share q_i gets mu_i² = q_i·B², so multiplier =
ratio·sqrt(w/q_i)/B; the rest of B², a part 1 - Σ q_i, is for all others with one multiplier m: Σ w·ratio²/m² = (1 - Σ
q_i)·B². Sampled sites are no dearer than that, so m is enough for them too and only gets smaller. Last, all
multipliers grow in the last digits until the ledger's own epsilon, as `spent` computes it, is at most the budget's.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsofim.core.budget import Budget
from fedsofim.core.drawn_clients import Attended, epsilon_of_attended
from fedsofim.core.gaussian import check_within, epsilon_of
from fedsofim.core.sampled import Sampled, epsilon_of_sampled, smallest_multiplier
from fedsofim.errors import InputError, is_number, shown

#: Noise stds that float32 carries with all its digits, with room for what methods do with them.
STDS = (1e-30, 1e30)


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What one release site of a client's program costs over the run. Cost is data; pricing is elsewhere.

    `ratio` is L2 sensitivity over clip (2 under replace-one); `weight` is how many unit-noise releases the site
    is worth over the run (for independent unit noise: `releases` itself); `sample` the Poisson rate of records,
    `attendance` that of the client in a round;
    `share` a fixed part of the budget's mu² (None: the site shares what is left with its like). `charged` is set
    only by a preset that reproduces a wrong account: calibration then pays for it instead of `weight`, while
    what is spent still follows `weight`; at 0 the site is never paid for, and epsilon is infinite.
    """

    site: Hashable
    label: str
    clip: float
    ratio: float
    releases: int
    weight: float
    sample: float = 1.0
    share: float | None = None
    charged: float | None = None
    attendance: float = 1.0

    @property
    def chance(self) -> float:
        """With which probability a release reads a record; below 1 it has no mu."""
        return self.sample * self.attendance

    def mu_squared(self, multiplier: float) -> float:
        """Cost at noise std = multiplier·clip, for a site that reads all records."""
        if not multiplier > 0:
            return math.inf
        unit = self.ratio / multiplier
        return self.weight * unit * unit  # too much for a double is infinite here; ** would raise


def check_std(label: str, std: float) -> None:
    """An error unless noise of this std can be drawn as it is priced."""
    low, high = STDS
    if not is_number(std) or not low <= std <= high:
        raise InputError(
            f"the noise of '{label}' would have std {shown(std)}; expected one from {low:g} to {high:g}, which float32 "
            "carries; use another clip, budget or noise"
        )


def calibrate(charges: Sequence[Charge], budget: Budget) -> dict[Hashable, float]:
    """The noise multiplier (std over clip) of each site, so that the whole ledger spends the budget and no digit more.

    Sites with a `share` get that part of mu²; one common multiplier serves all others. A preset that reproduces a
    wrong account is calibrated by it.

    >>> site = Charge(site=0, label="gradient", clip=10.0, ratio=2.0, releases=70, weight=70.0)
    >>> round(calibrate([site], Budget(1, 1e-5))[0] * 20**0.5, 2)  # the paper's sigma_g at n = 20
    279.17
    """
    if not charges:
        raise InputError("nothing is released, so there is nothing to calibrate; call the door in the client")
    paid, left = _paid(charges)
    if not paid:
        return _with_unpaid(charges, {})
    common = [c for c in paid if c.share is None]
    mu = budget.mu
    part = 1.0 if common else 1.0 - left  # with nothing else to pay for, the shares take everything
    found: dict[Hashable, float] = {
        c.site: c.ratio * math.sqrt(c.weight / (c.share / part)) / mu for c in paid if c.share is not None
    }
    if common:
        found |= dict.fromkeys((c.site for c in common), math.sqrt(sum(c.mu_squared(1.0) for c in common) / left) / mu)
    found = _within(paid, found, budget)
    if any(c.chance < 1 for c in common):
        found |= dict.fromkeys((c.site for c in common), _sampled_multiplier(paid, found, budget))
    return _with_unpaid(charges, found)


def at_multiplier(charges: Sequence[Charge], multiplier: float) -> dict[Hashable, float]:
    """The sites' multipliers when the common one is set by hand; fixed shares keep their part of mu²."""
    check_within("noise multiplier", multiplier, *STDS)
    paid, left = _paid(charges)
    common = [c for c in paid if c.share is None]
    if paid and not common:
        raise InputError("every release has a fixed share of the budget, so there is no common noise multiplier to set")
    total = sum(c.mu_squared(multiplier) for c in common) / left
    return _with_unpaid(
        charges,
        {c.site: multiplier if c.share is None else c.ratio * math.sqrt(c.weight / (c.share * total)) for c in paid},
    )


def spent(charges: Sequence[Charge], multipliers: Mapping[Any, float], delta: float) -> float:
    """The epsilon a ledger really spends at these multipliers (inf where a release carries no noise)."""
    if any(multipliers[c.site] <= 0 for c in charges):
        return math.inf
    sampled = [c for c in charges if c.sample < 1]
    attended = [c for c in charges if c.attendance < 1]
    mu = mu_spent([c for c in charges if c.chance == 1], multipliers)
    if (sampled and attended) or len(attended) > 1:
        raise InputError("clients and records that both take part by chance have no price here; let one of them")
    if attended:
        (c,) = attended
        return epsilon_of_attended(mu, Attended(_each(c, multipliers[c.site]), c.attendance, c.releases), delta)
    if not sampled:
        return epsilon_of(mu, delta)
    return epsilon_of_sampled(mu, [_one_by_one(c, multipliers[c.site]) for c in sampled], delta)


def mu_spent(charges: Sequence[Charge], multipliers: Mapping[Any, float]) -> float:
    """Composed mu of a ledger in which every site reads all records."""
    if any(c.chance < 1 for c in charges):
        raise InputError("a ledger with sampled records has no single mu; ask for its epsilon")
    return math.sqrt(sum(c.mu_squared(multipliers[c.site]) for c in charges))


def _one_by_one(c: Charge, multiplier: float) -> Sampled:
    """A sampled site's releases, which all have the same noise: the audit refuses any other layout of it."""
    return Sampled(_each(c, multiplier), c.sample, c.releases)


def _each(c: Charge, multiplier: float) -> float:
    """mu of one of a site's releases, which all have the same noise."""
    return math.sqrt(c.mu_squared(multiplier) / c.releases)


def _paid(charges: Sequence[Charge]) -> tuple[list[Charge], float]:
    """The charges that noise is calibrated for, at what they are charged, and the part of mu² that no share holds."""
    for c in charges:
        if c.charged is not None and not (is_number(c.charged) and 0 <= c.charged < math.inf):
            raise InputError(f"'{c.label}' is charged as {shown(c.charged)} releases; expected a finite number >= 0")
    paid = [c if c.charged is None else replace(c, weight=c.charged) for c in charges if c.charged != 0]
    shares = [c for c in paid if c.share is not None]
    held = math.fsum(c.share or 0.0 for c in shares)
    if held > 1 + 1e-12 or (held > 1 - 1e-12 and len(shares) < len(paid)):
        raise InputError(f"the fixed shares of the budget add up to {held:g}; expected less than 1")
    if any(c.chance < 1 for c in shares):
        raise InputError("a sampled release cannot have a fixed share of the budget; leave its share out")
    return paid, 1.0 - held


def _with_unpaid(charges: Sequence[Charge], found: dict[Hashable, float]) -> dict[Hashable, float]:
    """Multipliers of all sites, checked. What nobody pays for has none: its noise is stated in the data's units."""
    for c in charges:
        if c.site in found:
            check_std(c.label, found[c.site] * c.clip)
    return {c.site: 0.0 for c in charges if c.charged == 0} | found


def _within(paid: Sequence[Charge], found: dict[Hashable, float], budget: Budget) -> dict[Hashable, float]:
    """The multipliers, grown in their last digits until the ledger's own epsilon is at most the budget's."""
    grown, more = found, 2.0**-52
    while spent(paid, grown, budget.delta) > budget.epsilon:
        grown, more = {site: m * (1 + more) for site, m in found.items()}, 2 * more
    return grown


def _sampled_multiplier(paid: Sequence[Charge], full: Mapping[Hashable, float], budget: Budget) -> float:
    """The common multiplier of a ledger in which some sites sample: at most the one for reading all records."""
    common = [c for c in paid if c.share is None]

    def epsilon(multiplier: float) -> float:
        return spent(paid, {**full, **dict.fromkeys((c.site for c in common), multiplier)}, budget.delta)

    return smallest_multiplier(epsilon, budget.epsilon, full[common[0].site], min(c.chance for c in common))
