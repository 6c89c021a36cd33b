"""Releases on Poisson-sampled records: their epsilon, never below the truth, in bounded effort.

Two upper bounds, of which the smaller counts:

* **As if all records were read.** What is drawn which records take part is a mixture over the draws, of which each
  alone is at most as revealing as a release on all records (it is one, on fewer); P - e^epsilon·Q of mixtures is at
  most the mixture of P - e^epsilon·Q. So sampling never costs more, and the exact Gaussian price (gaussian.py) bounds
  it.
* **By privacy loss distributions** (dp-accounting), which see the gain. Losses are put on a grid, rounded so that
  delta(epsilon) only grows: any grid is a bound, a finer one a closer one. Grids are refined by 4 until that gains
  next to nothing.

**Of which pair.** Replacing v by w, |v|, |w| <= 1, tells P = (1-q)·N(0) + q·N(v) from Q = (1-q)·N(0) + q·N(w); what is
priced is v = 1, w = -1 on a line. That is the worst. For a = e^epsilon >= 1, P - a·Q = q·(N(v) - a·N(w) - b·N(0)) with
b = (a-1)·(1-q)/q, so delta is q·E(1 - a·e^s - b·e^t)₊ under N(v), s and t Gaussian with variances |w-v|² and |v|²,
means minus half of them and covariance (w-v)·(-v). The mixed derivative of (1 - a·e^s - b·e^t)₊ in s and t is nowhere
negative, so delta grows with the covariance (Slepian): w, 0 and v are on a line, in this order. And there the sign
changes once, so delta grows with |w-v| and with |v|. It is the same pair the other way round, so for every a.

The distributions are convolved by FFT, whose rounding (about 1e-16 of the whole mass in each of up to a million
points, of either sign) no grid rounds up. So delta is asked for less `FFT_ROUNDING`, and where that leaves nothing
only the first bound is used.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from fedsofim.core.gaussian import epsilon_of

FFT_ROUNDING = 1e-12  # of delta, given away
GRIDS = 12  # tried at most for one epsilon
DESCENTS = 8  # multipliers tried at most to find one that is too small
TRIALS = 16  # and then to come close to the least that is not
_COARSE = 2**10  # points of the first grid, about
_FINE = 2**17  # points of the last one, at most, from 0 up
_GAIN = 5e-3  # less than this is not worth four times the points; what is left to gain is then a tenth of it
_CLOSE = 1e-4  # of the multiplier
_NOTHING = 1e-9  # of the budget: less is not told apart
_LARGEST_MU = 100.0  # of one release: its losses reach 5000, where sampling gains nothing that anyone would want


class Sampled(NamedTuple):
    """`times` releases, each mu-GDP if it read all records, on records that each take part with probability `rate`."""

    mu: float
    rate: float
    times: int


def epsilon_of_sampled(mu: float, sampled: Sequence[Sampled], delta: float) -> float:
    """Epsilon of releases on all records, mu-GDP together, and of these sampled ones."""
    together = math.sqrt(mu * mu + sum(s.times * s.mu * s.mu for s in sampled))
    best = epsilon_of(together, delta)
    if delta < 2 * FFT_ROUNDING or best == 0 or max(s.mu for s in sampled) > _LARGEST_MU:
        return best
    top = epsilon_of(together, FFT_ROUNDING)
    mu, sampled = _without_specks(mu, sampled, top / _FINE)
    if not sampled:
        return best
    largest = max(s.mu for s in sampled)
    step, last = min(top / _COARSE, largest), math.inf
    for _ in range(GRIDS):
        found, reach = pld_epsilon(mu, sampled, delta - FFT_ROUNDING, step)
        best = min(best, found)
        close = found == 0 or last - found < _GAIN * last
        step, last = step / 4, found
        if close or max(reach, 2 * largest * (8 + largest / 2)) > _FINE * step:
            break
    return best


def _without_specks(mu: float, sampled: Sequence[Sampled], least: float) -> tuple[float, list[Sampled]]:
    """Releases smaller than the finest grid's step, priced by the first bound: a grid for them would have no end."""
    kept = [s for s in sampled if s.mu >= least]
    return math.sqrt(mu * mu + sum(s.times * s.mu * s.mu for s in sampled if s.mu < least)), kept


def pld_epsilon(mu: float, sampled: Sequence[Sampled], delta: float, step: float) -> tuple[float, float]:
    """Epsilon by privacy loss distributions on one grid, and how far up losses reach."""
    # dp-accounting is slow to import and needed only where records are sampled
    import dp_accounting as dpa
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE, step)
    if mu > 0:
        accountant.compose(dpa.GaussianDpEvent(2 / mu))  # its replace-one Gaussian moves by 2
    for s in sampled:
        accountant.compose(dpa.PoissonSampledDpEvent(s.rate, dpa.GaussianDpEvent(2 / s.mu)), s.times)
    with np.errstate(over="ignore"):  # a quotient of masses too large for a double means "further up", and is taken so
        return float(accountant.get_epsilon(delta)), float(accountant.get_epsilon(FFT_ROUNDING))


def smallest_multiplier(epsilon: Callable[[float], float], budget: float, full: float, rate: float) -> float:
    """The least multiplier at which `epsilon` is within the budget, or up to a percent more, in bounded effort.

    `full` is one that is within it, as if all records were read; sampling at `rate` can hardly save more than that
    factor. The answer was itself tried, and is within the budget.
    """
    from scipy.optimize import brentq  # as slow to import as dp-accounting, which it comes with

    @cache
    def excess(u: float) -> float:
        return math.log(max(epsilon(full * math.exp(u)) / budget, _NOTHING))

    low, high = math.log(rate) - 1, 0.0
    for _ in range(DESCENTS):
        if excess(low) > 0:
            break
        low, high = low - 2, low
    else:
        return full * math.exp(high)  # records take part so rarely that even this little noise is enough
    root = brentq(excess, low, high, xtol=_CLOSE, maxiter=TRIALS, disp=False)
    for more in (1, 4, 16, 64):
        if (u := min(root + more * _CLOSE, 0.0)) and excess(u) <= 0:  # type: ignore[operator]
            return full * math.exp(u)
    return full * math.exp(high)
