"""The fused pass on drawn records: it computes those only, and who else was drawn changes no bit of what one says."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.clipping import guarded
from fedsofim.native.sums import GROUP, fused_sums, reach_of
from softmax_sums import in_doubles, needs_compiler, problem

pytestmark = pytest.mark.optimised


def sums(theta, records, rate, clients=1, clip=1.0):
    call = partial(fused_sums, one_each=theta.ndim == 3, clients=clients, clip=clip, rate=rate)
    return [np.asarray(a) for a in jax.jit(call)(theta, *records)]


def weighed(records, drawn):
    return records._replace(weight=jnp.asarray(np.where(drawn, records.weight, 0), jnp.float32))


@needs_compiler
@pytest.mark.parametrize("sizes, features", [((700,), 16), ((333, 1, 70), 33), ((100, 30), 300)])
@pytest.mark.parametrize("rate, really", [(0.3, 0.3), (0.02, 0.02), (0.1, 0.9)])  # the last: more than packs hold
def test_drawn_records_are_summed_as_defined(sizes, features, rate, really):
    records, thetas = problem(sizes, features)
    drawn = np.random.default_rng(1).random(records.weight.shape) < really
    hi, lo = sums(thetas, weighed(records, drawn), rate, clients=len(sizes))
    expected = in_doubles(thetas, weighed(records, drawn), len(sizes), 1.0)
    np.testing.assert_allclose(hi + lo, expected, atol=1e-5 * np.abs(expected).max())


@needs_compiler
def test_what_a_record_says_is_the_same_bits_whoever_else_was_drawn():
    """Each record has a feature of its own, so each row of the sum is one record's."""
    n, random = 300, np.random.default_rng(0)
    records, _ = problem((n,), features=n)
    x = np.zeros(records.x.shape, np.float32)
    flat, there = x.reshape(-1, n), np.asarray(records.weight).reshape(-1) > 0
    flat[np.flatnonzero(there)] = np.diag(random.normal(size=n).astype(np.float32) * 3)
    records = records._replace(x=jnp.asarray(x), weight=jnp.asarray(there.reshape(records.weight.shape), jnp.float32))
    theta = jnp.asarray(random.normal(size=(n + 1, 3)), jnp.float32)
    everybody = sums(theta, records, 1.0)[0][0, :-1]
    for rate, seed in ((0.5, 1), (0.2, 2), (0.05, 3)):
        drawn = np.random.default_rng(seed).random(records.weight.shape) < rate
        mine = sums(theta, weighed(records, drawn), rate)[0][0, :-1]
        kept = drawn.reshape(-1)[there]
        assert kept.any() and np.array_equal(mine[kept], everybody[kept]) and not mine[~kept].any()


@needs_compiler
def test_a_draw_changes_the_roundings_of_its_own_span_only():
    """Places of one span use some features, those behind it others: what these add up to stays, to the last bit."""
    rate, random = 0.3, np.random.default_rng(0)
    reach = reach_of(rate)
    x = np.zeros((1, 6 * reach, 16), np.float32)
    x[0, :reach, :8], x[0, reach:, 8:] = random.normal(size=(reach, 8)), random.normal(size=(5 * reach, 8))
    y = jnp.asarray(random.integers(0, 3, (1, 6 * reach)), jnp.int32)
    theta = jnp.asarray(random.normal(size=(17, 3)), jnp.float32)
    drawn = random.random((1, 6 * reach)) < rate

    def behind(first: bool):
        weight = drawn.copy()
        weight[0, 0] = first
        records = (jnp.asarray(x), y, jnp.asarray(weight, jnp.float32), jnp.zeros(1, jnp.int32))
        return [a[0, 8:16] for a in sums(theta, records, rate)]

    with_it, without = behind(True), behind(False)
    assert all(np.array_equal(a, b) for a, b in zip(with_it, without, strict=True))


@needs_compiler
@pytest.mark.parametrize("others", [GROUP - 1, GROUP, GROUP + 1])  # one group, or one for every 64 places
def test_drawing_a_record_moves_a_sum_by_no_more_than_a_clip(others):
    """Records that are long and cancel round most; the guard is there twice where records are drawn."""
    rate, clip, random = 0.02, 1.0, np.random.default_rng(others)
    reach = reach_of(rate)
    x = np.zeros((1, reach, 16), np.float32)
    x[0] = 1e3 * random.normal(size=(reach, 16))
    y = jnp.asarray(random.integers(0, 3, (1, reach)), jnp.int32)
    theta = jnp.asarray(random.normal(size=(17, 3)), jnp.float32)
    places = random.permutation(reach)[: others + 1]

    def total(who):
        weight = np.zeros((1, reach), np.float32)
        weight[0, who] = 1
        records = (jnp.asarray(x), y, jnp.asarray(weight), jnp.zeros(1, jnp.int32))
        hi, lo = sums(theta, records, rate, clip=guarded(guarded(clip)))
        return hi[0].astype(float) + lo[0]

    moved = np.linalg.norm(total(places) - total(places[1:]))
    assert 0.99 * clip < moved <= clip
