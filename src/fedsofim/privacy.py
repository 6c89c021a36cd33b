"""Exact prices: mu <-> (epsilon, delta), composition of unequal charges, and calibration of the noise.

A Gaussian release of std s of something with L2 sensitivity Δ is mu-GDP with mu = Δ/s, and releases compose
as mu² = Σ mu_r², adaptively and exactly. The curve of a mu-GDP mechanism is

    delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon · Φ(-mu/2 - epsilon/mu).

Written as it stands, the second term cancels the first almost wholly when delta is small. With
x = epsilon/mu - mu/2, y = epsilon/mu + mu/2 and Mills' ratio R(z) = Φ(-z)/φ(z) it is φ(x)·(R(x) - R(y)),
since e^epsilon·φ(y) = φ(x); that form keeps its digits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy.special import erfcx, log_ndtr

from fedsofim.errors import InputError

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Budget:
    """What one record may be exposed to over the whole run, under replace-one adjacency.

    >>> round(Budget(epsilon=1, delta=1e-5).mu, 6)
    0.268051
    """

    epsilon: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)
        _probability("delta", self.delta)

    @property
    def mu(self) -> float:
        return mu_of(self.epsilon, self.delta)


@dataclass(frozen=True)
class Charge:
    """What one release site of a client's program costs over the run. Cost is data; pricing is elsewhere.

    `ratio` is L2 sensitivity over clip (2 under replace-one); `weight` is how many unit-noise releases the site
    is worth over the run (for independent unit noise: `releases` itself); `sample` the Poisson rate;
    `share` a fixed part of the budget's mu² (None: the site shares what is left with its like). `charged` is set
    only by a preset that reproduces a wrong account: calibration then pays for it instead of `weight`, while
    what is spent still follows `weight`; at 0 the site is never paid for, and epsilon is infinite.
    """

    site: int
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


# --- the Gaussian curve -------------------------------------------------------------------------------------


def log_delta_of(mu: float, epsilon: float) -> float:
    """log delta of a mu-GDP mechanism at epsilon >= 0."""
    if mu == 0:
        return -math.inf
    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    log_phi = -0.5 * x * x - _HALF_LOG_2PI
    if x < 0:  # R(x) overflows here, and nothing cancels: the first term is at least 1/2
        return math.log(math.exp(log_ndtr(-x)) - math.exp(log_phi) * _mills(y))
    return log_phi + math.log(_mills(x) - _mills(y))


def delta_of(mu: float, epsilon: float) -> float:
    """delta of a mu-GDP mechanism at epsilon.

    >>> f"{delta_of(mu=1, epsilon=1):.12f}"
    '0.126936737507'
    """
    _finite("mu", mu, low=0.0)
    _finite("epsilon", epsilon, low=0.0)
    return math.exp(log_delta_of(mu, epsilon))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP."""
    _positive("epsilon", epsilon)
    _probability("delta", delta)
    target = math.log(delta)
    return math.exp(_root(lambda u: log_delta_of(math.exp(u), epsilon) - target, start=math.log(min(epsilon, 1))))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP; inf at mu = inf.

    >>> round(epsilon_of(mu_of(3.0, 1e-6), 1e-6), 9)
    3.0
    """
    _probability("delta", delta)
    if math.isnan(mu) or mu < 0:
        raise InputError(f"mu is {mu}; expected a number >= 0")
    if mu == math.inf:
        return math.inf
    target = math.log(delta)
    if log_delta_of(mu, 0.0) <= target:
        return 0.0
    return math.exp(_root(lambda u: target - log_delta_of(mu, math.exp(u)), start=math.log(mu)))


def _mills(z: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(z / math.sqrt(2)))


def _root(increasing, start: float) -> float:
    """Where an increasing function crosses zero, to the last digit of a double: halved until nothing is between."""
    low = high = start
    step = 1.0
    while increasing(low) > 0:
        low, step = low - step, 2 * step
    step = 1.0
    while increasing(high) < 0:
        high, step = high + step, 2 * step
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return high


# --- whole ledgers ------------------------------------------------------------------------------------------


def calibrate(charges: Sequence[Charge], budget: Budget) -> dict[int, float]:
    """The noise multiplier (std over clip) of each site, so that the whole ledger spends exactly the budget.

    Sites with a `share` get that part of mu²; one common multiplier serves all others. A sampled site is priced
    by dp-accounting's privacy loss distributions, which round up: never below the truth.

    >>> site = Charge(0, "gradient", clip=10.0, ratio=2.0, releases=70, weight=70.0)
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


def at_multiplier(charges: Sequence[Charge], multiplier: float) -> dict[int, float]:
    """The sites' multipliers when the common one is set by hand; fixed shares keep their part of mu²."""
    _positive("noise multiplier", multiplier)
    unpaid = {c.site: 0.0 for c in charges if c.charged == 0}
    paid = [c for c in charges if c.charged != 0]
    left = 1.0 - sum(c.share or 0.0 for c in paid)
    total = sum(c.mu_squared(multiplier) for c in paid if c.share is None) / left
    return unpaid | {
        c.site: multiplier if c.share is None else c.ratio * math.sqrt(c.weight / (c.share * total)) for c in paid
    }


def spent(charges: Sequence[Charge], multipliers: dict[int, float], delta: float) -> float:
    """The epsilon a ledger really spends at these multipliers (inf where a release carries no noise)."""
    if any(multipliers[c.site] <= 0 for c in charges):
        return math.inf
    if any(c.sample < 1 for c in charges):
        return _pld_epsilon(charges, multipliers, delta)
    return epsilon_of(mu_spent(charges, multipliers), delta)


def mu_spent(charges: Sequence[Charge], multipliers: dict[int, float]) -> float:
    """Composed mu of a ledger in which every site reads all records."""
    if any(c.sample < 1 for c in charges):
        raise InputError("a ledger with sampled records has no single mu; ask for its epsilon")
    return math.sqrt(sum(c.mu_squared(multipliers[c.site]) for c in charges))


def _pld_epsilon(charges: Sequence[Charge], multipliers: dict[int, float], delta: float) -> float:
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


def _calibrate_sampled(charges, common, fixed: dict[int, float], budget: Budget) -> float:
    from scipy.optimize import brentq  # as slow to import as dp-accounting, which it comes with

    def excess(log_multiplier: float) -> float:
        multipliers = fixed | {c.site: math.exp(log_multiplier) for c in common}
        return budget.epsilon - _pld_epsilon(charges, multipliers, budget.delta)

    full = math.log(math.sqrt(sum(c.mu_squared(1.0) for c in common)) / budget.mu)
    low = full - 1.0
    while excess(low) > 0:
        low -= 1.0
    return math.exp(brentq(excess, low, full + 0.5, xtol=1e-4)) * (1 + 2e-4)  # type: ignore[arg-type]  # never below the root


# --- checks -------------------------------------------------------------------------------------------------


def _finite(name: str, value: float, low: float) -> None:
    if not math.isfinite(value) or value < low:
        raise InputError(f"{name} is {value}; expected a finite number >= {low:g}")


def _positive(name: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{name} is {value}; expected a finite number above 0")


def _probability(name: str, value: float) -> None:
    if not (0 < value < 1):  # also refuses NaN
        raise InputError(f"{name} is {value}; expected a number strictly between 0 and 1, usually below 1/records")
