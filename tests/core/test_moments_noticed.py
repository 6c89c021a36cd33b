"""Standardising by released moments where noise has eaten the spread of a column."""

import numpy as np
import pytest

from fedsofim.core.feature_moments import FeatureMoments


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
