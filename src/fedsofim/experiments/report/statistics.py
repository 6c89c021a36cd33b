"""Paired tests between classifiers, corrections for many of them, and intervals over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

SMALL = 25  # below this many disagreements the chi-squared law is not trusted, and the exact test is used


@dataclass(frozen=True)
class McNemar:
    """n10: only the first was right; n01: only the second. `direction` names who is better, or nobody."""

    n10: int
    n01: int
    chi2: float
    p: float
    exact: bool

    def direction(self, level: float = 0.05) -> str:
        """'first', 'second' or 'none' at a level."""
        if not self.p < level or self.n10 == self.n01:
            return "none"
        return "first" if self.n10 > self.n01 else "second"


def mcnemar(n10: int, n01: int, exact_below: int = SMALL) -> McNemar:
    """McNemar's test with continuity correction; exact binomial where few records tell the two apart.

    >>> test = mcnemar(529, 700)
    >>> round(test.chi2, 3), test.direction()
    (23.515, 'second')
    >>> mcnemar(1, 9).exact
    True
    """
    n = n10 + n01
    chi2 = (max(abs(n10 - n01) - 1, 0)) ** 2 / n if n else 0.0
    if n < exact_below:
        p = float(stats.binomtest(n10, n, 0.5).pvalue) if n else 1.0
        return McNemar(n10, n01, chi2, p, True)
    return McNemar(n10, n01, chi2, float(stats.chi2.sf(chi2, 1)), False)


def paired(first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> McNemar:
    """The test on two lists of predictions for the same records.

    >>> paired(np.array([0, 1, 1]), np.array([1, 1, 1]), np.array([1, 1, 1])).n01
    1
    """
    a, b = first == labels, second == labels
    return mcnemar(int(np.sum(a & ~b)), int(np.sum(~a & b)))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: rejecting those below a level keeps the family's error at that level.

    >>> [round(v, 6) for v in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    out, running = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        out[i] = running
    return out


def paired_t(gaps: Sequence[float]) -> float:
    """p of the t-test that the mean of paired differences is 0; 1 from a single one, or where one is not finite.

    >>> round(paired_t([1.0, 1.1, 0.9]), 4), paired_t([2.0]), paired_t([1.0, 1.0])
    (0.0033, 1.0, 0.0)
    """
    if len(gaps) < 2 or not np.isfinite(gaps).all():
        return 1.0
    if np.ptp(gaps) == 0:  # equal differences: certain, or none at all
        return 1.0 if gaps[0] == 0 else 0.0
    found: Any = stats.ttest_1samp(gaps, 0.0)
    return float(found.pvalue)


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Student's interval for the mean over seeds; None from a single one.

    >>> low, high = interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    n = len(values)
    if n < 2:
        return None
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * std / math.sqrt(n)
    return mean - half, mean + half
