"""Clipped sums in C++: equal to the definition in doubles, and bit-equal to themselves."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsofim import native
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.clipped_sums import fused as is_fused
from fedsofim.core.queries import PerRecord, SoftmaxGradient
from fedsofim.core.records import Records
from fedsofim.native.sums import fits, fused_sums
from softmax_sums import in_doubles, needs_compiler, problem

pytestmark = pytest.mark.optimised

QUERY = SoftmaxGradient()


def fused(theta, records, clients=1, clip=1.0):
    """Each client's sum: at one theta (p+1, C) or at one for each client."""
    hi, lo = fused_sums(theta, *records, one_each=theta.ndim == 3, clients=clients, clip=clip)
    return hi + lo


def sums(theta, records, clients=1, clip=1.0):
    return jax.jit(partial(fused, clients=clients, clip=clip))(theta, records)


SHAPES = {
    "one record": ((1,), 1, 2),
    "no lane is full": ((3, 9), 5, 3),
    "features and classes of whole lanes": ((300, 17, 640), 64, 10),
    "neither": ((70, 1, 5, 333), 33, 13),
    "one class": ((40,), 16, 1),
    "more classes than registers": ((90, 200), 20, 100),
    "a tile of sixteen records": ((100, 30), 700, 4),
    "many clients": ((7,) * 200, 6, 3),
    "many chunks": ((9000, 4000), 8, 5),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("clip", [0.5, 1e6, np.inf])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_the_definitions(shape, clip):
    sizes, features, classes = SHAPES[shape]
    records, thetas = problem(sizes, features, classes)
    for theta in (thetas[0], thetas):  # one for all, one each
        wanted = in_doubles(theta, records, len(sizes), clip)
        found = np.asarray(sums(theta, records, len(sizes), clip), float)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6 * np.abs(wanted).max() + 1e-12)


@pytest.mark.slow
@needs_compiler
def test_xla_gives_the_same(monkeypatch):
    records, thetas = problem((300, 17, 640), 64, 10)
    site = SimpleNamespace(query=QUERY, clip=2.0)
    for theta, batched in ((thetas[0], [False]), (thetas, [True])):
        ours = client_sums(site.query, [theta], batched, records, 3, site.clip)[0].hi  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setenv(native.SWITCH, "0")
            plain = client_sums(site.query, [theta], batched, records, 3, site.clip)[0].hi  # type: ignore[arg-type]
        np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-4)
        assert not np.array_equal(ours, plain)  # or the switch does nothing


@pytest.mark.slow
@needs_compiler
def test_equal_inputs_give_equal_bits():
    """Whichever thread takes which chunk."""
    records, thetas = problem((5000, 700, 9000), 20, 7)
    first = np.asarray(sums(thetas, records, 3))
    for _ in range(30):
        np.testing.assert_array_equal(np.asarray(sums(thetas, records, 3)), first)


@needs_compiler
def test_a_client_without_records_has_a_sum_of_zero():
    records, thetas = problem((30, 40))
    moved = records._replace(owner=3 * records.owner)  # clients 1 and 2 of four hold nothing
    found = np.asarray(sums(thetas[0], moved, 4))
    assert not found[1].any() and not found[2].any() and found[0].any() and found[3].any()


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("each", [False, True])
def test_many_thetas_at_once_are_each_alone(each):
    records, thetas = problem((50, 400), 6, 4)
    many = jnp.stack([s * (thetas if each else thetas[0]) for s in (0.0, 0.5, 1.0, 2.0, 3.0)])
    together = jax.jit(jax.vmap(lambda t: fused(t, records, 2)))(many)
    np.testing.assert_array_equal(together, jnp.stack([sums(t, records, 2) for t in many]))
    program = str(jax.make_jaxpr(jax.vmap(lambda t: fused(t, records, 2)))(many))
    assert program.count("ffi_call[") == 1 and "scan" not in program  # one call, not five


@pytest.mark.slow
@needs_compiler
def test_more_numbers_than_fit_a_slice_go_in_several():
    records, thetas = problem((60,), 100, 50)  # 5,050 numbers a theta, 12 of them to a slice
    many = jnp.stack([thetas[0] * s for s in range(30)])
    together = jax.vmap(lambda t: fused(t, records))(many)
    np.testing.assert_array_equal(together, jnp.stack([sums(t, records) for t in many]))


@pytest.mark.slow
@needs_compiler
def test_records_that_differ_by_setting():
    """Sampling in a sweep: every setting draws its own records."""
    records, thetas = problem((50, 40))
    weights = jnp.stack([records.weight * s for s in (0.0, 0.5, 1.0)])
    found = jax.vmap(lambda w: fused(thetas, records._replace(weight=w), 2))(weights)
    alone = [sums(thetas, records._replace(weight=w), 2) for w in weights]
    np.testing.assert_array_equal(found, jnp.stack(alone))


@pytest.mark.slow
@needs_compiler
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), clip=st.sampled_from([0.1, 1.0, 10.0]))
def test_replacing_one_record_moves_the_sum_by_at_most_twice_the_clip(seed, clip):
    records, thetas = problem((40,), 6, 3, seed, scale=20.0)
    ones = records._replace(weight=jnp.ones_like(records.weight))
    other = ones._replace(x=ones.x.at[0, 0].set(-ones.x[0, 0]), y=ones.y.at[0, 0].set((ones.y[0, 0] + 1) % 3))
    moved = np.asarray(sums(thetas[0], ones, clip=clip) - sums(thetas[0], other, clip=clip), float)
    assert np.linalg.norm(moved) <= 2 * clip * (1 + 1e-4)  # sums of floats round


@pytest.mark.slow
@needs_compiler
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 30.0, 1e4]))
def test_one_record_adds_a_vector_within_the_clip(seed, scale):
    """What the guarantee rests on, for flat and for saturated softmaxes alike."""
    records, thetas = problem((1,), 9, 4, seed, scale)
    ones = records._replace(weight=jnp.ones_like(records.weight))
    assert np.linalg.norm(np.asarray(sums(thetas[0], ones, clip=0.7), float)) <= 0.7 * (1 + 1e-6)


@needs_compiler
@pytest.mark.parametrize("huge", [1e25, 3e38])
def test_a_record_whose_logits_or_norm_overflow_says_nothing(huge):
    records, thetas = problem((5000,), 16, 5)
    bad = records._replace(x=records.x.at[0, 7].set(huge).at[1, 3, 0].set(-huge))
    without = records._replace(weight=records.weight.at[0, 7].set(0.0).at[1, 3].set(0.0))
    found = np.asarray(sums(thetas[0], bad))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, sums(thetas[0], without), atol=1e-3)


@needs_compiler
@pytest.mark.parametrize("value", [jnp.inf, -jnp.inf, jnp.nan])
def test_a_theta_that_overflowed_gives_no_numbers_that_are_not(value):
    records, thetas = problem((50,))
    assert bool(jnp.all(jnp.isfinite(sums(thetas[0].at[0, 0].set(value), records))))


@pytest.mark.slow
@needs_compiler
def test_padding_says_nothing_whatever_it_holds():
    records, thetas = problem((1000,))
    keep = records._replace(weight=records.weight.at[:, 5:].set(0.0))
    zeros = keep._replace(x=keep.x.at[:, 5:].set(0.0), y=keep.y.at[:, 5:].set(0))
    np.testing.assert_array_equal(sums(thetas[0], keep), sums(thetas[0], zeros))


@needs_compiler
@pytest.mark.parametrize("owner", [[1, 0], [0, 2], [-1, 0]])
def test_owners_out_of_order_or_range_are_an_error_not_a_crash(owner):
    x = jnp.zeros((2, 4, 3), jnp.float32)
    records = Records(x, jnp.zeros((2, 4), jnp.int32), jnp.ones((2, 4), jnp.float32), jnp.array(owner, jnp.int32))
    with pytest.raises(Exception, match="do not fit"):
        jax.block_until_ready(sums(jnp.zeros((4, 2), jnp.float32), records, 2))


def test_only_the_head_in_single_precision_is_fused():
    records, thetas = problem((10,))
    theta = thetas[0]
    other, _, _ = PerRecord.trace(lambda x, y: x, records.x[0, 0], records.y[0, 0])
    wide = records._replace(x=records.x.astype(jnp.float64))
    assert is_fused(QUERY, [theta], records) == fits(theta, records.x, records.weight) == (not native.why_not())
    assert not is_fused(QUERY, [theta.astype(jnp.float64)], records)
    assert not is_fused(QUERY, [theta], wide) and not fits(theta, wide.x, wide.weight)
    assert not is_fused(other, [theta], records)
