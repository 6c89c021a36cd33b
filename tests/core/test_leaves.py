"""Gradients that are never formed: the same clipped sums as of formed ones, for networks of every kind."""

from functools import lru_cache
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import fedsofim as fs
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.clipping import guarded
from fedsofim.core.models import softmax_head
from fedsofim.core.opening import opened
from fedsofim.core.queries import PerRecord
from fedsofim.core.records import Records
from fedsofim.core.summary import privacy_summary
from fedsofim.errors import Refused
from leaks import priced
from networks import NETWORKS, Maker, Network, convolutional, dense, tied

RECORDS = 100
TOLERANCE = {np.float64: 1e-12, np.float32: 3e-5}


def gradient(network: Network):
    """The query of a network's gradient, the values it closes over, and the names of its leaves."""
    record = jax.ShapeDtypeStruct(network.x.shape[1:], network.x.dtype), jax.ShapeDtypeStruct((), jnp.int32)
    names = sorted(network.params)
    query, consts, _ = PerRecord.trace(opened(lambda x, y: jax.grad(network.loss)(network.params, x, y)), *record)
    return query, consts, names


@lru_cache(maxsize=32)
def compiled(make, dtype, clip):
    """Every record's vector, and the clipped sum, as functions of what the network's query closes over."""
    query, _, names = gradient(make(Maker(0, dtype), RECORDS))
    run = jax.jit(lambda consts, *r: client_sums(query, consts, [False] * len(consts), Records(*r), 1, clip))
    return jax.jit(query.vectors), names, run


def plain(vectors_of, consts, x, y, weight, clip) -> list[np.ndarray]:
    """Every record's vector formed, clipped and added in doubles."""
    vectors = [np.asarray(v, np.float64) for v in vectors_of(consts, jnp.asarray(x), jnp.asarray(y))]
    norm = np.sqrt(sum(np.sum(v.reshape(len(v), -1) ** 2, axis=1) for v in vectors))
    factor = np.minimum(1, guarded(clip) / np.maximum(norm, 1e-30)) * weight
    return [np.tensordot(factor, v, 1) for v in vectors]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_sum_is_that_of_formed_gradients(make, dtype, seed):
    maker = Maker(seed, dtype)
    network, clip = make(maker, RECORDS), 0.5
    vectors_of, _, run = compiled(make, dtype, clip)
    consts = gradient(network)[1]
    weight = maker.random.uniform(size=RECORDS).astype(dtype)
    laid = [jnp.asarray(a)[None] for a in (network.x, network.y, weight)]
    found = run(consts, *laid, jnp.zeros(1, jnp.int32))
    exact = plain(vectors_of, consts, network.x, network.y, weight, clip)
    for pair, leaf in zip(found, exact, strict=True):
        total = np.float64(pair.hi[0]) + np.float64(pair.lo[0])
        np.testing.assert_allclose(total, leaf, rtol=0, atol=TOLERANCE[dtype] * np.abs(leaf).max())


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_leaves_are_read_as_what_they_are(make):
    network = make(Maker(0, np.float32), 2)
    query, _, names = gradient(network)
    forms = {name: leaf.form.name for name, leaf in zip(names, query.leaves(), strict=True)}
    assert {name: forms[name] for name in network.forms} == network.forms


def test_no_buffer_holds_a_gradient_for_every_record():
    """Nor for a few: 64-256-10 has 19,210 parameters, and no array of the program has 64 times as many numbers."""
    shapes = {"w1": (64, 256), "b1": (256,), "w2": (256, 10), "b2": (10,)}
    params = {name: jnp.ones(shape, jnp.float32) for name, shape in shapes.items()}
    network = dense(Maker(0, np.float32), 1)._replace(params=params, x=np.zeros((2, 64), np.float32))
    query, consts, _ = gradient(network)
    sizes = []

    def look(jaxpr) -> None:
        for eqn in jaxpr.eqns:
            sizes.extend(np.prod(v.aval.shape) for v in eqn.outvars if v.aval.shape[:1] != (1024,))
            for inner in (j for p in eqn.params.values() for j in (p if isinstance(p, tuple) else (p,))):
                look(inner.jaxpr) if hasattr(inner, "jaxpr") else None

    records = [jnp.zeros((1, 1024, 64), jnp.float32), jnp.zeros((1, 1024), jnp.int32), jnp.ones((1, 1024), jnp.float32)]
    run = lambda *r: client_sums(query, consts, [False] * len(consts), Records(*r), 1, 1.0)  # noqa: E731
    look(jax.make_jaxpr(run)(*records, jnp.zeros(1, jnp.int32)).jaxpr)
    assert max(sizes) < 64 * 19_210


def network_model(loss) -> fs.Model:
    return softmax_head()._replace(loss=loss, gradient=None)


def test_a_plan_says_what_is_formed():
    head = softmax_head()
    plan = priced(lambda door, params, state, memory: (door.gradient(params), memory), network_model(head.loss))
    (what,) = privacy_summary(plan)["formed"].values()
    assert "of a record's" in what and "formed" in what
    closed = priced(lambda door, params, state, memory: (door.gradient(params), memory))
    assert privacy_summary(closed)["formed"] == {}


def test_statistics_over_records_are_refused_by_name():
    def normalised(params, x, y):
        h = x - jax.lax.pmean(x, "batch")
        return softmax_head().loss(params, h, y)

    with pytest.raises(Refused, match="batch normalisation"):
        priced(lambda door, params, state, memory: (door.gradient(params), memory), network_model(normalised))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("make", [dense, tied], ids=lambda make: make.__name__)
def test_a_record_whose_gradient_is_not_finite_says_nothing(make, bad):
    network = make(Maker(3, np.float32), RECORDS)
    _, _, run = compiled(make, np.float32, 0.5)
    consts, weight = gradient(network)[1], np.ones(RECORDS, np.float32)
    poisoned, without = network.x.copy(), weight.copy()
    poisoned[7], without[7] = bad, 0
    found, expected = (
        run(consts, *(jnp.asarray(a)[None] for a in (x, network.y, w)), jnp.zeros(1, jnp.int32))
        for x, w in ((poisoned, weight), (network.x, without))
    )
    if bad == 1e30 and make is dense:  # tanh of it is 1, and its gradient is long but finite: too long to square
        assert all(np.isfinite(p.hi).all() for p in found)
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a.hi, b.hi) and np.array_equal(a.lo, b.lo)


def test_clients_with_parameters_of_their_own():
    """As in local steps: a block of records is summed at its owner's parameters."""
    networks = [tied(Maker(seed, np.float64), 12) for seed in (1, 2)]
    query, *_ = gradient(networks[0])
    consts = [jnp.stack(pair) for pair in zip(*(gradient(n)[1] for n in networks), strict=True)]
    laid = Records(*(jnp.stack([jnp.asarray(a) for a in pair]) for pair in (
        [n.x for n in networks], [n.y for n in networks], [np.ones(12)] * 2, [0, 1])))  # fmt: skip
    found = client_sums(query, consts, [True] * len(consts), laid._replace(owner=laid.owner.astype(jnp.int32)), 2, 0.3)
    for i, n in enumerate(networks):
        for pair, leaf in zip(
            found, plain(jax.jit(query.vectors), gradient(n)[1], n.x, n.y, np.ones(12), 0.3), strict=True
        ):
            np.testing.assert_allclose(pair.hi[i], leaf, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_records():
    """Four times as many records, and the scratch grows by their own size only: images are cut, convolved and
    forgotten, 4,096 at a time; what is kept of all of them is one copy, their labels and weights."""
    query, consts, _ = gradient(convolutional(Maker(0, np.float32), 2))

    def scratch(records: int) -> int:
        kinds = [((1, records, 8, 8), jnp.float32), ((1, records), jnp.int32), ((1, records), jnp.float32)]
        shapes = [jax.ShapeDtypeStruct(*kind) for kind in [*kinds, ((1,), jnp.int32)]]
        run = jax.jit(lambda *r: client_sums(query, consts, [False] * len(consts), Records(*r), 1, 1.0))
        used: Any = run.lower(*shapes).compile().memory_analysis()
        return used.temp_size_in_bytes

    few, many = scratch(8192), scratch(32_768)
    assert many - few < 1.1 * (32_768 - 8192) * (8 * 8 * 4 + 8)
