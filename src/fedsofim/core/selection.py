"""What it costs to release the best of several private runs: of all of them, or of a number of them that is drawn.

One trial Q draws its settings from a public list, trains under noise, and scores the model by a noisy count; the best
of K trials, with its score, is all that is released. A trial is mu-GDP whatever its settings, so its Renyi divergence
of order a between neighbours is at most a·mu²/2 (that of Gaussian noise; settings have the same law on both sides).

**All trials** (K = m fixed). Everything that was computed may be released: mu² adds up, sqrt(m)·mu. Exact.

**A random number** (Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy", ICLR 2022; their
theorems 2 and 6, proved here as far as they are used). K is drawn apart from the records and never told. Let f(x) = E
x^K, and order results from worst to best, ties by a public rule. Then P(best is y) = f(Q(<=y)) - f(Q(<y)) = Q(y)·∫_0^1
f'(Q(<y) + t·Q(y)) dt. Since (u, v) -> u^a·v^(1-a) is jointly convex,

    Σ_y A(y)^a·A'(y)^(1-a) <= Σ_y Q(y)^a·Q'(y)^(1-a) · max f'(q)^a·f'(q')^(1-a) = e^((a-1)·D_a(Q, Q')) · max ...,

where q = Q(<y) + t·Q(y) and q' are the probabilities of one and the same event of a (randomised) function of a trial.

* Truncated negative binomial, f'(x) = E[K]·(g/(1 - (1-g)·x))^(eta+1), K >= 1. With u = 1 - (1-g)·q >= g, and u' of the
  other side, the log of the max is log E[K] + (eta+1)·((a-1)·log(u'/u) + log(g/u)), whose last term is at most 0. u is
  the probability of an event too, so an order b of Renyi gives u'^b·u^(1-b) <= e^((b-1)·D_b), hence log(u'/u) <=
  (1 - 1/b)·D_b + log(1/g)/b. So

      D_a(A, A') <= D_a + (1 + eta)·((1 - 1/b)·D_b + log(1/g)/b) + log(E[K])/(a-1)         for every b >= 1.

* Poisson, f'(x) = m·e^(m(x-1)): the log of the max is log m + m·((a-1)(1-q') - a(1-q)). With 1 - q' <= e^s·(1-q) + d,
  where d = delta(s) of a trial and e^s = a/(a-1), the bracket is at most (a-1)·d. So

      D_a(A, A') <= D_a + m·delta(log(a/(a-1))) + log(m)/(a-1).

  K may be 0: what is released then must not depend on the records. It is one result more, of probability e^-m on both
  sides, so e^-m is added to e^((a-1)·D_a(A, A')).

From Renyi to (epsilon, delta): epsilon = D_a + log((a-1)/a) - log(a·delta)/(a-1), for every a > 1 (Canonne, Kamath and
Steinke 2020). All orders are tried on a grid; each gives a true bound, so the least of them is one.

The bound needs that K and the losing trials stay secret: whoever is told them, or can time the search, knows more.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedsofim.core.budget import Budget
from fedsofim.core.gaussian import delta_of, epsilon_of
from fedsofim.errors import InputError, expect_whole

_ORDERS = 1 + np.geomspace(1e-3, 1e6, 600)  # a, b
SURE = 8  # trials in the mean from which on Poisson draws none with a chance below 1 in 2,900


class Way(Protocol):
    """How many trials there are, and what their best costs."""

    @property
    def mean(self) -> float: ...

    def epsilon(self, mu: float, delta: float) -> float:
        """Of releasing the best, where each trial is mu-GDP."""
        ...

    def draw(self, random: np.random.Generator) -> int:
        """A number of trials."""
        ...


@dataclass(frozen=True)
class EveryTrial:
    """All settings once; everything that was computed is paid for.

    >>> round(EveryTrial(4).epsilon(0.5, 1e-5) - epsilon_of(1.0, 1e-5), 12)
    0.0
    """

    trials: int

    @property
    def mean(self) -> float:
        return float(self.trials)

    def epsilon(self, mu: float, delta: float) -> float:
        return epsilon_of(math.sqrt(self.trials) * mu, delta)

    def draw(self, random: np.random.Generator) -> int:
        return self.trials

    def __str__(self) -> str:
        return f"all {self.trials} trials, composed"


@dataclass(frozen=True)
class NegativeBinomial:
    """K >= 1 with P(K = k) ∝ (1-g)^k·Γ(k+eta)/k!, and E[K] = mean."""

    mean: float
    eta: float = 0.0  # 0: logarithmic, 1: geometric

    @property
    def g(self) -> float:
        """The parameter that gives this mean."""
        return _bisected(lambda g: -_mean(g, self.eta), -self.mean, 1e-12, 1 - 1e-12)

    def epsilon(self, mu: float, delta: float) -> float:
        b = _ORDERS
        least = np.min((1 - 1 / b) * b * mu**2 / 2 + math.log(1 / self.g) / b)
        return _epsilon(_ORDERS * mu**2 / 2 + (1 + self.eta) * least + math.log(self.mean) / (_ORDERS - 1), delta)

    def draw(self, random: np.random.Generator) -> int:
        """By inversion: P(K = k+1)/P(K = k) = (1-g)·(k + eta)/(k + 1)."""
        g, left, k = self.g, random.random(), 1
        part = _first(g, self.eta)
        while left > part and k < 10**7:
            left -= part
            part *= (1 - g) * (k + self.eta) / (k + 1)
            k += 1
        return k

    def __str__(self) -> str:
        law = "logarithmic" if self.eta == 0 else f"negative binomial, eta {self.eta:g}"
        return f"a random number of trials ({law}), {self.mean:g} in the mean"


@dataclass(frozen=True)
class Poisson:
    """K may be 0."""

    mean: float

    def epsilon(self, mu: float, delta: float) -> float:
        return _epsilon(self.renyi(mu), delta)

    def renyi(self, mu: float) -> np.ndarray:
        """Divergences of the best of K, of all orders."""
        ties = np.array([delta_of(mu, math.log(a / (a - 1))) for a in _ORDERS])
        some = (_ORDERS - 1) * (_ORDERS * mu**2 / 2 + self.mean * ties) + math.log(self.mean)
        return np.logaddexp(some, -self.mean) / (_ORDERS - 1)

    def draw(self, random: np.random.Generator) -> int:
        return int(random.poisson(self.mean))

    def __str__(self) -> str:
        return f"a random number of trials (Poisson), {self.mean:g} in the mean"


def _mean(g: float, eta: float) -> float:
    if eta == 0:
        return (1 / g - 1) / math.log(1 / g)
    return eta * (1 - g) / (g * -math.expm1(eta * math.log(g)))


def _first(g: float, eta: float) -> float:
    """P(K = 1) = f'(0) = E[K]·g^(eta+1)."""
    return _mean(g, eta) * g ** (eta + 1)


def _epsilon(renyi: np.ndarray, delta: float) -> float:
    """The least epsilon that these divergences, of all orders, allow at delta."""
    a = _ORDERS
    return max(0.0, float(np.min(renyi + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1))))


def _bisected(rising: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The largest x found with rising(x) <= wanted."""
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rising(middle) <= wanted else (low, middle)
    return low


def ways(trials: int) -> list[Way]:
    """How a search of so many settings may be done: all of them, or as many in the mean."""
    expect_whole("trials", trials, 1)
    drawn: list[Way] = [NegativeBinomial(float(trials))] if trials > 1 else []
    return [EveryTrial(trials), *drawn, *([Poisson(float(trials))] if trials >= SURE else [])]


def mu_of_trials(way: Way, budget: Budget) -> float:
    """What each trial may cost so that the best of them is within the budget."""
    return _bisected(lambda mu: way.epsilon(mu, budget.delta), budget.epsilon, 1e-9, 1e4)


def cheapest(budget: Budget, trials: int, among: Sequence[Way] | None = None) -> tuple[Way, float]:
    """The way that leaves each trial most, and that mu."""
    if not budget.private:
        raise InputError("a private search needs a budget; without one there is nothing to pay: plain tune")
    found = [(mu_of_trials(way, budget), way) for way in among or ways(trials)]
    mu, way = max(found, key=lambda pair: pair[0])
    return way, mu
