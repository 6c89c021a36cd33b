"""One record moves a computed sum by no more than is priced, rounding included: in C++ and in XLA."""

import math
import os
from fractions import Fraction
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsofim import native
from fedsofim.core.clipped_sums import client_sums, noisy
from fedsofim.core.lattice import Lattice
from fedsofim.core.mechanisms import Independent
from fedsofim.core.queries import PerRecord, SecondMoment, SoftmaxGradient, ratio_of
from fedsofim.core.records import Records
from fedsofim.errors import Refused

pytestmark = pytest.mark.optimised

HEAD = SoftmaxGradient()
PATHS = ["xla"] if native.why_not() else ["c++", "xla"]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    if request.param == "xla":
        monkeypatch.setenv(native.SWITCH, "0")
    return request.param


def laid(x, y=None, weight=None, blocks=1) -> Records:
    """float32 records of one client."""
    x = np.asarray(x, np.float32)
    y = np.zeros(len(x)) if y is None else np.asarray(y)
    weight = np.ones(len(x)) if weight is None else np.asarray(weight)
    parts = (x, y.astype(np.int32), weight.astype(np.float32))
    x, y, weight = (jnp.asarray(a.reshape(blocks, -1, *a.shape[1:])) for a in parts)
    return Records(x, y, weight, jnp.zeros(blocks, jnp.int32))


@lru_cache(maxsize=64)
def compiled(query, clip, switch):
    return jax.jit(lambda consts, records: client_sums(query, consts, [False] * len(consts), records, 1, clip))


def summed(query, consts, records, clip) -> np.ndarray:
    """The sum as doubles, which hold a pair exactly."""
    pairs = compiled(query, clip, os.environ.get(native.SWITCH))(consts, records)
    return np.concatenate([np.float64(p.hi[0]).ravel() + np.float64(p.lo[0]).ravel() for p in pairs])


def length(v: np.ndarray) -> float:
    """|v|, the squares added up exactly."""
    return math.sqrt(sum((Fraction(float(a)) ** 2 for a in v), Fraction(0)))


@lru_cache(maxsize=8)
def identity(features: int):
    record = jax.ShapeDtypeStruct((features,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    return PerRecord.trace(lambda x, y: x, *record)[0]


@pytest.mark.slow
@pytest.mark.parametrize("clip", [1e-9, 1e-6, 1.0])
def test_small_residuals_of_large_records_are_measured(path, clip):
    """A residual of 1e-20 has a square of 0 in floats; times a feature of 1e15 it is ten times a clip of 1e-6."""

    @jax.jit
    def one(margin, feature):
        theta = jnp.zeros((4, 2), jnp.float32).at[-1, 0].set(margin)
        return client_sums(HEAD, [theta], [False], laid([[1.0] * 3])._replace(x=jnp.full((1, 1, 3), feature)), 1, clip)

    for margin in (0.0, 10.0, 40.0, 45.0, 80.0):
        for feature in (1e-45, 1e-30, 1.0, 1e9, 1e15, 9e18):
            (pair,) = one(np.float32(margin), np.float32(feature))
            assert length(np.float64(pair.hi).ravel() + np.float64(pair.lo).ravel()) <= clip


@pytest.mark.slow
@pytest.mark.parametrize("features", [65_536, 1_000_000])
def test_norms_of_many_features_do_not_drift(path, features):
    x = np.full((2, features), 0.731, np.float32)
    theta = jnp.zeros((features + 1, 2), jnp.float32)
    one = laid(x[:1])
    assert np.linalg.norm(summed(HEAD, [theta], one, 1.0)) <= 1.0
    if path == "xla":
        assert np.linalg.norm(summed(identity(features), [], one, 1.0)) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("records", [200_000, 1_000_000])
def test_a_record_among_many_moves_the_sum_by_its_clip(path, records):
    """All others push one way, so that the sum is long and rounds most; one turns round, at full length."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, size=(records, 1))
    theta, y = jnp.zeros((2, 2), jnp.float32), np.zeros(records)
    for at in (0, 1, 2, 3, records // 2, records - 1):
        x[at] = 1e9
        before = summed(HEAD, [theta], laid(x, y), 1.0)
        y[at] = 1
        assert length(summed(HEAD, [theta], laid(x, y), 1.0) - before) <= 2.0


@pytest.mark.slow
def test_any_function_of_a_record_among_many():
    records, query = 1 << 18, identity(2)
    x = np.random.default_rng(0).uniform(0.2, 0.7, size=(records, 2))
    exact = np.float64(np.float32(x)).sum(axis=0)
    np.testing.assert_allclose(summed(query, [], laid(x, blocks=512), 1.0), exact, rtol=1e-9, atol=0)  # none is clipped
    for at in (0, 1, 70, records // 2, records - 1):
        x[at] = 1e10
        before = summed(query, [], laid(x, blocks=512), 1.0)
        x[at] = -1e10
        assert length(summed(query, [], laid(x, blocks=512), 1.0) - before) <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_a_record_that_is_not_finite_is_as_if_it_were_not_there(path, bad):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, 5)), random.integers(0, 3, 200)
    theta = jnp.asarray(random.normal(size=(6, 3)), jnp.float32)
    poisoned, weight = x.copy(), np.ones(200)
    poisoned[77, 2], weight[77] = bad, 0
    without = summed(HEAD, [theta], laid(x, y, weight), 0.5)
    assert np.array_equal(summed(HEAD, [theta], laid(poisoned, y), 0.5), without)
    for query in (identity(5), SecondMoment(identity(5))):
        assert np.array_equal(summed(query, [], laid(poisoned), 0.5), summed(query, [], laid(x, y, weight), 0.5))


ANY = st.one_of(
    st.floats(-3, 3, width=32),
    st.floats(width=32),
    st.sampled_from([0.0, 1e-45, 1e-38, 1e-19, 1e15, 1.8e19, 3e38, math.inf, math.nan]),
)
RECORD = st.tuples(st.lists(ANY, min_size=3, max_size=3), st.integers(0, 1))
CLIPS = st.sampled_from([1e-9, 0.37, 1e9])
MOMENT = SecondMoment(identity(3))
REST = np.random.default_rng(1).normal(size=(70, 3)) * 5


def moved(query, consts, one, other, clip) -> float:
    sums = [summed(query, consts, laid(np.concatenate([[x], REST]), [y] + [0, 1] * 35), clip) for x, y in (one, other)]
    return length(sums[0] - sums[1])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@example(([3e18] * 3, 0), ([-3e18] * 3, 1), 1e-9)
@given(RECORD, RECORD, CLIPS)
def test_no_record_moves_any_sum_by_more_than_its_sensitivity(one, other, clip):
    theta = jnp.asarray([[1.0, -1], [0.5, 2], [-30, 30], [0, 0.1]], jnp.float32)
    with pytest.MonkeyPatch.context() as patch:
        for switch in "01":
            patch.setenv(native.SWITCH, switch)
            assert moved(HEAD, [theta], one, other, clip) <= 2 * clip
    assert moved(identity(3), [], one, other, clip) <= 2 * clip
    assert moved(MOMENT, [], one, other, clip) <= math.sqrt(2) * clip


@pytest.mark.slow
def test_what_is_measured_is_what_is_added():
    """Numbers that cancel: computed twice, with and without a fused multiply-add, they differ by more than a clip."""
    record = jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    query, consts, _ = PerRecord.trace(
        lambda x, y: x[:1] * x[1] - jnp.round(x[:1]) * x[1] - (x[:1] - jnp.round(x[:1])) * x[1], *record
    )
    random = np.random.default_rng(3)
    for _ in range(20):
        x = random.normal(size=(1, 2)) * [7, 1e12]
        assert length(summed(query, consts, laid(x), 1e-3)) <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn])
def test_sums_and_noise_of_short_floats_are_in_single_precision(dtype):
    record = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    query, consts, _ = PerRecord.trace(lambda x, y: x.astype(dtype), *record)
    assert [s.dtype for s in query.outputs(consts)] == [jnp.float32]
    (pair,) = client_sums(query, consts, [], laid(np.ones((300, 3))), 1, 100.0)
    np.testing.assert_array_equal(np.asarray(pair.hi[0]), 300.0)
    key = jax.random.key(0)
    draws = jax.vmap(lambda k: noisy(Independent(), k, jnp.int32(0), jnp.float32(1), [pair])[0])(
        jax.random.split(key, 999)
    )
    assert len(np.unique(draws)) > 2000  # bfloat16 has 128 numbers between 256 and 512


@pytest.mark.slow
def test_weights_are_covered_whatever_their_size(path):
    """Pooled records weigh a millionth: rounding is small next to that, not next to 1."""
    x = np.random.default_rng(0).normal(size=(3000, 4)) * 9
    x[0] = 1e9
    theta, y = jnp.zeros((5, 2), jnp.float32), np.zeros(3000)
    turned = np.concatenate([[1], y[1:]])
    for a in (1e-6, 0.3):
        weight = np.full(3000, a, np.float32)
        before = summed(HEAD, [theta], laid(x, y, weight), 1.0)
        moved = length(summed(HEAD, [theta], laid(x, turned, weight), 1.0) - before)
        assert 2 * (1 - 2**-10) <= moved / float(weight[0]) <= 2


def test_the_lattice_gives_back_what_was_put_on_it():
    sums = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32) * 30
    lattice = Lattice(clip=0.7, records=64_000, groups=1000)
    whole = lattice.whole(jnp.asarray(sums))
    total = jax.jit(lambda w: lattice.pair(jax.tree.map(lambda a: jnp.sum(a, axis=0, dtype=a.dtype), w), jnp.float32))(
        whole
    )
    exact = [math.fsum(map(float, column)) for column in sums.T]
    np.testing.assert_allclose(np.float64(total.hi) + np.float64(total.lo), exact, rtol=0, atol=1000 * 1e-9)


def test_a_sum_too_large_for_the_guard_is_refused():
    query = identity(4)
    kinds = [((1 << 22, 64, 4), jnp.float32), ((1 << 22, 64), jnp.int32), ((1 << 22, 64), jnp.float32)]
    shapes = [jax.ShapeDtypeStruct(*kind) for kind in [*kinds, ((1 << 22,), jnp.int32)]]
    with pytest.raises(Refused, match="sum over fewer records"):
        jax.eval_shape(lambda *r: client_sums(query, [], [], Records(*r), 1, 1.0), *shapes)


def test_a_ratio_cannot_be_set():
    with pytest.raises(TypeError):
        SoftmaxGradient(ratio=0.01)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        object.__setattr__(HEAD, "ratio", 0.01)

    class Cheaper(SoftmaxGradient):
        ratio = 0.01

    for forged in (Cheaper(), SecondMoment(HEAD)):  # type: ignore[arg-type]
        with pytest.raises(Refused, match="not proved"):
            ratio_of(forged)  # type: ignore[arg-type]
    assert (ratio_of(HEAD), ratio_of(SecondMoment(identity(2)))) == (2.0, math.sqrt(2))
