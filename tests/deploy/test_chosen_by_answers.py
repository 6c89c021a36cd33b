"""A server that chooses what it asks next by what it was answered: the cap holds, since a ledger counts what it counts.

One Gaussian release, then one of two: another Gaussian, or a large one on few sampled records. Both ways cost the same
epsilon, if sampling is believed. What is left to tell after a loss l is delta(epsilon - l) of what is asked next, so
who may choose has the larger of the two, after every answer.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.sampled import Sampled, epsilon_of_sampled
from fedsofim.deploy.lines import Line, epsilon_of_lines

DELTA, FIRST, LARGE, RATE = 1e-5, 0.8, 8.0, 0.002
Curve = Callable[[np.ndarray], np.ndarray]
GAUSSIAN = Line(label="", clip=1.0, ratio=2.0, multiplier=2 / FIRST, releases=1, weight=1.0, sample=1.0, coordinates=1)
DRAWN = replace(GAUSSIAN, multiplier=2 / LARGE, sample=RATE)


def gaussian(mu: float) -> Curve:
    return lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu)


def sampled(mu: float, rate: float) -> Curve:
    """Of (1-q)·N(0) + q·N(±mu/2), integrated."""
    z, e = np.linspace(-45, 45, 20_001), np.linspace(-15, 25, 401)
    p, q = ((1 - rate) * norm.pdf(z) + rate * norm.pdf(z, sign * mu / 2) for sign in (1, -1))
    told = [float(np.maximum(p - math.exp(x) * q, 0).sum()) * (z[1] - z[0]) for x in e]
    return lambda x: np.interp(x, e, told)


def after_the_first(then: Curve, epsilon: float) -> float:
    """delta of a Gaussian release of FIRST and of what is asked then."""
    y = np.linspace(-10, 11, 2001)
    return float(np.sum(norm.pdf(y, FIRST) * then(epsilon - (FIRST * y - FIRST**2 / 2)))) * (y[1] - y[0])


def test_who_may_choose_has_more_than_either_if_sampling_is_believed():
    believed = epsilon_of_sampled(FIRST, [Sampled(LARGE, RATE, 1)], DELTA)
    alike = float(brentq(lambda mu: epsilon_of(math.hypot(FIRST, mu), DELTA) - believed, 0.1, 10))  # type: ignore[arg-type]
    one, other = sampled(LARGE, RATE), gaussian(alike)
    for then in (one, other):
        assert after_the_first(then, believed) < 1.001 * DELTA
    assert after_the_first(lambda e: np.maximum(one(e), other(e)), believed) > 1.3 * DELTA


def test_what_a_ledger_counts_no_choice_exceeds():
    """As if all records had been read: that curve is above the sampled one everywhere, so there is no choice."""
    counted = epsilon_of_lines([GAUSSIAN, DRAWN], DELTA)
    assert counted == epsilon_of_lines([GAUSSIAN, replace(DRAWN, sample=1.0)], DELTA)
    one, other = sampled(LARGE, RATE), gaussian(LARGE)
    assert after_the_first(lambda e: np.maximum(one(e), other(e)), counted) < 1.001 * DELTA
