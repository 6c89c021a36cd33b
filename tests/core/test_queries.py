"""Clipped sums against the plainest computation, and their sensitivity against replacing one record."""

import math
from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.clipping import clip_factor, guarded
from fedsofim.core.models import softmax_head
from fedsofim.core.queries import RATIO, PerRecord, SecondMoment, SoftmaxGradient, half_of, matrix_of
from fedsofim.core.records import Records

pytestmark = pytest.mark.optimised

HEAD = softmax_head()


@partial(jax.jit, static_argnums=(0, 5))
def totals(query, consts, x, y, weight, clip):
    """The sums of one client with one block of records."""
    records = Records(x[None], y[None], weight[None], jnp.zeros(1, jnp.int32))
    return [p.hi[0] + p.lo[0] for p in client_sums(query, consts, [False] * len(consts), records, 1, clip)]


def plain_sum(loss, theta, x, y, weight, clip):
    """One record after another: gradient, norm, clip, add."""
    total, clip = jnp.zeros_like(theta), guarded(clip)
    for a, b, w in zip(x, y, weight, strict=True):
        g = jax.grad(loss)(theta, a, b)
        norm = jnp.linalg.norm(g)
        total += w * g * min(1.0, float(clip / norm) if norm > 0 else 1.0)
    return total


def block(seed, records=12, features=4, classes=3, scale=1.0):
    random = np.random.default_rng(seed)
    x = jnp.asarray(scale * random.normal(size=(records, features)))
    y = jnp.asarray(random.integers(classes, size=records).astype(np.int32))
    theta = jnp.asarray(random.normal(size=(features + 1, classes)))
    return theta, x, y, jnp.asarray((random.uniform(size=records) > 0.3).astype(float))


@partial(jax.jit, static_argnums=0)
def both_forms(clip, theta, x, y, weight):
    query, consts, _ = PerRecord.trace(lambda a, b: jax.grad(HEAD.loss)(theta, a, b), x[0], y[0])
    return *totals(SoftmaxGradient(), [theta], x, y, weight, clip), *totals(query, consts, x, y, weight, clip)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    clip=st.sampled_from([0.5, math.inf]),  # each pair of clip and size is compiled once
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    records=st.sampled_from([1, 53, 1536]),  # one group or several, even and uneven
)
def test_closed_form_equals_generic_path(seed, clip, scale, records):
    theta, x, y, weight = block(seed, records, scale=scale)
    closed, generic = both_forms(clip, theta, x, y, weight)
    np.testing.assert_allclose(closed, generic, atol=1e-12 * records)


@pytest.mark.slow
def test_both_equal_the_plain_loop():
    theta, x, y, weight = block(0)
    (closed,) = totals(SoftmaxGradient(), [theta], x, y, weight, 0.7)
    np.testing.assert_allclose(closed, plain_sum(HEAD.loss, theta, x, y, weight, 0.7), atol=1e-12)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), clip=st.sampled_from([0.1, 1.0, 10.0]))
def test_replacing_one_record_moves_the_sum_by_at_most_twice_the_clip(seed, clip):
    theta, x, y, weight = block(seed, scale=20.0)
    other_x, other_y = x.at[0].set(-x[0]), y.at[0].set((y[0] + 1) % 3)
    weight = weight.at[0].set(1.0)
    before = totals(SoftmaxGradient(), [theta], x, y, weight, clip)[0]
    after = totals(SoftmaxGradient(), [theta], other_x, other_y, weight, clip)[0]
    assert jnp.linalg.norm(before - after) <= 2 * clip


def test_leaves_are_clipped_jointly():
    record = (jnp.array([3.0, 4.0]), jnp.int32(0))
    query, consts, _ = PerRecord.trace(lambda x, y: {"a": x, "b": 2 * x}, *record)
    a, b = totals(query, consts, record[0][None], record[1][None], jnp.ones(1), 1.0)
    assert float(jnp.sqrt(jnp.sum(a**2) + jnp.sum(b**2))) == pytest.approx(guarded(1.0))
    np.testing.assert_allclose(b, 2 * a)  # one factor for both leaves


def test_zero_gradients_stay_zero():
    query, consts, _ = PerRecord.trace(lambda x, y: 0.0 * x, jnp.ones(3), jnp.int32(0))
    (total,) = totals(query, consts, jnp.ones((5, 3)), jnp.zeros(5, jnp.int32), jnp.ones(5), 1.0)
    assert float(jnp.abs(total).max()) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_record_whose_gradient_is_not_finite_says_nothing(bad):
    theta, x, y, _ = block(3)
    ones = jnp.ones(len(y))
    query, consts, _ = PerRecord.trace(lambda a, b: jax.grad(HEAD.loss)(theta, a, b), x[0], y[0])
    (poisoned,) = totals(query, consts, x.at[2, 1].set(bad), y, ones, 1.0)
    (without,) = totals(query, consts, x, y, ones.at[2].set(0.0), 1.0)
    np.testing.assert_allclose(poisoned, without, atol=1e-12)


def test_closed_form_survives_overflowing_logits():
    """Features are finite (Dataset checks), but a diverged theta is not the records' fault."""
    theta, x, y, weight = block(3)
    (total,) = totals(SoftmaxGradient(), [theta.at[0, 0].set(jnp.inf)], x, y, weight, 1.0)
    assert bool(jnp.all(jnp.isfinite(total)))


@pytest.mark.parametrize("huge", [1e25, 3e38])
def test_a_record_whose_logits_or_norm_overflow_says_nothing(huge):
    """In float32 and at a size where XLA uses its compute library, whose arithmetic on NaN is its own."""
    theta, x, y, weight = (a.astype(jnp.float32) for a in block(3, records=8192, features=16))
    bad = x.at[77].set(huge).at[5000, 0].set(-huge)
    run = jax.jit(lambda x, w: totals(SoftmaxGradient(), [theta], x, y.astype(jnp.int32), w, 1.0)[0])
    without = run(x, weight.at[77].set(0.0).at[5000].set(0.0))
    np.testing.assert_allclose(run(bad, weight.at[77].set(1.0).at[5000].set(1.0)), without, atol=2e-3)


@pytest.mark.slow
def test_padding_says_nothing_whatever_it_holds():
    theta, x, y, weight = block(4, records=1024)
    padding = weight.at[100:].set(0.0)
    (held,) = totals(SoftmaxGradient(), [theta], x, y, padding, 1.0)
    (zeros,) = totals(SoftmaxGradient(), [theta], x.at[100:].set(0.0), y, padding, 1.0)
    np.testing.assert_allclose(held, zeros, atol=1e-12)


@pytest.mark.slow
def test_second_moment_and_its_sensitivity():
    random = np.random.default_rng(0)
    x = jnp.asarray(5 * random.normal(size=(20, 3)))
    y, ones = jnp.zeros(20, jnp.int32), jnp.ones(20)
    vector, consts, _ = PerRecord.trace(lambda a, b: a, x[0], y[0])
    query, clip = SecondMoment(vector), 2.0
    (half,) = totals(query, consts, x, y, ones, clip**2)
    short = x * clip_factor(jnp.linalg.norm(x, axis=1), math.sqrt(guarded(clip**2)))[:, None]
    np.testing.assert_allclose(matrix_of(half), short.T @ short, atol=1e-10)
    for row in range(20):
        (other,) = totals(query, consts, x.at[row].set(jnp.array([-9.0, 7.0, 1.0])), y, ones, clip**2)
        assert jnp.linalg.norm(half - other) <= query.ratio * clip**2
    assert float(jnp.linalg.norm(half)) == pytest.approx(float(jnp.linalg.norm(short.T @ short)))  # isometric


def test_every_query_is_priced_at_the_ratio_that_is_proved_beside_it():
    """What the price reads, RATIO, is what each query's docstring and its own class say; of a vector it is 2."""
    stated: dict = {query: query.ratio for query in RATIO}
    assert stated == RATIO == dict.fromkeys(RATIO, 2.0) | {SecondMoment: math.sqrt(2.0)}


@pytest.mark.slow
def test_half_keeps_the_norm():
    m = jnp.asarray(np.random.default_rng(1).normal(size=(4, 4)))
    m = m + m.T
    assert float(jnp.linalg.norm(half_of(m))) == pytest.approx(float(jnp.linalg.norm(m)))


def test_memory_does_not_grow_with_records_times_parameters():
    """512 records of a 100,000-parameter model: no buffer in the program holds 512 gradients."""
    params = jnp.zeros((100_000,), jnp.float32)
    x, y = jnp.zeros((512, 4), jnp.float32), jnp.zeros(512, jnp.int32)
    query, consts, _ = PerRecord.trace(lambda a, b: params * a[0], x[0], y[0])
    program = jax.make_jaxpr(lambda *c: totals(query, c, x, y, jnp.ones(512, jnp.float32), 1.0))(*consts)
    assert largest_buffer(program.jaxpr) < 4_000_000 < 512 * 100_000


def largest_buffer(jaxpr) -> int:
    sizes = [math.prod(v.aval.shape) for eqn in jaxpr.eqns for v in eqn.outvars]
    for eqn in jaxpr.eqns:
        for param in eqn.params.values():
            inner = getattr(param, "jaxpr", param)
            if hasattr(inner, "eqns"):
                sizes.append(largest_buffer(inner))
    return max(sizes, default=0)
