"""The two worlds that a release on sampled records is priced for: no other two are told apart better."""

import math

import numpy as np
import pytest
from scipy.stats import norm

Z = np.linspace(-9, 9, 451)
CELL = (Z[1] - Z[0]) ** 2


def density(rate: float, at: np.ndarray, std: float) -> np.ndarray:
    """Of a sum of two numbers in which a record's vector is with this probability, on a grid."""
    far = [np.outer(*(norm.pdf(Z, c, std) for c in centre)) for centre in (np.zeros(2), at)]
    return (1 - rate) * far[0] + rate * far[1]


def told_apart(rate: float, v: np.ndarray, w: np.ndarray, epsilon: float, std: float = 0.8) -> float:
    p, q = density(rate, v, std), density(rate, w, std)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) * CELL


@pytest.mark.parametrize("rate", [0.05, 0.5])
@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_no_other_pair_is_told_apart_better(rate: float, epsilon: float):
    """Vectors of length 1 and less, in all directions, against one and its opposite; either way round is the same."""
    one = np.array([1.0, 0.0])
    worst = told_apart(rate, one, -one, epsilon)
    assert worst == pytest.approx(told_apart(rate, -one, one, epsilon), rel=1e-9)
    angles = np.linspace(0, np.pi, 7)
    others = [length * np.array([math.cos(a), math.sin(a)]) for a in angles for length in (0.0, 0.6, 1.0)]
    found = [told_apart(rate, v, w, epsilon) for v in (one, 0.6 * one) for w in others]
    assert max(found) <= worst * (1 + 1e-9) and sorted(found)[-2] < worst
