"""Sums where only some of the arithmetic shows: weights, long norms, what a float cannot hold, who is asked what."""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim import native
from fedsofim.core import release
from fedsofim.core.clipped_sums import client_sums, noisy
from fedsofim.core.clipping import guarded, square_sum
from fedsofim.core.grouping import groups_of
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr
from fedsofim.core.lattice import Lattice, Pair
from fedsofim.core.mechanisms import Independent
from fedsofim.core.queries import PerRecord, SecondMoment, SoftmaxGradient, matrix_of
from fedsofim.core.records import Records, block_size, in_blocks
from fedsofim.core.site import Site
from fedsofim.errors import Refused

pytestmark = pytest.mark.optimised

LABEL = jax.ShapeDtypeStruct((), jnp.int32)


def traced(fn, features: int, dtype=jnp.float64):
    query, consts, _ = PerRecord.trace(fn, jax.ShapeDtypeStruct((features,), dtype), LABEL)
    return query, consts


def laid(x, weight, owner=None) -> Records:
    """(blocks, records, features) of clients."""
    owner = np.zeros(len(x), np.int32) if owner is None else np.asarray(owner, np.int32)
    return Records(jnp.asarray(x), jnp.zeros(x.shape[:2], jnp.int32), jnp.asarray(weight), jnp.asarray(owner))


# --- weights and owners -------------------------------------------------------------------------------------


def test_a_weight_counts_once_in_a_second_moment():
    x = np.random.default_rng(0).normal(size=(1, 6, 3))
    weight = np.array([[1.0, 0.5, 0.25, 0.125, 0.75, 0.0]])
    vector, consts = traced(lambda x, y: x, 3)
    (pair,) = client_sums(SecondMoment(vector), consts, [], laid(x, weight), 1, 100.0)
    exact = np.einsum("n,ni,nj->ij", weight[0], x[0], x[0])
    np.testing.assert_allclose(matrix_of(pair.hi[0]), exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_each_clients_records_are_summed_by_the_values_of_that_client(clip: float):
    """Per-record functions close over something else at every client, as in local steps."""
    random = np.random.default_rng(1)
    x, factor = random.normal(size=(5, 4, 3)), random.normal(size=3)
    owner, weight = np.array([0, 1, 1, 2, 2]), np.ones((5, 4))

    one = jnp.asarray(factor[0])
    query, consts = traced(lambda x, y: one * x, 3)
    assert len(consts) == 1
    (pair,) = client_sums(query, [jnp.asarray(factor)], [True], laid(x, weight, owner), 3, clip)
    for client in range(3):
        vectors = factor[client] * x[owner == client].reshape(-1, 3)
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        exact = np.sum(vectors * np.minimum(1, guarded(clip) / length), axis=0)
        np.testing.assert_allclose(pair.hi[client], exact, rtol=0, atol=1e-10)


def test_padding_holds_no_record():
    """Blocks are handed to programs whole: what is not the client's own must not be in them."""
    x, y = 1 + np.arange(5, dtype=np.float32)[:, None], 1 + np.arange(5, dtype=np.int32)
    laid = in_blocks(x, y, [np.array([1, 2, 3]), np.array([4])], size=2)
    assert laid.x[..., 0].tolist() == [[2, 3], [4, 0], [5, 0]]
    assert laid.y.tolist() == [[2, 3], [4, 0], [5, 0]]


def test_blocks_of_one_record_where_clients_hold_one():
    assert block_size([1] * 50) == 1
    assert block_size([2] * 50) == 2


# --- what rounds --------------------------------------------------------------------------------------------


def terms_of_sums(jaxpr: Any, made_by: str | None = None) -> list[int]:
    """How many terms each sum of a program has, or each sum of what such a primitive gives."""
    makers = {v: e.primitive.name for e in jaxpr.eqns for v in e.outvars}
    sums = [e for e in jaxpr.eqns if e.primitive.name == "reduce_sum" and made_by in (None, makers.get(e.invars[0]))]
    found = [math.prod(e.invars[0].aval.shape[i] for i in e.params["axes"]) for e in sums]
    inner = [j for e in jaxpr.eqns for p in e.params.values() for j in jaxprs_in(p)]
    return found + [n for j in inner for n in terms_of_sums(open_jaxpr(j)[0], made_by)]


@pytest.mark.parametrize("numbers", [1000, 1_000_000])
def test_no_sum_of_a_long_norm_has_more_terms_than_its_bound_allows(numbers: int):
    """n terms round up to n times, in whatever order XLA adds them: 768·2^-24 is what the guard leaves for a norm."""
    terms = terms_of_sums(jax.make_jaxpr(square_sum)(jax.ShapeDtypeStruct((2, numbers), jnp.float32)).jaxpr)
    assert max(terms) <= 768
    assert sum(terms) <= 3 * 256 + 256  # every level once, and the rest of one
    np.testing.assert_allclose(square_sum(jnp.full((2, numbers), 0.5, jnp.float32)), numbers / 4, rtol=1e-6)


@pytest.mark.parametrize("classes", [3, 1000])
def test_squares_of_many_classes_are_added_up_in_levels_too(classes: int):
    def sums(theta, *records):
        return SoftmaxGradient().blocks([theta], [False], Records(*records), 1.0, Lattice(clip=1, records=64, groups=1))

    head = jax.ShapeDtypeStruct((4, classes), jnp.float32)
    terms = terms_of_sums(jax.make_jaxpr(sums)(head, *shapes(1, 3)).jaxpr, "square")
    assert terms and max(terms) <= 768


@pytest.mark.parametrize("lo", [0.5, -0.75])
def test_what_one_float_cannot_hold_of_a_sum_is_released_too(lo: float):
    """At 2^24 floats are 2 apart: beside noise of 4 a rest of 1/2 shows in the mean of what is released."""
    many = 200_000
    sums = [Pair(jnp.full(many, 2.0**24, jnp.float32), jnp.full(many, lo, jnp.float32))]
    (out,) = noisy(Independent(), jax.random.key(5), jnp.int32(0), jnp.float32(4.0), sums)
    assert np.mean(np.asarray(out, np.float64) - 2.0**24) == pytest.approx(lo, abs=6 * 4.2 / math.sqrt(many))


def shapes(blocks: int, features: int) -> Records:
    kinds = [((blocks, 64, features), jnp.float32), ((blocks, 64), jnp.int32), ((blocks, 64), jnp.float32)]
    return Records(*(jax.ShapeDtypeStruct(*kind) for kind in [*kinds, ((blocks,), jnp.int32)]))  # type: ignore[arg-type]


def accepted(query, consts, batched, records: Records, clients: int) -> bool:
    def sums(consts, *records):
        return client_sums(query, consts, batched, Records(*records), clients, 1.0)

    try:
        jax.eval_shape(sums, consts, *records)
    except Refused:
        return False
    return True


def covered(records: Records, numbers: int) -> bool:
    """Twice the rounding of a sum, over 2·clip, is at most the 2^-14 that the guard leaves for it (queries.py)."""
    blocks = len(records.owner)
    return Lattice(clip=1.0, records=blocks * 64, groups=blocks).loss(numbers, jnp.float32) <= 2.0**-14


@pytest.mark.parametrize("features", [4, 900])
def test_a_sum_is_refused_from_where_the_guard_no_longer_covers_its_rounding(features: int):
    query, consts = traced(lambda x, y: x, features, jnp.float32)
    sizes = [shapes(1 << b, features) for b in range(10, 26)]
    found = [accepted(query, consts, [], records, 1) for records in sizes]
    assert found == [covered(records, features) for records in sizes]
    assert found[0] and not found[-1]


@pytest.mark.parametrize("clients", [1, 3])
def test_every_number_of_a_head_counts_in_its_rounding(clients: int, monkeypatch: pytest.MonkeyPatch):
    """1024·8 of them, of one head for all clients or of one for each."""
    monkeypatch.setenv(native.SWITCH, "0")
    head = jax.ShapeDtypeStruct((1024, 8) if clients == 1 else (clients, 1024, 8), jnp.float32)
    sizes = [shapes(1 << b, 1023) for b in range(10, 26)]
    found = [accepted(SoftmaxGradient(), [head], [clients > 1], records, clients) for records in sizes]
    assert found == [covered(records, 1024 * 8) for records in sizes]
    assert found[0] and not found[-1]


def test_a_lattice_states_all_that_its_sums_lose():
    """A small sum beside large ones: the low float of a pair has to leave some of it out, and says so."""
    random = np.random.default_rng(2)
    sums = np.concatenate([random.uniform(30, 60, (15, 3000)), random.uniform(0, 1e-3, (1, 3000))]).astype(np.float32)
    lattice = Lattice(clip=1.0, records=1024, groups=16)
    total = jax.tree.map(lambda a: jnp.sum(a, axis=0, dtype=a.dtype), lattice.whole(jnp.asarray(sums)))
    pair = lattice.pair(total, jnp.float32)
    coarse, fine = map(Fraction, lattice.steps(jnp.float32))
    exact = [int(c) * coarse + int(f) * fine for c, f in zip(*total, strict=True)]
    given = [Fraction(float(h)) + Fraction(float(low)) for h, low in zip(*pair, strict=True)]
    assert 0 < max(abs(a - b) for a, b in zip(exact, given, strict=True)) <= Fraction(lattice.loss(1, jnp.float32))


@pytest.mark.parametrize("records", [1, 16, 63, 64, 65, 127, 251, 512, 1072, 100_003])
def test_groups_hold_every_record_and_hardly_more(records: int):
    groups, size = groups_of(records)
    assert size <= 64 and records <= groups * size < records + 64


def test_who_was_drawn_does_not_decide_how_others_are_rounded(monkeypatch):
    """A record that adds nothing, and weighs most: drawn or not, all other records' sum is the same to the last bit."""
    random = np.random.default_rng(0)
    x = 1e-9 * random.normal(size=(1, 256, 20)).astype(np.float32)
    x[0, 0] = 0.0
    weight = np.full((1, 256), 0.3, np.float32)
    weight[0, 0] = 1.0
    query, consts = traced(lambda x, y: x, 20, jnp.float32)
    site = Site(number=0, label="sum", query=query, clip=1.0, noise=Independent(), sample=0.5, share=None)

    @jax.jit
    def summed(first, key, records):
        def drawn(site, keys, t, r):
            return r._replace(weight=r.weight.at[0, 0].mul(first))

        monkeypatch.setattr(release, "_sampled", drawn)
        return release._one_client(key, jnp.int32(0), jnp.int32(0), jnp.zeros(1), *records, *consts, site=site)[0]

    there, absent = (np.asarray(summed(jnp.float32(f), jax.random.key(0), laid(x, weight))) for f in (1, 0))
    assert np.all(there == absent) and np.all(there != 0)
