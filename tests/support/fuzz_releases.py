"""What a program would have released, from what went into its releases: the engine's sums and the engine's noise.

Only the per-record functions are the program's own, so only they are evaluated without being compiled. Their vectors
then go through `client_sums` as the records of a function that gives them back unchanged, and `noisy` adds the noise:
both are compiled once for all programs with the same shapes. `fuzz_oracle.py` also runs the engine's whole release for
some programs.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core import queries
from fedsofim.core.clipped_sums import client_sums, noisy
from fedsofim.core.lattice import Pair
from fedsofim.core.mechanisms import Mechanism
from fedsofim.core.queries import PerRecord, SecondMoment, SoftmaxGradient
from fedsofim.core.records import Records
from fedsofim.core.site import Site
from fuzz_execute import Taken, interpreted

# compiling is what they cost
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

Shapes = tuple[tuple[tuple[int, ...], str], ...]


def sums(taken: Taken, rows: slice, own: Records) -> list[Pair]:
    """The clipped sums of one release for some rows: (rows, rounds, clients, ...) for each leaf.

    `own` are the program's records of those rows. The query's constants are taken from the first row.
    """
    index = np.asarray(taken.op.index)[rows]
    there = index.shape
    records = _spread(own, there) if taken.own else Records(*(np.asarray(a)[rows] for a in taken.op.records))
    consts = [np.broadcast_to(np.asarray(c)[:1], (there[0], *c.shape[1:])) for c in taken.op.consts]
    mine = (records.owner == index[..., None])[..., None].astype(np.float32)
    each = Records(*(_flat(a, 3) for a in records._replace(weight=records.weight * mine)))
    out = _summed(taken.site, [_flat(c, 3) for c in consts], each)
    return jax.tree.map(lambda a: np.asarray(a).reshape(*there, *a.shape[1:]), out)


def _summed(site: Site, consts: list, records: Records) -> list[Pair]:
    """Sums of many clients, each with constants and records of its own."""
    query: Any = site.query
    clip = float(site.clip)
    if isinstance(query, SoftmaxGradient):
        return _engine(query, clip)(consts, records)
    inner = query.vector if isinstance(query, SecondMoment) else query
    vectors = _vectors(inner, consts, records.x, records.y)
    given = _given_back(type(inner), tuple((s.shape, str(s.dtype)) for s in inner.shapes))
    held = replace(query, vector=given) if isinstance(query, SecondMoment) else given
    return _engine(held, clip)([], records._replace(x=vectors))


def _vectors(query: PerRecord, consts: list, x: Any, y: Any) -> np.ndarray:
    """Every record's leaves in one row: (clients, blocks, records, numbers). Nothing is compiled."""
    clients, blocks, size = y.shape
    each = [jnp.asarray(_flat(np.repeat(c[:, None], blocks, axis=1), 2)) for c in consts]
    with jax.disable_jit(), mock.patch.object(queries, "eval_jaxpr", interpreted):
        leaves = jax.vmap(query.vectors)(each, jnp.asarray(_flat(x, 2)), jnp.asarray(_flat(y, 2)))
    return np.concatenate([np.asarray(v).reshape(clients, blocks, size, -1) for v in leaves], axis=-1)


@lru_cache(maxsize=256)
def _given_back(kind: type[PerRecord], shapes: Shapes) -> PerRecord:
    """A query of the same class whose record is its vector already."""
    ends = np.cumsum([math.prod(shape) for shape, _ in shapes])

    def leaves(x: jax.Array, y: jax.Array) -> list[jax.Array]:
        parts = jnp.split(x, ends[:-1])
        return [part.reshape(shape).astype(dtype) for part, (shape, dtype) in zip(parts, shapes, strict=True)]

    query, _, _ = PerRecord.trace(leaves, jnp.zeros(int(ends[-1]), jnp.float32), jnp.int32(0))
    return kind(query.jaxpr, query.shapes)


@lru_cache(maxsize=256)
def _engine(query: Any, clip: float) -> Any:
    """The engine's sums of one client, for many."""

    def one(consts: list, records: Records) -> list[Pair]:
        mine = records._replace(owner=jnp.zeros_like(records.owner))
        return [Pair(*(a[0] for a in p)) for p in client_sums(query, consts, [False] * len(consts), mine, 1, clip)]

    return jax.jit(jax.vmap(one), compiler_options=QUICKLY)


def noised(taken: Taken, rows: slice, base: list[Pair]) -> list[np.ndarray]:
    """`base` (rounds, clients, ...) with the noise of some rows: (rows, rounds, clients, ...) for each leaf."""
    op, draw = taken.op, _noise(taken.site.noise)
    words = np.asarray(op.key)[rows]
    stds = np.asarray(op.stds)[0][..., taken.site.number]
    turns = np.asarray(op.round)[0]
    of_round = [
        draw(words[:, t], turns[t], stds[t], [Pair(b.hi[t], b.lo[t]) for b in base]) for t in range(words.shape[1])
    ]
    return [np.stack([np.asarray(r[i].astype(jnp.float32)) for r in of_round], axis=1) for i in range(len(base))]


@lru_cache(maxsize=64)
def _noise(mechanism: Mechanism) -> Any:
    def one(words: Any, turn: Any, std: Any, base: list[Pair]) -> list[jax.Array]:
        return noisy(mechanism, jax.random.wrap_key_data(words), turn, std, base)

    return jax.jit(jax.vmap(jax.vmap(one), (0, None, None, None)), compiler_options=QUICKLY)


def _spread(records: Records, there: tuple[int, ...]) -> Records:
    """Rows of records, the same for every round and client."""
    return Records(*(np.broadcast_to(np.asarray(a)[:, None, None], (*there, *a.shape[1:])) for a in records))


def _flat(a: Any, axes: int) -> np.ndarray:
    a = np.asarray(a)
    return a.reshape(-1, *a.shape[axes:])
