"""The privacy curve of Gaussian noise: mu <-> (epsilon, delta), to the last digits of a double.

A Gaussian release of std s of something with L2 sensitivity Δ is mu-GDP with mu = Δ/s, and releases compose
as mu² = Σ mu_r², adaptively and exactly. The curve of a mu-GDP mechanism is

    delta(epsilon) = Φ(mu/2 - epsilon/mu) - e^epsilon · Φ(-mu/2 - epsilon/mu).

Written as it stands, the second term cancels the first almost wholly when delta is small. With
x = epsilon/mu - mu/2, y = epsilon/mu + mu/2 and Mills' ratio R(z) = Φ(-z)/φ(z) it is φ(x)·(R(x) - R(y)),
since e^epsilon·φ(y) = φ(x); that form keeps its digits.
"""

import math

from scipy.special import erfcx, log_ndtr

from fedsofim.errors import InputError, is_number

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


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
    check_at_least("mu", mu, low=0.0)
    check_at_least("epsilon", epsilon, low=0.0)
    return math.exp(log_delta_of(mu, epsilon))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP."""
    check_positive("epsilon", epsilon)
    check_probability("delta", delta)
    target = math.log(delta)
    return math.exp(_root(lambda u: log_delta_of(math.exp(u), epsilon) - target, start=math.log(min(epsilon, 1))))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP; inf at mu = inf.

    >>> round(epsilon_of(mu_of(3.0, 1e-6), 1e-6), 9)
    3.0
    """
    check_probability("delta", delta)
    if not is_number(mu) or math.isnan(mu) or mu < 0:
        raise InputError(f"mu is {mu!r}; expected a number >= 0")
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


# --- checks -------------------------------------------------------------------------------------------------


def check_at_least(name: str, value: float, low: float) -> None:
    if not is_number(value) or not math.isfinite(value) or value < low:
        raise InputError(f"{name} is {value!r}; expected a finite number >= {low:g}")


def check_positive(name: str, value: float, hint: str = "") -> None:
    if not is_number(value) or not math.isfinite(value) or value <= 0:
        raise InputError(f"{name} is {value!r}; expected a finite number above 0{hint if value == math.inf else ''}")


def check_probability(name: str, value: float) -> None:
    if not is_number(value) or not (0 < value < 1):  # also refuses NaN
        raise InputError(f"{name} is {value!r}; expected a number strictly between 0 and 1, usually below 1/records")
