"""Maps by released moments where noise has eaten of what they should tell."""

import numpy as np
import pytest

from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.preparation import RADIUS, ColumnScales, Whitened

pytestmark = pytest.mark.optimised


class Listening:
    """A door that keeps what it is asked to sum."""

    size = 1.0

    def sum(self, fn, *, clip, share, label):
        self.asked = fn, clip, share
        return {"first": 0.0, "second": 0.0}


def test_the_first_two_powers_are_summed_in_units_of_the_radius():
    """|x| <= r gives at most 1 and 1: sqrt(2) together, which is the clip."""
    how, door = FeatureMoments(share=0.3, radius=4.0), Listening()
    how.client(door, 4)
    fn, clip, share = door.asked
    given = fn(np.array([2.0, -4.0, 0.0, 1.0]), 0)
    assert given["first"] == pytest.approx([0.5, -1.0, 0.0, 0.25])
    assert given["second"] == pytest.approx([0.25, 1.0, 0.0, 0.0625])
    assert (clip, share) == (pytest.approx(2**0.5), 0.3)


def test_a_column_without_spread_is_not_blown_up():
    """By noise its variance may come out as nothing, or below: a twentieth of the columns' mean is divided by then."""
    how = FeatureMoments(radius=0.1)
    second = np.array([1.0, 1.0, 1e-9, -0.3])
    scaled = how.fitted({"first": np.zeros(4), "second": second}, 0.0)(np.ones((1, 4), np.float32))[0]
    variance = 0.01 * second
    assert scaled[:2] == pytest.approx(1 / np.sqrt(variance[:2]), rel=1e-6)
    assert scaled[2:] == pytest.approx(1 / np.sqrt(0.05 * np.mean(variance)), rel=1e-6)


def test_the_noise_of_the_mean_is_taken_off_the_spread_that_damping_is_in_units_of():
    """Of a second moment's noise the mean has 2/sqrt(2) of its std: 1 - |m|² is for the mean as it was without it."""
    random, std, damping, features = np.random.default_rng(4), 0.04, 0.3, 20
    x = random.normal(size=(500, features)) + 1.0
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    mean = x.mean(axis=0)
    aside = np.linalg.qr(np.stack([mean, random.normal(size=features)], axis=1))[0][:, 1]
    noisy = mean + aside * np.sqrt(features * 2.0) * std
    moment = np.full((features + 1, features + 1), 0.25)
    moment[:-1, :-1], moment[-1, :-1], moment[:-1, -1] = x.T @ x / len(x), noisy / 2, noisy / 2
    values, vectors = np.linalg.eigh(moment[:-1, :-1] - np.outer(noisy, noisy))
    values, trace = np.maximum(values, 0.0), 1 - mean @ mean
    root = vectors / np.sqrt(values + damping * trace) @ vectors.T
    near = noisy + 0.01 * random.normal(size=(9, features))  # too near to be cut at the cap
    wanted = RADIUS * (near - noisy) @ root / np.sqrt(np.sum(values / (values + damping * trace)))
    found = Whitened(0.1, damping).fitted({"second": moment}, std)(near)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_differ_by_noise_and_little_else_share_one_unit(seed: int):
    """Two kinds, 4.8 bits apart: a spread of 2.4, below MIXED. With the noise it comes out above, which is no unit."""
    random, std, columns = np.random.default_rng(seed), 0.08, 200
    sizes = np.where(np.arange(columns) % 2, 0.2, -0.2)
    exact = {"size": sizes, "there": np.full(columns, 0.5), "largest": np.array(0.1)}
    released = {k: v + std * random.normal(size=v.shape) for k, v in exact.items()}
    scaled = ColumnScales(0.1).fitted(released, std)(np.ones((1, columns), np.float32))
    assert np.ptp(scaled) == 0
    far = {**exact, "size": 4 * sizes}  # 19 bits apart
    assert np.ptp(np.log2(ColumnScales(0.1).fitted(far, std)(np.ones((1, columns), np.float32)))) > 10
