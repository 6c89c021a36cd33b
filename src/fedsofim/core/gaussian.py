"""The privacy curve of Gaussian noise: mu <-> (epsilon, delta), to the last digits of a double.

**One release.** f(D) + N(0, s²I) with |f(D) - f(D')| <= Δ for neighbours. Turned so that f(D') - f(D) points along
the first axis, all other coordinates are the same noise, so telling D from D' is telling N(0, 1) from N(mu, 1), mu <=
Δ/s. A release with that property is called mu-GDP.

**Many.** Releases r = 1, 2, ..., each mu_r-GDP whatever came before: given the past, telling is no easier than N(0,
1) from N(mu_r, 1). All together no easier than N(0, I) from N((mu_1, mu_2, ...), I), which turned the same way is
N(0, 1) from N(mu, 1) with mu² = Σ mu_r²: composition loses nothing, and a release may depend on those before it.

**The curve.** delta(epsilon) = max over sets S of P(S) - e^epsilon·Q(S), P = N(mu, 1), Q = N(0, 1). The best S is
where the density of P is over e^epsilon times that of Q: log p/q = mu·t - mu²/2 > epsilon, so t > epsilon/mu + mu/2.
Hence

    delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon · Φ(-mu/2 - epsilon/mu).

**In doubles.** Written as it stands, the second term cancels the first almost wholly when delta is small. With x =
epsilon/mu - mu/2, y = x + mu and Mills' ratio R(z) = Φ(-z)/φ(z) it is φ(x)·(R(x) - R(y)), since e^epsilon·φ(y) =
φ(x). Where mu is small R(x) - R(y) cancels too and is the integral of -R'(t) = 1 - t·R(t) from x to y instead; where
x < 0, delta is 1 - Φ(x) - φ(x)·R(y), of which nothing cancels. tests/core/test_gaussian.py holds it against 60
digits.
"""

import math

from scipy.special import erfcx, ndtr

from fedsofim.errors import InputError, is_number, shown

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_SMALL = 0.01  # mu below which R(x) - R(y) is integrated
_FAR = 300.0  # x above which R(x) is 1/x - 1/x³, to ten digits; delta there is below e^-45000
#: Nodes and weights on [0, 1] of Gauss and Legendre's rule with three points, exact for polynomials of degree 5.
_RULE = ((0.5 - math.sqrt(0.15), 5 / 18), (0.5, 4 / 9), (0.5 + math.sqrt(0.15), 5 / 18))
#: What a budget may be: inside, both directions hold to nine digits (tested); outside, nobody means it.
EPSILONS = (1e-6, 1e9)
DELTAS = (1e-300, 1 - 1e-9)
_LARGEST_MU = 1e8  # its epsilon is 5e15: nothing is protected, and mu²/2 - mu·x has no digits left


def log_delta_of(mu: float, epsilon: float) -> float:
    """log delta of a mu-GDP mechanism at epsilon >= 0."""
    if mu == 0:
        return -math.inf
    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if not math.isfinite(x):
        return -math.inf  # epsilon is over 10^300 times mu
    log_phi = -0.5 * x * x - _HALF_LOG_2PI
    if x > _FAR:
        return log_phi + math.log(mu) - math.log(x) - math.log(y) + math.log1p(-1 / x / x - 1 / x / y - 1 / y / y)
    if mu < _SMALL:
        slope = sum(weight * (1 - t * _mills(t)) for t, weight in ((x + mu * u, weight) for u, weight in _RULE))
        return log_phi + math.log(mu) + math.log(slope)
    if x < 0:
        return math.log1p(-float(ndtr(x)) - math.exp(log_phi) * _mills(y))
    return log_phi + math.log(_mills(x) - _mills(y))


def delta_of(mu: float, epsilon: float) -> float:
    """delta of a mu-GDP mechanism at epsilon.

    >>> f"{delta_of(mu=1, epsilon=1):.12f}"
    '0.126936737507'
    """
    check_at_least("mu", mu, low=0.0)
    check_at_least("epsilon", epsilon, low=0.0)
    return math.exp(log_delta_of(mu, epsilon))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP."""
    check_within("epsilon", epsilon, *EPSILONS)
    check_delta(delta)
    target = math.log(delta)
    low, _ = _around(lambda u: log_delta_of(math.exp(u), epsilon) - target, start=math.log(min(epsilon, 1)))
    return math.exp(low)


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP; inf from mu = 1e8 up.

    >>> round(epsilon_of(mu_of(3.0, 1e-6), 1e-6), 9)
    3.0
    """
    check_delta(delta)
    if not is_number(mu) or math.isnan(mu) or mu < 0:
        raise InputError(f"mu is {shown(mu)}; expected a number >= 0")
    if mu >= _LARGEST_MU:
        return math.inf
    target = math.log(delta)
    if log_delta_of(mu, 0.0) <= target:
        return 0.0
    _, high = _around(lambda u: target - log_delta_of(mu, math.exp(u)), start=math.log(mu))
    return math.exp(high)


def _mills(z: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(z / math.sqrt(2)))


def _around(increasing, start: float) -> tuple[float, float]:
    """The neighbouring doubles between which an increasing function crosses zero: halved until nothing is between."""
    low = high = start
    step = 1.0
    while increasing(low) > 0:
        low, step = low - step, 2 * step
    step = 1.0
    while increasing(high) < 0:
        high, step = high + step, 2 * step
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return low, high


# --- checks -------------------------------------------------------------------------------------------------


def check_at_least(name: str, value: float, low: float) -> None:
    if not is_number(value) or not math.isfinite(value) or value < low:
        raise InputError(f"{name} is {shown(value)}; expected a finite number >= {low:g}")


def check_within(name: str, value: float, low: float, high: float, hint: str = "") -> None:
    """An error unless the value is a number from `low` to `high`; `hint` is for whoever wrote infinity."""
    if not is_number(value) or not low <= value <= high:  # also refuses NaN
        more = hint if is_number(value) and value == math.inf else ""
        raise InputError(f"{name} is {shown(value)}; expected a number from {low:g} to {high:g}{more}")


def check_delta(value: float) -> None:
    low, high = DELTAS
    if not is_number(value) or not low <= value <= high:
        raise InputError(
            f"delta is {shown(value)}; expected a number strictly between 0 and 1 (from {low:g} to 1 - {1 - high:.0e}) "
            "and usually below 1/records"
        )
