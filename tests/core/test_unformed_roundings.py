"""One record moves a sum by no more than is priced where no gradient is formed: records made to round worst."""

import math
from fractions import Fraction
from functools import lru_cache

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings

from fedsofim.core import record_sums
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.queries import PerRecord
from fedsofim.core.records import Records

pytestmark = pytest.mark.optimised

ROWS, COLUMNS = 8, 8
LABEL = jax.ShapeDtypeStruct((), jnp.int32)


def outer(terms: int):
    """The query of Σ_t a_t ⊗ g_t, a and g the two halves of a record's row t, as one product."""

    def fn(x, y):
        return jax.lax.dot_general(x[:, :ROWS], x[:, ROWS:], (((0,), (0,)), ((), ())))

    query, _, _ = PerRecord.trace(fn, jax.ShapeDtypeStruct((terms, ROWS + COLUMNS), jnp.float32), LABEL)
    return query


APART, GRAM = outer(1), outer(2)


def test_these_are_not_formed():
    assert [q.leaves()[0].form.name for q in (APART, GRAM)] == ["APART", "GRAM"]


@lru_cache(maxsize=64)
def compiled(query, clip):
    return jax.jit(lambda *r: client_sums(query, [], [], Records(*r), 1, clip))


def summed(query, x, clip, weight=None) -> np.ndarray:
    """One block of one client, as doubles, which hold a pair exactly."""
    weight = np.ones(len(x), np.float32) if weight is None else weight
    laid = (np.asarray(x, np.float32)[None], np.zeros((1, len(x)), np.int32), weight[None], np.zeros(1, np.int32))
    (pair,) = compiled(query, clip)(*map(jnp.asarray, laid))
    return (np.float64(pair.hi[0]) + np.float64(pair.lo[0])).ravel()


def length(v: np.ndarray) -> float:
    """|v|, the squares added up exactly."""
    return math.sqrt(sum((Fraction(float(a)) ** 2 for a in v), Fraction(0)))


def record(a, g) -> np.ndarray:
    return np.concatenate([np.atleast_2d(a), np.atleast_2d(g)], axis=1).astype(np.float32)


# --- |a|·|g| ------------------------------------------------------------------------------------------------

ANY = st.one_of(
    st.floats(-3, 3, width=32),
    st.floats(width=32),
    st.sampled_from([0.0, 1e-45, 1e-38, 1e-30, 1e-19, 1e15, 1.8e19, 3e38, math.inf, math.nan]),
)
RECORD = st.tuples(*[st.tuples(ANY, ANY)] * 2).map(lambda p: record(np.resize(p[0], ROWS), np.resize(p[1], COLUMNS)))
REST = np.random.default_rng(1).normal(size=(63, 1, ROWS + COLUMNS)) * 5


@settings(max_examples=60, deadline=None)
@example(record([1e15] * ROWS, [1e-25] * COLUMNS), record([-1e15] * ROWS, [1e-25] * COLUMNS), 1e-9)
@example(record([1e18] * ROWS, [3e-24] * COLUMNS), record([1e-24] * ROWS, [1e18] * COLUMNS), 1e-9)
@given(RECORD, RECORD, st.sampled_from([1e-9, 0.37, 1e9]))
def test_no_record_moves_a_sum_by_more_than_its_sensitivity(one, other, clip):
    before, after = (summed(APART, np.concatenate([r[None], REST]), clip) for r in (one, other))
    assert length(before - after) <= 2 * clip


def test_small_numbers_times_large_ones_are_measured():
    """Squares of 1e-25 are 0 in floats; times 1e15 they are a tenth of a clip of 1e-9, or ten of them."""
    for small, large in ((1e-25, 1e15), (1e-23, 1e15), (3e-28, 9e17), (1e-19, 9e17)):
        for a, g in (([small] * ROWS, [large] * COLUMNS), ([large] * ROWS, [small] * COLUMNS)):
            assert length(summed(APART, record(a, g)[None], 1e-9)) <= 1e-9


def test_a_short_record_is_left_as_it_is():
    x = record(np.linspace(0.1, 0.3, ROWS), np.linspace(-0.2, 0.4, COLUMNS))
    exact = np.outer(x[0, :ROWS].astype(np.float64), x[0, ROWS:].astype(np.float64))
    np.testing.assert_allclose(summed(APART, x[None], 1.0), exact.ravel(), rtol=1e-6)


# --- terms that cancel --------------------------------------------------------------------------------------


def cancelling(random, apart: float, size: float) -> np.ndarray:
    """a ⊗ g - a'⊗ g with a' hardly another than a: nearly nothing is left of two long terms."""
    a, g = random.normal(size=ROWS), random.normal(size=COLUMNS)
    other = a * (1 + apart * random.normal(size=ROWS))
    return np.concatenate([record(size * a, g), record(-size * other, g)])


@pytest.mark.parametrize("apart", [1e-1, 1e-3, 1e-4, 1e-6])
def test_what_is_left_of_terms_that_cancel_is_clipped(apart):
    """In floats (a·a')(g·g') has lost it; it may be as long as a hundred clips all the same."""
    random = np.random.default_rng(0)
    for _ in range(40):
        x = cancelling(random, apart, 100 / apart)
        assert length(summed(GRAM, x[None], 1.0)) <= 1.0


def test_by_the_products_alone_it_would_not_be(monkeypatch):
    """The test above can fail: without γ·S², and without S/parts, it does."""

    def alone(leaf, part, leaves):
        products = [jnp.matmul(f, jnp.swapaxes(f, -1, -2), precision="highest") for f in leaf.factors(part)]
        found = jnp.maximum(jnp.sum(products[0] * products[1], axis=(1, 2, 3)), 0.0)
        return record_sums.Squares(found, found)

    monkeypatch.setattr(record_sums, "_gram_squares", alone)
    compiled.cache_clear()
    try:
        random = np.random.default_rng(0)
        assert max(length(summed(GRAM, cancelling(random, 1e-4, 1e6)[None], 1.0)) for _ in range(40)) > 2.0
    finally:
        compiled.cache_clear()


def test_a_group_of_records_that_cancel_rounds_within_the_guard():
    """All 64 of a group are two long terms that cancel; one of them is replaced."""
    random = np.random.default_rng(5)
    for size in (1.0, 30.0, 1e3, 1e5):
        x = np.stack([cancelling(random, 1e-2, size) for _ in range(64)])
        before = summed(GRAM, x, 1.0)
        for at in (0, 31, 63):
            other = x.copy()
            other[at] = -cancelling(random, 1e-2, size)
            assert length(summed(GRAM, other, 1.0) - before) <= 2.0


def test_records_whose_terms_are_far_longer_than_they_are_clipped_by_those():
    """Or what a group rounds would be that of the long terms: f·S is at most as many clips as a group has parts."""
    x = cancelling(np.random.default_rng(2), 1e-2, 1e4)
    (leaf,) = GRAM.leaves()
    parts = [(jnp.asarray(x[:, :ROWS].reshape(1, -1)), jnp.asarray(x[:, ROWS:].reshape(1, -1)))]
    (norm,) = record_sums.lengths([leaf], parts)
    a, g = (np.linalg.norm(f, axis=1) for f in (x[:, :ROWS].astype(np.float64), x[:, ROWS:].astype(np.float64)))
    assert leaf.groups == 2 and float(norm) >= np.sum(a * g) / 2 * (1 - 1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-4, 1.0, 1e4]), st.sampled_from([1e-9, 0.37, 1e9]))
def test_any_records_of_two_terms(seed, scale, clip):
    random = np.random.default_rng(seed)
    x = (random.normal(size=(64, 2, ROWS + COLUMNS)) * scale * random.lognormal(sigma=3, size=(64, 2, 1))).astype("f4")
    other = x.copy()
    other[0] = -x[0, ::-1]
    assert length(summed(GRAM, x, clip) - summed(GRAM, other, clip)) <= 2 * clip
