"""A client's program under deployment noise: the simulator's sums, noise as asked, of a record nothing more."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nodes import METHODS, SMALL, leaves, same_bits
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from fedsofim.core.audit import Inputs, Program, audit_program
from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Tree
from fedsofim.core.models import softmax_head
from fedsofim.core.programs import read_programs, input_shapes
from fedsofim.core.queries import PerRecord, SecondMoment
from fedsofim.core.records import block_shape, in_blocks
from fedsofim.core.door import MAX_SITES, Facts
from fedsofim.core.method import Method
from fedsofim.deploy import execute
from fedsofim.deploy.execute import Secrets, coordinates, run
from fedsofim.deploy.noise import BITS, lattice_std
from fedsofim.errors import Refused
from fedsofim.methods import make

HEAD = softmax_head()
SECRETS = Secrets(fresh=bytes(32), job=bytes(range(32)))
X, Y = SMALL.data.x_train[:20], SMALL.data.y_train[:20]


def inputs_for(shapes: Inputs, x: np.ndarray, y: np.ndarray, round: int = 0, key: int = 0, std: float = 0.0) -> Inputs:
    """What a client's program is run on; state and memory as they begin, parameters not zero."""
    random = np.random.default_rng(7)

    def start(s: Any) -> jax.Array:
        return jnp.asarray(0.3 * random.normal(size=s.shape), s.dtype)

    return Inputs(
        params=jax.tree.map(start, shapes.params),
        state=jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.state),
        memory=jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.memory),
        key=jax.random.key(key),
        index=jnp.int32(0),
        size=jnp.float32(len(y)),
        round=jnp.int32(round),
        noise_std=jnp.float32(0.1),
        stds=jnp.full(MAX_SITES, std, jnp.float32),
        records=jax.tree.map(jnp.asarray, pack(x, y, [np.arange(len(y))])),
    )


def shapes_for(method: Method, x: np.ndarray, y: np.ndarray) -> Inputs:
    return input_shapes(method, HEAD, x.shape[1:], 3, block_shape([len(y)]))


def prepared(
    client: Callable, x: Any, y: Any = None, rounds: int = 1, clip: float = 1.0, round: int = 0
) -> tuple[Program, Inputs]:
    """client(door) -> upload, audited, with what it runs on: in doubles, so that what leaves shows the lattice."""
    x = np.asarray(x, np.float64)
    y = np.zeros(len(x), np.int32) if y is None else y
    shapes = shapes_for(make("fedgd"), x, y)._replace(state=(), memory=())
    doubles = [jax.ShapeDtypeStruct(a.shape, jnp.float64) for a in (shapes.records.x, shapes.records.weight)]
    shapes = shapes._replace(records=shapes.records._replace(x=doubles[0], weight=doubles[1]))
    program = audit(lambda door, *_: (client(door), ()), HEAD, shapes, Facts(rounds, 1, clip, 0.0), rounds)
    return program, inputs_for(shapes, x, y, round)


def released(client: Callable, x: Any, stds: Mapping[int, float], secrets: Secrets = SECRETS, **more: Any) -> Any:
    """What client(door) uploads."""
    return run(*prepared(client, x, **more), stds, secrets)[0]


def values(x: jax.Array, y: jax.Array) -> jax.Array:
    """The record itself."""
    return x


# --- the simulator's sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_without_noise_it_is_the_simulators_release(name: str):
    method = make(name)
    shapes = shapes_for(method, X, Y)
    found = audited(method, HEAD, None, X.shape[1:], 3, block_shape([len(Y)]), 1, 5, 2.0)
    for program, given_ in ((found[0], shapes), (found[1], shapes._replace(state=(), memory=()))):
        if program is None:
            continue
        inputs = inputs_for(given_, X, Y)
        wanted = program(inputs)
        ours = run(program, inputs, {site.number: 0.0 for site in program.sites}, SECRETS)
        assert jax.tree.structure(ours) == jax.tree.structure(wanted)
        assert leaves(ours)
        for a, b in zip(leaves(ours), leaves(wanted), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_the_simulators_noise_is_never_used(name: str, monkeypatch):
    method = make(name)
    clip = 2.34375 + METHODS.index(name) / 64  # of this test alone, so that nothing compiled before is met again
    program = audited(method, HEAD, None, X.shape[1:], 3, block_shape([len(Y)]), 1, 5, clip)[0]
    inputs = inputs_for(shapes_for(method, X, Y), X, Y)

    def forbidden(*a: Any, **k: Any) -> Any:
        raise AssertionError("the simulator's noise")

    for where in ("jax.random.normal", "jax.random.bits", "jax.random.uniform", "jax.random.bernoulli",
                  "fedsofim.core.release.add_noise", "fedsofim.core.release.draw_tree",
                  "fedsofim.core.mechanisms.draw_tree"):  # fmt: skip
        monkeypatch.setattr(where, forbidden)
    with pytest.raises(AssertionError, match="the simulator's noise"):
        program(inputs)  # so the trap works
    stds = {site.number: 5.0 for site in program.sites}
    first = run(program, inputs, stds, SECRETS)
    other_key = run(program, inputs._replace(key=jax.random.key(1)), stds, SECRETS)
    other_stds = run(program, inputs._replace(stds=inputs.stds + jnp.float32(9)), stds, SECRETS)
    assert same_bits(first, other_key)
    assert same_bits(first, other_stds)
    other = run(program, inputs, stds, Secrets(bytes(range(1, 33)), bytes(range(2, 34))))
    assert not same_bits(first, other)


# --- noise --------------------------------------------------------------------------------------------------

WIDE = np.random.default_rng(3).normal(size=(6, 3000))


def clipped_sum(x: np.ndarray, clip: float) -> np.ndarray:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return (x * np.minimum(1, clip / norms)).sum(axis=0)


@pytest.mark.parametrize("clip", [1.0, 500.0])
@pytest.mark.parametrize(
    "mechanism, round, scale",
    [(Independent(1.0), 0, 1.0), (Independent(2.0), 2, 2.0), (Tree(), 0, 1.0), (Tree(), 1, math.sqrt(2))],
    ids=str,
)
def test_noise_is_of_the_size_asked_around_the_clipped_sum(mechanism: Mechanism, round: int, scale: float, clip: float):
    std = 3.7
    out = released(lambda door: door.sum(values, noise=mechanism), WIDE, {0: std}, rounds=4, clip=clip, round=round)
    z = (np.asarray(out) - clipped_sum(WIDE, clip)) / (std * scale)
    assert stats.kstest(z, "norm").pvalue > 0.01  # type: ignore[attr-defined]
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(z * wrong, "norm").pvalue < 1e-12  # type: ignore[attr-defined]
    assert abs(z.mean()) < 4 / math.sqrt(len(z))


@pytest.mark.parametrize("round", [0, 3])
def test_a_schedule_is_followed(round: int):
    mechanism = Diagonal(4)
    out = released(lambda door: door.sum(values, noise=mechanism), WIDE * 0, {0: 2.0}, rounds=4, round=round)
    unit = math.sqrt(sum(math.sqrt(k) for k in range(1, 5)) / 4)
    assert np.std(out) == pytest.approx(2.0 * unit * (4 - round) ** -0.25, rel=0.06)


def test_several_leaves_have_noise_of_their_own_each():
    out = released(lambda door: door.sum(lambda x, y: {"a": values(x, y), "b": values(x, y)}), WIDE * 0, {0: 2.0})
    assert np.std(out["a"]) == pytest.approx(2.0, rel=0.06)
    assert abs(np.corrcoef(out["a"], out["b"])[0, 1]) < 0.1


def test_two_releases_have_noise_of_their_own_each():
    out = released(lambda door: (door.sum(values), door.sum(values)), WIDE * 0, {0: 2.0, 1: 3.0})
    assert np.std(out[0]) == pytest.approx(2.0, rel=0.06)
    assert np.std(out[1]) == pytest.approx(3.0, rel=0.06)
    assert abs(np.corrcoef(*out)[0, 1]) < 0.1


def test_local_steps_have_noise_of_their_own_each():
    def client(door):
        def step(door, carry):
            return jnp.concatenate([carry[1:], door.sum(values)[None]])

        return door.scan(step, jnp.zeros((4, WIDE.shape[1]), jnp.float64), 4)

    out = np.asarray(released(client, WIDE * 0, {1: 2.0}))  # site 0 is the scan itself
    assert np.std(out, axis=1) == pytest.approx(2.0, rel=0.06)
    for a, b in itertools.combinations(out, 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.1


def test_a_symmetric_release_has_symmetric_noise():
    out = np.asarray(released(lambda door: door.second_moment(values, clip=1.0), WIDE[:, :60] * 0, {0: 2.0}))
    assert np.array_equal(out, out.T)
    assert np.std(np.diag(out)) == pytest.approx(2.0, rel=0.3)
    assert np.std(out[np.triu_indices(60, 1)]) == pytest.approx(2.0 / math.sqrt(2), rel=0.08)


def test_what_comes_back_in_later_rounds_is_the_jobs_and_the_rest_is_fresh():
    def noise_of(mechanism: Mechanism, secrets: Secrets) -> np.ndarray:
        out = released(lambda door: door.sum(values, noise=mechanism), WIDE * 0, {0: 1.0}, secrets, rounds=4)
        return np.asarray(out)

    other_request = Secrets(bytes(range(9, 41)), SECRETS.job)
    other_job = Secrets(SECRETS.fresh, bytes(range(9, 41)))
    tree, independent = (noise_of(m, SECRETS) for m in (Tree(), Independent()))
    assert np.array_equal(tree, noise_of(Tree(), other_request))
    assert not np.any(tree == noise_of(Tree(), other_job))
    assert not np.any(independent == noise_of(Independent(), other_request))
    assert np.array_equal(independent, noise_of(Independent(), other_job))


# --- what one record can do ---------------------------------------------------------------------------------

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
    records = jax.tree.map(jnp.asarray, pack(x, np.zeros(3, np.int32), [np.arange(3)]))
    upload = np.asarray(run(program, inputs._replace(records=records), {0: STD}, SECRETS)[0])
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
    monkeypatch.setattr(execute, "_AT_ONCE", 24)
    assert np.array_equal(whole, released(lambda door: door.sum(values), x, {0: 0.5}))


def test_noise_the_lattice_cannot_hold_is_refused():
    for std in (1e-9, 1e12):
        with pytest.raises(Refused, match="lattice"):
            released(lambda door: door.sum(values), WIDE, {0: std})


# --- sampling -----------------------------------------------------------------------------------------------


def counted(secrets: Secrets, rate: float, records: int = 20_000) -> int:
    """How many records a sampled release of ones adds up."""
    client = lambda door: door.sum(lambda x, y: jnp.ones(1, jnp.float64), sample=rate)  # noqa: E731
    return round(float(released(client, np.zeros((records, 1)), {0: 0.0}, secrets)[0]))


@pytest.mark.parametrize("rate", [0.02, 0.5, 0.9])
def test_records_are_sampled_at_the_rate_from_this_requests_bits(rate: float):
    counts = [counted(Secrets(bytes([i]) * 32, bytes(32)), rate) for i in range(3)]
    assert len(set(counts)) == 3
    for count in counts:
        assert stats.binomtest(count, 20_000, rate).pvalue > 1e-3
    assert counted(Secrets(bytes(32), bytes(range(32))), rate) == counts[0]  # the job's secret has no part in it


def test_local_steps_sample_anew():
    def client(door):
        def step(door, carry):
            return jnp.concatenate([carry[1:], door.sum(values, sample=0.5)[None]])

        return door.scan(step, jnp.zeros((2, 40), jnp.float64), 2)

    first, second = np.asarray(released(client, np.eye(40), {1: 0.0}))
    assert set(np.rint(first)) | set(np.rint(second)) == {0.0, 1.0}
    assert 5 < np.sum(first != second) < 35


def test_a_second_moment_of_floats_moves_by_no_more_than_is_priced():
    record = jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    query, consts, _ = PerRecord.trace(lambda x, y: x, *record)
    unit = 2.0**-BITS  # of noise of std 1

    def whole(v: list[float]) -> np.ndarray:
        x, y = np.asarray([v], np.float32), np.zeros(1, np.int32)
        return execute._sum(SecondMoment(query), consts, x, y, 1.0, unit)

    moved = np.linalg.norm((whole([9.0, 9.0]) - whole([-7.0, 7.0])).astype(float))
    assert moved <= math.sqrt(2) / unit + math.sqrt(3)
