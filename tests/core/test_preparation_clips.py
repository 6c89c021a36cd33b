"""No honest record is clipped by the releases of a preparation, and each asks for what it states."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feature_rows import records, sizes_of, unit
from fedsofim.core.preparation import (
    Centred,
    ColumnScales,
    Step,
    UnitNorm,
    Whitened,
    scales_norm,
)
from fedsofim.errors import InputError

SPAN = st.floats(-30.0, 30.0)


# --- no honest record is clipped ----------------------------------------------------------------------------


def raw_records(exponents: list[float], signs: list[int]) -> np.ndarray:
    """A record whose features are ±10^e; a sign of 0 is a feature of 0."""
    x = [s * 10.0**e for s, e in zip(signs, exponents, strict=False)]
    return np.array([x or [0.0]], np.float32)


@settings(max_examples=150, deadline=None)
@given(st.lists(SPAN, min_size=1, max_size=8), st.lists(st.sampled_from([-1, 0, 1]), min_size=8, max_size=8))
@example([0.0], [0] * 8)
@example([-45.0, -44.5, -38.5], [1] * 8)  # subnormals, which a machine may read as 0
@example([30.0, 30.0, 30.0], [1] * 8)
@example([-30.0, 30.0], [1, -1] * 4)
def test_no_records_sizes_are_longer_than_their_clip(exponents: list[float], signs: list[int]):
    x = raw_records(exponents, signs)
    found = sizes_of(x)
    assert all(np.isfinite(v).all() for v in found.values())
    length = np.sqrt(sum(np.sum(v**2) for v in found.values()))
    assert length <= scales_norm(x.shape[1]) * (1 + 1e-6)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(SPAN, min_size=1, max_size=8),
    st.lists(st.sampled_from([-1, 0, 1]), min_size=8, max_size=8),
    st.booleans(),
    st.booleans(),
)
@example([-45.0, -44.5, -38.5], [1] * 8, False, True)
@example([30.0, 30.0, -30.0], [1] * 8, True, True)
def test_unit_records_are_never_longer_than_the_clip_of_what_follows(exponents, signs, constant, lift):
    """Centred clips at 1, Whitened [x; 1/2] at sqrt(5)/2."""
    found = UnitNorm(constant=constant, lift=lift).fitted({}, 0.0)(raw_records(exponents, signs))
    assert np.isfinite(found).all()
    assert np.linalg.norm(found.astype(np.float64)) <= 1 + 1e-6


class Listening:
    """A door that keeps what it is asked to sum."""

    def sum(self, fn, *, clip, share, label):
        self.asked = fn, clip, share
        return {}

    def second_moment(self, fn, *, clip, share, label):
        return self.sum(fn, clip=clip, share=share, label=label)


@pytest.mark.parametrize("step, clip", [(ColumnScales(0.1), np.sqrt(8.5)), (Centred(0.1), 1.0),
                                        (Whitened(0.1, 0.1), np.sqrt(1.25))])  # fmt: skip
def test_each_release_asks_for_the_share_and_the_clip_it_states(step: Step, clip: float):
    door, x = Listening(), jnp.asarray(unit(records(1))[0])
    step.client(door, 6)
    fn, asked, share = door.asked
    assert (asked, share) == (pytest.approx(clip), 0.1)
    given = fn(x, jnp.int32(0))
    if isinstance(step, Centred):
        np.testing.assert_array_equal(given, x)
    if isinstance(step, Whitened):
        np.testing.assert_array_equal(given, np.append(x, np.float32(0.5)))


@pytest.mark.parametrize("share", [0.0, 1.0, -1, "x", np.nan, True])
@pytest.mark.parametrize("step", [ColumnScales, Centred, lambda share: Whitened(share, 0.1)])
def test_a_share_that_is_no_part(step, share):
    with pytest.raises(InputError, match=r"share is .*; expected a part of the budget between 0 and 1"):
        step(share)


@pytest.mark.parametrize("damping", [0.0, -1.0, np.nan, "x"])
def test_a_damping_that_is_none(damping):
    with pytest.raises(InputError, match=r"damping is .*; expected a number above 0"):
        Whitened(0.1, damping)
