"""What counted guesses prove: upper bounds on error rates, and from them lower bounds on mu and epsilon.

In n trials of the world "-" an attacker said "+" k times. Then, with probability at least 1 - a whatever the truth is,
its rate is below the Clopper-Pearson bound, the (1 - a)-quantile of Beta(k + 1, n - k). Both rates are bounded with
a = (1 - confidence)/2, so both bounds hold together with the stated confidence, whether or not the two worlds' trials
share their random numbers.

A mu-GDP mechanism has Φ⁻¹(1 - alpha) - Φ⁻¹(beta) <= mu for every attack, and an (epsilon, delta)-DP one
log((1 - delta - beta)/alpha) <= epsilon. So the same expressions at the upper bounds are lower bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri

from fedsofim.attack.claims import Claim


@dataclass(frozen=True)
class Rates:
    """Two error rates of one fixed attack: alpha says "+" in "-", beta says "-" in "+"."""

    alpha: float
    beta: float


def upper_bound(errors: int | np.ndarray, trials: int, risk: float) -> np.ndarray:
    """Clopper-Pearson: a rate of so many errors is below this, except with probability `risk`.

    >>> round(float(upper_bound(0, 100, 0.05)), 4)
    0.0295
    """
    errors = np.asarray(errors, float)
    inside = betaincinv(errors + 1, np.maximum(trials - errors, 1e-9), 1 - risk)
    return np.where(errors >= trials, 1.0, inside)


def bounded(plus: np.ndarray, minus: np.ndarray, threshold: float, confidence: float) -> Rates:
    """Upper bounds on both rates of "say + above the threshold", holding together with this confidence."""
    risk = (1 - confidence) / 2
    alpha = upper_bound(int(np.sum(minus > threshold)), len(minus), risk)
    beta = upper_bound(int(np.sum(plus <= threshold)), len(plus), risk)
    return Rates(float(alpha), float(beta))


def mu_of_rates(rates: Rates) -> float:
    """The least mu whose curve allows such rates; never below 0."""
    return max(0.0, float(-ndtri(rates.alpha) - ndtri(rates.beta)))


def epsilon_of_rates(rates: Rates, delta: float) -> float:
    """The least epsilon that allows such rates, whatever the shape of the curve; never below 0."""
    found = [0.0]
    for one, other in ((rates.alpha, rates.beta), (rates.beta, rates.alpha)):
        if 1 - delta - other > one > 0:
            found.append(math.log((1 - delta - other) / one))
    return max(found)


def refutes(rates: Rates, claim: Claim) -> bool:
    """Do these rates lie below the claimed curve? Rounding of float sums (1e-6 of the clip) is not held against it."""
    if claim.mu is not None:
        return mu_of_rates(rates) > claim.mu * (1 + 1e-5)
    return rates.beta < float(claim.least_beta(rates.alpha)) - 1e-6


# --- where to put the threshold -----------------------------------------------------------------------------


def thresholds(plus: np.ndarray, minus: np.ndarray, count: int = 200) -> np.ndarray:
    """Places to try: quantiles of all scores."""
    return np.unique(np.quantile(np.concatenate([plus, minus]), np.linspace(0.001, 0.999, count)))


def best_threshold(plus: np.ndarray, minus: np.ndarray, worth: Callable[[Rates], float], confidence: float) -> float:
    """The threshold at which the bounds are `worth` most, on scores that are used for nothing else."""
    places, risk = thresholds(plus, minus), (1 - confidence) / 2
    alpha = upper_bound(len(minus) - np.searchsorted(np.sort(minus), places, side="right"), len(minus), risk)
    beta = upper_bound(np.searchsorted(np.sort(plus), places, side="right"), len(plus), risk)
    values = [worth(Rates(float(a), float(b))) for a, b in zip(alpha, beta, strict=True)]
    return float(places[int(np.argmax(values))])


# --- the estimate -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """The Gaussian-DP mu of the scores, with an interval that holds where scores are normal."""

    mu: float
    low: float
    high: float


def estimated(plus: np.ndarray, minus: np.ndarray, confidence: float) -> Estimate:
    """(mean in "+" less mean in "-") over the scores' std.

    Trials come in pairs that may share their random numbers, which makes the difference of means sharper than the
    means: its error is taken from the differences of pairs, that of the std is 1/sqrt(2n) of it.
    """
    pairs = len(plus)
    std = math.sqrt((float(np.var(plus, ddof=1)) + float(np.var(minus, ddof=1))) / 2)
    shift = float(np.mean(plus) - np.mean(minus))
    if std <= 1e-9 * abs(shift):  # no noise that can be seen
        return Estimate(math.inf, math.inf, math.inf)
    mu = shift / std
    error = math.sqrt(float(np.var(plus - minus, ddof=1)) / pairs / std**2 + mu**2 / (2 * (pairs - 1)))
    reach = float(-ndtri((1 - confidence) / 2)) * error
    return Estimate(mu, mu - reach, mu + reach)
