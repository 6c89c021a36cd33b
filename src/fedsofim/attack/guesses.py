"""What many guesses in one run prove: each of m canaries was "+" or "-" by a fair coin, the attacker guessed r of them.

Guesses in one run are not independent, so counting them as coin flips proves nothing by itself. Two theorems say how
many can be right by luck; in both, the r canaries may be chosen by looking at the scores.

* Steinke, Nasr, Jagielski (2023): under (epsilon, delta)-DP, with W ~ Binomial(r, e^epsilon/(1 + e^epsilon)),
  P[v right] <= P[W >= v] + 2·m·delta·max_i P[v > W >= v - i]/i.
* Mahloujifar, Melis, Chaudhuri (2024), for a whole curve, here the Gaussian one of mu: from q = risk·v/m and
  h = risk·(r - v)/m, for i = v-1 down to 0, h <- max(h, Φ(Φ⁻¹(q) - mu)) and q <- q + i/(r - i)·(change of h). Where
  q + h ends above r/m, v right guesses have a chance below `risk`.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

_LARGEST = 64.0  # of any mu or epsilon that is looked for


@dataclass(frozen=True)
class Guesses:
    """How many canaries there were, how many the attacker guessed, and how many it got right."""

    canaries: int
    made: int
    right: int


def guessed(scores: np.ndarray, coins: np.ndarray, part: float) -> Guesses:
    """Guess the sign of the scores, for the given part of the canaries whose scores are farthest from 0.

    >>> guessed(np.array([3.0, -2.0, 0.1, 0.2]), np.array([1, -1, -1, 1]), part=0.5)
    Guesses(canaries=4, made=2, right=2)
    """
    made = max(1, round(part * len(scores)))
    chosen = np.argsort(-np.abs(scores), kind="stable")[:made]
    return Guesses(len(scores), made, int(np.sum(np.sign(scores[chosen]) == coins[chosen])))


def mu_of_guesses(g: Guesses, risk: float) -> float:
    """Lower bound on mu: every smaller one makes so many right guesses less likely than `risk`."""
    return _largest_refuted(lambda mu: _refutes_curve(g, mu, risk))


def epsilon_of_guesses(g: Guesses, delta: float, risk: float) -> float:
    """Lower bound on epsilon at delta, whatever the shape of the curve."""
    return _largest_refuted(lambda epsilon: chance(g, epsilon, delta) < risk)


def chance(g: Guesses, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are at most, under (epsilon, delta)-DP."""
    from scipy.stats import binom  # here: it takes most of a second to import

    q = 1 / (1 + math.exp(-epsilon))
    lucky = float(binom.sf(g.right - 1, g.made, q))
    back = np.arange(1, g.right + 1)
    just_below = binom.sf(g.right - back - 1, g.made, q) - lucky
    return min(1.0, lucky + 2 * g.canaries * delta * float(np.max(just_below / back, initial=0.0)))


def _refutes_curve(g: Guesses, mu: float, risk: float) -> bool:
    q, h = risk * g.right / g.canaries, risk * (g.made - g.right) / g.canaries
    for i in range(g.right - 1, -1, -1):
        higher = max(h, float(ndtr(ndtri(q) - mu)))
        if higher == h:  # then nothing changes any more
            break
        q, h = min(1.0, q + i / (g.made - i) * (higher - h)), higher
    return q + h > g.made / g.canaries


def _largest_refuted(refuted) -> float:
    """Where an attack stops refuting; 0 where it refutes nothing."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 0.25
    while refuted(high) and high < _LARGEST:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
