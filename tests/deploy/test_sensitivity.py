"""What one record can do to what a node releases: no more than is priced, whatever is in it."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsofim.core.audit import Inputs, Program
from fedsofim.core.queries import PerRecord, SecondMoment
from fedsofim.core.records import in_blocks
from fedsofim.deploy import exact_sums
from fedsofim.deploy.execute import coordinates, run
from fedsofim.deploy.noise import BITS, lattice_std
from node_programs import SECRETS, prepared, released, values
from nodes import X, Y

X, Y = X[:20], Y[:20]

ANY = st.one_of(
    st.floats(-2, 2, width=32),
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, 1e-45, 1e-38, 3e38, -3e38, math.inf, -math.inf, math.nan]),
)
D, STD, CLIP = 4, 0.7, 1.25
RECORD = st.lists(ANY, min_size=D, max_size=D)
REST = [[0.1, 0.2, -0.5, 1.0], [9.0, -3.0, 0.0, 0.25]]
_SUM = prepared(lambda door: door.sum(values), [REST[0], *REST], clip=CLIP)
_MOMENT = prepared(lambda door: door.second_moment(values, clip=CLIP), [REST[0], *REST], clip=CLIP)


def in_units(prepared_: tuple[Program, Inputs], record: list[float]) -> tuple[np.ndarray, float]:
    """The upload with `record` among the others and the noise always the same, as integers; and their unit."""
    program, inputs = prepared_
    (site,) = program.sites
    size = coordinates(program.jaxpr)[site.number]
    unit = lattice_std(STD, site.query.ratio * site.clip, size) * 2.0**-BITS
    x = np.asarray([record, *REST], np.float64)
    records = jax.tree.map(jnp.asarray, in_blocks(x, np.zeros(3, np.int32), [np.arange(3)]))
    upload = np.asarray(run(program, replace(inputs, records=records), {0: STD}, SECRETS)[0])
    if upload.ndim == 2:  # a symmetric matrix: the half that was released
        rows, columns = np.triu_indices(D)
        upload = upload[rows, columns] * np.where(rows == columns, 1, math.sqrt(2))
    return upload / unit, unit


@settings(max_examples=60, deadline=None)
@example([3e38] * D, [-3e38] * D)
@example([math.nan, 0, 0, 0], [math.inf, 1, 1, 1])
@example([1e-45, 0, 0, 0], [0.0] * D)
@given(RECORD, RECORD)
def test_replacing_a_record_moves_the_integers_by_no_more_than_is_priced(one: list[float], other: list[float]):
    (a, unit), (b, _) = in_units(_SUM, one), in_units(_SUM, other)
    np.testing.assert_allclose(a, np.rint(a), atol=1e-4)  # on the lattice: the rest is doubles' rounding
    assert np.linalg.norm(np.rint(a) - np.rint(b)) <= 2 * CLIP / unit + math.sqrt(D)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@example([1.0, 1.0, 0, 0], [1.0, -1.0, 0, 0])
@example([1e30, 0, 0, 0], [0, 1e30, 0, 0])
@given(RECORD, RECORD)
def test_replacing_a_record_moves_a_second_moment_by_no_more_than_is_priced(one: list[float], other: list[float]):
    (a, unit), (b, _) = in_units(_MOMENT, one), in_units(_MOMENT, other)
    size = D * (D + 1) // 2
    assert np.linalg.norm(a - b) <= math.sqrt(2) * CLIP**2 / unit + math.sqrt(size) + 0.01  # 0.01: back to the half


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_record_that_is_not_finite_says_nothing(bad: float):
    (with_bad, _), (with_zeros, _) = in_units(_SUM, [1.0, bad, 0.0, 0.0]), in_units(_SUM, [0.0] * D)
    assert np.array_equal(with_bad, with_zeros)


@pytest.mark.parametrize("size", [1.3, 1e10, 3e38])
def test_a_large_record_counts_at_the_clip(size: float):
    (large, unit), (zero, _) = in_units(_SUM, [0.0, size, 0.0, 0.0]), in_units(_SUM, [0.0] * D)
    moved = large - zero
    assert moved[1] * unit == pytest.approx(CLIP, rel=1e-7)
    assert moved[1] * unit <= CLIP
    assert not np.any(moved[[0, 2, 3]])


def test_nan_records_leave_a_gradient_finite():
    x = np.concatenate([X, np.full((2, 3), np.nan), [[np.inf, 0, 0]]])
    y = np.concatenate([Y, np.zeros(3, np.int32)])

    def client(door):
        return door.gradient(jnp.ones((4, 3), jnp.float64))

    out = released(client, x, {0: 0.0}, y=y)
    assert np.isfinite(np.asarray(out)).all()
    np.testing.assert_allclose(out, released(client, X, {0: 0.0}, y=Y), atol=1e-9)


def test_in_many_pieces_it_is_the_same_sum(monkeypatch):
    x = np.random.default_rng(5).normal(size=(50, 8))
    whole = released(lambda door: door.sum(values), x, {0: 0.5})
    monkeypatch.setattr(exact_sums, "_AT_ONCE", 24)
    assert np.array_equal(whole, released(lambda door: door.sum(values), x, {0: 0.5}))


def test_a_second_moment_of_floats_moves_by_no_more_than_is_priced():
    record = jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    query, consts, _ = PerRecord.trace(lambda x, y: x, *record)
    unit = 2.0**-BITS  # of noise of std 1

    def whole(v: list[float]) -> np.ndarray:
        x, y = np.asarray([v], np.float32), np.zeros(1, np.int32)
        return exact_sums.exact_sum(SecondMoment(query), consts, x, y, 1.0, unit)

    moved = np.linalg.norm((whole([9.0, 9.0]) - whole([-7.0, 7.0])).astype(float))
    assert moved <= math.sqrt(2) / unit + math.sqrt(3)
