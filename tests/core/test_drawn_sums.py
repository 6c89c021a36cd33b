"""Sums over few drawn records of any model: as defined, of these only, and none of them says who else there was."""

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core import drawn_sums
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.clipping import GROUP, GUARD, guarded
from fedsofim.core.drawn_sums import Span, few_of, packs, turns_of
from fedsofim.core.lattice import Lattice
from fedsofim.core.leaves import Form
from fedsofim.core.models import for_task
from fedsofim.core.queries import PerRecord
from fedsofim.core.records import Records, in_blocks
from fedsofim.models import make
from fedsofim.tasks import Task

pytestmark = pytest.mark.optimised

RATE, LABEL = 0.1, jax.ShapeDtypeStruct((), jnp.int32)
ROW = 16


def network(name: str, features: int) -> tuple[PerRecord, list]:
    """The gradient of a network by name, at its start."""
    model = for_task(make(name, {}), Task())
    params = model.init(jax.random.key(1), (features,), 3)
    x = jax.ShapeDtypeStruct((features,), jnp.float32)
    query, consts, _ = PerRecord.trace(lambda a, b: jax.grad(model.loss)(params, a, b), x, LABEL)
    return query, consts


def twice(x: Any, y: Any) -> Any:
    """Two terms in one product: a leaf that is added up in parts."""
    return jax.lax.dot_general(x[:, :8], x[:, 8:], (((0,), (0,)), ((), ())))


def of_two_rows() -> PerRecord:
    return PerRecord.trace(twice, jax.ShapeDtypeStruct((2, ROW), jnp.float32), LABEL)[0]


@lru_cache(maxsize=64)
def compiled(query: PerRecord, clients: int, clip: float, rate: float) -> Any:
    def sums(consts: list, records: Records, all_weights: Any) -> Any:
        return client_sums(query, consts, [False] * len(consts), records, clients, clip, rate, all_weights)

    return jax.jit(sums)


def summed(query: PerRecord, consts: list, records: Records, drawn: Any, clients: int, clip: float, rate: float):
    """As doubles, which hold a pair exactly; `drawn` None: nobody was drawn, all take part."""
    kept = records if drawn is None else records._replace(weight=np.where(drawn, records.weight, 0).astype(np.float32))
    pairs = compiled(query, clients, clip, 1.0 if drawn is None else rate)(consts, kept, records.weight)
    return [np.asarray(p.hi, np.float64) + np.asarray(p.lo) for p in pairs]


def records_of(sizes: tuple[int, ...], shape: tuple[int, ...], block: int | None = None) -> Records:
    random = np.random.default_rng(0)
    x = 3 * random.normal(size=(sum(sizes), *shape)).astype(np.float32)
    y = random.integers(0, 3, sum(sizes)).astype(np.int32)
    return in_blocks(x, y, np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]), block)


# --- what is summed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("really", [0.1, 0.9, 0.0])  # 0.9: more than anybody expects, so groups go by places
@pytest.mark.parametrize("name, features", [("mlp", 12), ("cnn", 64)])
def test_drawn_records_are_summed_as_all_in_their_places_would_be(name: str, features: int, really: float):
    query, consts = network(name, features)
    records = records_of((333, 1, 70), (features,))
    drawn = np.random.default_rng(1).random(records.weight.shape) < really
    assert packs(query.leaves(), RATE)
    mine = summed(query, consts, records, drawn, 3, 0.7, RATE)
    alone = records._replace(weight=np.where(drawn, records.weight, 0).astype(np.float32))
    theirs = summed(query, consts, alone, None, 3, 0.7, 1.0)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("really", [0.02, 0.9])
def test_leaves_that_are_added_up_in_parts_too(really: float):
    query, records = of_two_rows(), records_of((700,), (2, ROW), block=700)
    assert query.leaves()[0].form is Form.GRAM
    drawn = np.random.default_rng(1).random(records.weight.shape) < really
    (mine,) = summed(query, [], records, drawn, 1, 1.0, 0.02)
    x = np.asarray(records.x, np.float64)[0]
    vectors = np.einsum("nti,ntj->nij", x[..., :8], x[..., 8:])
    length = np.maximum(1.0, np.linalg.norm(vectors, axis=(1, 2)))[:, None, None]
    expected = np.sum((vectors / length)[drawn[0]], axis=0)
    np.testing.assert_allclose(
        mine[0], expected, atol=2e-3 * float(np.abs(expected).max())
    )  # the guard, and that of a Gram


def test_only_drawn_records_are_computed():
    """Turns are as many as the fullest lane has drawn records; every drawn place is computed once, in its own lane."""
    span = Span(places=256, lanes=16, parts=1)
    for really in (0.0, 0.05, 0.2, 1.0):
        drawn = np.random.default_rng(3).random(256) < really
        turns = turns_of(jnp.asarray(drawn, jnp.float32), span)
        row, weight = np.asarray(turns.row), np.asarray(turns.weight)
        used = slice(0, int(turns.groups) * int(turns.each))
        lanes = np.broadcast_to(np.arange(16), row.shape)[used]
        places = (row[used] * 16 + lanes)[weight[used] > 0]
        assert sorted(places.tolist()) == np.flatnonzero(drawn).tolist()
        if drawn.sum() <= GROUP:
            assert int(turns.groups) == int(drawn.any())
            assert int(turns.each) == drawn.reshape(-1, 16).sum(axis=0).max()
        else:
            assert (int(turns.groups), int(turns.each)) == (4, GROUP // 16)


def test_a_part_of_a_group_has_no_more_drawn_records_than_its_argument_allows():
    """However few there are in the other parts, and though they would be few for a group that is added up whole."""
    span, drawn = Span(places=256, lanes=16, parts=2), np.zeros((16, 16), bool)
    drawn[:11, :2] = True  # in lanes of the first part
    assert drawn.sum() == few_of(2)
    for more in (False, True):
        drawn[0, 2] = more
        turns = turns_of(jnp.asarray(drawn.ravel(), jnp.float32), span)
        assert (int(turns.groups), int(turns.each)) == ((4, GROUP // 16) if more else (1, 11))


# --- who says what ------------------------------------------------------------------------------------------


def of_their_own(n: int) -> tuple[PerRecord, list]:
    """Each record has a row of the vector of its own: tanh of a product in which nearly everything cancels."""
    w = np.random.default_rng(2).normal(size=(24, 8)).astype(np.float32)

    def fn(x: Any, y: Any) -> Any:
        hidden = jnp.tanh(x[:24] @ w)
        return x[24:, None] * (hidden - jnp.mean(hidden))[None, :]

    query, consts, _ = PerRecord.trace(fn, jax.ShapeDtypeStruct((24 + n,), jnp.float32), LABEL)
    return query, consts


def test_what_a_record_says_is_the_same_bits_whoever_else_was_drawn():
    n = 300
    query, consts = of_their_own(n)
    records = records_of((n,), (24 + n,), block=n)
    x = np.array(records.x)
    x[0, :, 24:] = np.eye(n)
    records = records._replace(x=x)
    seen: dict[int, set[bytes]] = {i: set() for i in range(n)}
    for seed in range(12):
        drawn = np.random.default_rng(seed).random((1, n)) < (0.1, 0.15, 0.05)[seed % 3]
        (mine,) = summed(query, consts, records, drawn, 1, 1.0, RATE)
        assert not mine[0][~drawn[0]].any()
        for i in map(int, np.flatnonzero(drawn[0])):
            seen[i].add(mine[0][i].tobytes())
    assert sum(len(words) for words in seen.values()) == sum(bool(words) for words in seen.values()) > n / 2


@pytest.mark.parametrize("really", [0.15, 0.9])
def test_a_record_keeps_its_lane(really: float, monkeypatch: pytest.MonkeyPatch):
    """Whatever rounds otherwise in another lane, it is the same for a record: what each lane was given, told apart.

    XLA's lanes round alike for the functions above, so their bits would not show it.
    """
    query, _, _ = PerRecord.trace(lambda x, y: x, jax.ShapeDtypeStruct((ROW,), jnp.float32), LABEL)

    def by_lane(jaxpr: Any, leaves: Any, consts: Any, x: Any, y: Any, weight: Any, clip: float) -> list:
        return [x[:, :, 0] * weight]

    monkeypatch.setattr(drawn_sums, "micro_sums", by_lane)
    n = 700
    drawn = np.random.default_rng(0).random(n) < really
    x = np.zeros((n, ROW), np.float32)
    x[:, 0] = np.arange(n)
    lattice = Lattice(clip=1e6, records=n, groups=query.groups(n, RATE))
    block = jnp.asarray(x), jnp.zeros(n, jnp.int32), jnp.asarray(drawn, jnp.float32)
    (found,) = drawn_sums.drawn_sum(query.jaxpr, query.leaves(), [], block, 1e6, lattice, RATE)
    pair = lattice.pair(found, jnp.float32)
    expected = np.bincount(np.arange(n) % 16, weights=np.arange(n) * drawn, minlength=16)
    np.testing.assert_allclose(np.asarray(pair.hi), expected, rtol=1e-6)


def test_a_draw_changes_the_roundings_of_its_own_span_only():
    """Places of one span use some numbers, those behind it others: what these add up to stays, to the last bit."""
    query, _, _ = PerRecord.trace(lambda x, y: x * 1.5, jax.ShapeDtypeStruct((ROW,), jnp.float32), LABEL)
    rate = 0.2
    span = Span.of(query.leaves(), rate, 10**6)
    assert GROUP < span.places < 6 * GROUP
    records = records_of((6 * span.places,), (ROW,), block=6 * span.places)
    x = np.array(records.x)
    x[0, : span.places, 8:], x[0, span.places :, :8] = 0, 0
    drawn = np.random.default_rng(0).random(records.weight.shape) < rate

    def behind(first: bool) -> np.ndarray:
        who = drawn.copy()
        who[0, 0] = first
        return summed(query, [], records._replace(x=x), who, 1, 1.0, rate)[0][0]

    with_it, without = behind(True), behind(False)
    assert np.array_equal(with_it[8:], without[8:]) and not np.array_equal(with_it[:8], without[:8])


@pytest.mark.parametrize("others", [GROUP // 2 - 1, GROUP - 1, GROUP, GROUP + 1])
@pytest.mark.parametrize("kind", ["formed", "gram"])
def test_drawing_a_record_moves_a_sum_by_no_more_than_a_clip(kind: str, others: int):
    """Records that are long and cancel round most; the guard is there twice where records are drawn."""
    rate, clip, random = 0.02, 1.0, np.random.default_rng(others)
    if kind == "gram":
        query, shape = of_two_rows(), (2, ROW)
    else:
        query, shape = PerRecord.trace(lambda x, y: x, jax.ShapeDtypeStruct((ROW,), jnp.float32), LABEL)[0], (ROW,)
    size = Span.of(query.leaves(), rate, 10**6).places
    records = records_of((size,), shape, block=size)
    records = records._replace(x=1e3 * records.x)
    places = random.permutation(size)[: others + 1]

    def total(who: np.ndarray) -> np.ndarray:
        drawn = np.zeros((1, size), bool)
        drawn[0, who] = True
        return summed(query, [], records, drawn, 1, guarded(clip), rate)[0][0]

    moved = np.linalg.norm(total(places) - total(places[1:]))
    assert (0.99 if kind == "formed" else 0.5) * clip < moved <= clip


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 16])
def test_what_all_parts_of_a_group_round_is_within_the_guard(parts: int):
    """m drawn of each part are one group, another record of one part makes places of all: P·m records before, and after
    it m + 1 in one part. A term is up to P clips long and rounded as often as its part has terms, and once more."""
    span, most = Span(places=256, lanes=16, parts=parts), 0
    for m in range(1, GROUP // parts + 1):
        weight = np.zeros((16, parts, 16 // parts), np.float32)  # a part is neighbouring lanes
        weight[:] = (np.arange(256 // parts) < m).reshape(16, 1, 16 // parts)
        if int(turns_of(jnp.asarray(weight.reshape(-1)), span).groups) == 1:
            most = m

    def rounded(records: int) -> float:
        return (records * parts + 1) * records * parts * 2.0**-24

    together = 2 * parts * rounded(most) - rounded(most) + rounded(most + 1)
    left = 1 - (1 - GUARD) ** 2 - 2.0**-14 - 2.0**-13  # of lengths, and of the lattice
    assert most >= 1 and together < left


def test_a_lattice_is_fine_enough_for_all_groups_that_one_draw_may_change():
    query, _, _ = PerRecord.trace(lambda x, y: x, jax.ShapeDtypeStruct((ROW,), jnp.float32), LABEL)
    for rate in (0.2, 0.02, 1e-6):
        span = Span.of(query.leaves(), rate, 5000)
        assert query.changed(5000, rate) == 1 + span.places // GROUP
        assert query.groups(5000, rate) == math.ceil(5000 / span.places) * (span.places // GROUP)
    assert query.changed(5000, 1.0) == 2


def test_every_part_of_a_group_counts_in_the_lattice():
    query, rate = of_two_rows(), 0.02
    (leaf,) = query.leaves()
    span = Span.of(query.leaves(), rate, 5000)
    assert span.parts == leaf.groups > 1 and span.places > GROUP
    assert query.changed(5000, rate) == leaf.groups * (1 + span.places // GROUP)
    assert query.groups(5000, rate) == math.ceil(5000 / span.places) * leaf.groups * (span.places // GROUP)
