"""Whole ledgers: what charges add up to, and the noise that makes them add up to a budget.

A ledger is a list of charges: everything that leaves a client, with its price. Charges on all records compose exactly
(gaussian.py); sampled ones by privacy loss distributions, which round up.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsofim.core.budget import Budget
from fedsofim.core.gaussian import check_positive, epsilon_of
from fedsofim.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What one release site of a client's program costs over the run. Cost is data; pricing is elsewhere.

    `ratio` is L2 sensitivity over clip (2 under replace-one); `weight` is how many unit-noise releases the site
    is worth over the run (for independent unit noise: `releases` itself); `sample` the Poisson rate;
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

    def mu_squared(self, multiplier: float) -> float:
        """Cost at noise std = multiplier·clip, for a site that reads all records."""
        return self.weight * (self.ratio / multiplier) ** 2 if multiplier > 0 else math.inf


def calibrate(charges: Sequence[Charge], budget: Budget) -> dict[Hashable, float]:
    """The noise multiplier (std over clip) of each site, so that the whole ledger spends exactly the budget.

    Sites with a `share` get that part of mu²; one common multiplier serves all others. A sampled site is priced
    by dp-accounting's privacy loss distributions, which round up: never below the truth.

    >>> site = Charge(site=0, label="gradient", clip=10.0, ratio=2.0, releases=70, weight=70.0)
    >>> round(calibrate([site], Budget(1, 1e-5))[0] * 20**0.5, 2)  # the paper's sigma_g at n = 20
    279.17
    """
    if not charges:
        raise InputError("nothing is released, so there is nothing to calibrate; call the door in the client")
    unpaid = {c.site: 0.0 for c in charges if c.charged == 0}
    charges = [c if c.charged is None else replace(c, weight=c.charged) for c in charges if c.charged != 0]
    shared = [c for c in charges if c.share is not None]
    common = [c for c in charges if c.share is None]
    left = 1.0 - sum(c.share or 0.0 for c in shared)
    if (common and left <= 0) or left < -1e-12:
        raise InputError(f"the fixed shares of the budget add up to {1 - left:g}; expected less than 1")
    if any(c.sample < 1 for c in shared):
        raise InputError("a sampled release cannot have a fixed share of the budget; leave its share out")
    scale = 1.0 if common else 1.0 / (1.0 - left)  # with nothing else to pay for, the shares take everything
    fixed = {c.site: c.ratio * math.sqrt(c.weight / (scale * (c.share or 0.0))) / budget.mu for c in shared}
    if not common:
        return unpaid | fixed
    if all(c.sample == 1 for c in common):
        multiplier = math.sqrt(sum(c.mu_squared(1.0) for c in common) / left) / budget.mu
    else:
        multiplier = _calibrate_sampled(charges, common, fixed, budget)
    return unpaid | fixed | {c.site: multiplier for c in common}


def at_multiplier(charges: Sequence[Charge], multiplier: float) -> dict[Hashable, float]:
    """The sites' multipliers when the common one is set by hand; fixed shares keep their part of mu²."""
    check_positive("noise multiplier", multiplier)
    unpaid = {c.site: 0.0 for c in charges if c.charged == 0}
    paid = [c for c in charges if c.charged != 0]
    left = 1.0 - sum(c.share or 0.0 for c in paid)
    total = sum(c.mu_squared(multiplier) for c in paid if c.share is None) / left
    return unpaid | {
        c.site: multiplier if c.share is None else c.ratio * math.sqrt(c.weight / (c.share * total)) for c in paid
    }


def spent(charges: Sequence[Charge], multipliers: Mapping[Any, float], delta: float) -> float:
    """The epsilon a ledger really spends at these multipliers (inf where a release carries no noise)."""
    if any(multipliers[c.site] <= 0 for c in charges):
        return math.inf
    if any(c.sample < 1 for c in charges):
        return _pld_epsilon(charges, multipliers, delta)
    return epsilon_of(mu_spent(charges, multipliers), delta)


def mu_spent(charges: Sequence[Charge], multipliers: Mapping[Any, float]) -> float:
    """Composed mu of a ledger in which every site reads all records."""
    if any(c.sample < 1 for c in charges):
        raise InputError("a ledger with sampled records has no single mu; ask for its epsilon")
    return math.sqrt(sum(c.mu_squared(multipliers[c.site]) for c in charges))


def _pld_epsilon(charges: Sequence[Charge], multipliers: Mapping[Any, float], delta: float) -> float:
    # dp-accounting is slow to import and needed only where records are sampled
    import dp_accounting as dpa
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for c in charges:
        # its replace-one Gaussian moves by 2·sensitivity, so the multiplier is stated for the ratio 2
        event = dpa.GaussianDpEvent(2 * multipliers[c.site] / c.ratio * math.sqrt(c.releases / c.weight))
        sampled = event if c.sample == 1 else dpa.PoissonSampledDpEvent(c.sample, event)
        accountant.compose(sampled, c.releases)
    return float(accountant.get_epsilon(delta))


def _calibrate_sampled(charges, common, fixed: Mapping[Any, float], budget: Budget) -> float:
    from scipy.optimize import brentq  # as slow to import as dp-accounting, which it comes with

    def excess(log_multiplier: float) -> float:
        multipliers = {**fixed, **{c.site: math.exp(log_multiplier) for c in common}}
        return budget.epsilon - _pld_epsilon(charges, multipliers, budget.delta)

    full = math.log(math.sqrt(sum(c.mu_squared(1.0) for c in common)) / budget.mu)
    low = full - 1.0
    while excess(low) > 0:
        low -= 1.0
    return math.exp(brentq(excess, low, full + 0.5, xtol=1e-4)) * (1 + 2e-4)  # type: ignore[arg-type]  # never below the root
