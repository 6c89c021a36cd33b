"""The attacker's statistic: as good as the best for noise of any covariance, which it has to find out for itself."""

import numpy as np
import pytest

from fedsofim.attack.bounds import estimated
from fedsofim.attack.scoring import Seen, scored


def seen(distances: np.ndarray, factor: np.ndarray, pairs: int = 4000) -> Seen:
    """Trials with noise factor @ z, the same in both worlds of a pair."""
    noise = np.random.default_rng(0).normal(size=(pairs, factor.shape[1])) @ factor.T
    m = np.broadcast_to(distances, noise.shape)
    return Seen(noise + m / 2, noise - m / 2, m, m)


def found(distances: np.ndarray, factor: np.ndarray) -> float:
    _, test = scored(seen(distances, factor), 2000)
    return estimated(test.plus, test.minus, 0.99).mu


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_mu_composes_over_rounds_whatever_the_units(scale: float):
    distances = scale * np.array([0.5, 0.5, 0.5, 0.5])
    assert found(distances, scale * np.eye(4)) == pytest.approx(1.0, rel=0.06)


def test_unequal_rounds_are_weighed_by_their_noise():
    assert found(np.array([1.0, 1.0]), np.diag([1.0, 100.0])) == pytest.approx(1.0, rel=0.06)


def test_correlated_noise_gives_itself_away():
    factor = np.array([[1.0, 0.0], [1.0, 0.01]])  # the second release repeats the first one's noise
    assert found(np.array([1.0, 0.9]), factor) == pytest.approx(10.0, rel=0.15)


def test_noise_that_only_repeats_protects_as_before():
    factor = np.array([[1.0], [1.0]])  # the same release twice tells nothing new
    assert found(np.array([1.0, 1.0]), factor) == pytest.approx(1.0, rel=0.06)


def test_a_channel_in_which_nothing_happens_does_no_harm():
    assert found(np.array([1.0, 0.0]), np.diag([1.0, 0.0])) == pytest.approx(1.0, rel=0.06)
