"""The price of sampled releases lies between the bounds of an accountant of the tests' own (loss_curves.py).

All combinations: `python scripts/sampled_prices.py`.
"""

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedsofim.core.accounting import Charge, calibrate, spent
from fedsofim.core.budget import Budget
from loss_curves import deltas

DELTA = 1e-5
HANDFUL = [(0.001, 70, 4.0), (0.01, 5000, 4.0), (0.05, 10, 0.5), (0.1, 70, 4.0), (0.5, 500, 0.5), (0.9, 10, 4.0)]


@pytest.mark.parametrize(("mu", "times"), [(0.5, 4), (0.1, 100)])
def test_the_bounds_hold_what_is_known_exactly(mu: float, times: int):
    """Of releases that read all but one of 1e12 records: the Gaussian's closed form."""
    whole, epsilons = mu * math.sqrt(times), (0.2, 1.0, 2.0)
    for e, found in zip(epsilons, deltas(mu, 1 - 1e-12, times, epsilons), strict=True):
        exact = norm.cdf(whole / 2 - e / whole) - math.exp(e) * norm.cdf(-whole / 2 - e / whole)
        assert found.low <= exact <= found.high <= found.low * 1.001


def test_the_bounds_hold_one_release_that_can_be_written_down():
    """delta = (1-q)·(1-a)·P(Z > x) + q·(P(Z > x-d) - a·P(Z > x+d)) at the x whose loss is epsilon, found by halving."""
    q, d, e = 0.2, 1.3, 0.7

    def excess(x: float) -> float:
        p, r = ((1 - q) * norm.pdf(x) + q * norm.pdf(x - m) for m in (d, -d))
        return math.log(p / r) - e

    x = float(brentq(excess, -10, 10, xtol=1e-14))  # type: ignore[arg-type]
    exact = (1 - q) * (1 - math.exp(e)) * norm.sf(x) + q * (norm.sf(x - d) - math.exp(e) * norm.sf(x + d))
    (found,) = deltas(2 * d, q, 1, [e])
    assert found.low <= exact <= found.high <= found.low * 1.001


@pytest.mark.parametrize(("rate", "times", "epsilon"), HANDFUL)
def test_sampled_releases_cost_what_is_said(rate: float, times: int, epsilon: float):
    """Not more, by a part in a thousand of delta; and an epsilon one percent smaller would be refuted."""
    site = Charge(site=0, label="gradient", clip=1.0, ratio=2.0, releases=times, weight=times, sample=rate)
    multipliers = calibrate([site], Budget(epsilon, DELTA))
    claimed = spent([site], multipliers, DELTA)
    found, less = deltas(2 / multipliers[0], rate, times, [claimed, 0.99 * claimed])
    assert found.low <= DELTA and found.high <= 1.001 * DELTA
    assert less.low > DELTA
