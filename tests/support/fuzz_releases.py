"""What a program would have released, from what went into its releases: the engine's sums and the engine's noise.

The sum of every neighbour and the noise under every key are computed apart, by `Query.block` and `noisy` as the engine
has them, since then the few kinds of noise are compiled once for all programs and a sum is one vmap over everything.
`fuzz_oracle.py` also runs the engine's whole release for some programs.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core import queries
from fedsofim.core.clipped_sums import noisy
from fedsofim.core.mechanisms import Mechanism
from fedsofim.core.queries import SoftmaxGradient
from fedsofim.core.records import Records
from fedsofim.core.site import Site
from fuzz_execute import Taken, interpreted


def sums(taken: Taken, rows: slice, own: Records) -> list[np.ndarray]:
    """The clipped sums of one release for some rows: (rows, rounds, clients, ...) for each leaf.

    `own` are the program's records of those rows. The query's constants are taken from the first row.
    """
    index = np.asarray(taken.op.index)[rows]
    there = index.shape
    records = _spread(own, there) if taken.own else Records(*(np.asarray(a)[rows] for a in taken.op.records))
    consts = [np.broadcast_to(np.asarray(c)[:1], (there[0], *c.shape[1:])) for c in taken.op.consts]
    blocks = records.owner.shape[-1]
    mine = (records.owner == index[..., None])[..., None].astype(np.float32)
    x, y, weight = (_flat(a, 4) for a in (records.x, records.y, records.weight * mine))
    each = [_flat(np.repeat(np.expand_dims(c, 3), blocks, axis=3), 4) for c in consts]
    out = _block(taken.site, each, x, y, weight)
    return [np.asarray(leaf).reshape(*there, blocks, *leaf.shape[1:]).sum(axis=3) for leaf in out]


def _block(site: Site, consts: list, x: Any, y: Any, weight: Any) -> list[jax.Array]:
    if isinstance(site.query, SoftmaxGradient):
        return _closed(site.query, float(site.clip))(consts, x, y, weight)
    # every such query is another program: do not compile it
    with jax.disable_jit(), mock.patch.object(queries, "eval_jaxpr", interpreted):
        each = [jnp.asarray(c) for c in consts]
        return jax.vmap(lambda c, x, y, w: site.query.block(c, x, y, w, site.clip))(each, x, y, weight)


@lru_cache(maxsize=64)
def _closed(query: SoftmaxGradient, clip: float) -> Any:
    return jax.jit(jax.vmap(lambda c, x, y, weight: query.block(c, x, y, weight, clip)))


def noised(taken: Taken, rows: slice, base: list[np.ndarray]) -> list[np.ndarray]:
    """`base` (rounds, clients, ...) with the noise of some rows: (rows, rounds, clients, ...) for each leaf."""
    op, draw = taken.op, _noise(taken.site.noise)
    words = np.asarray(op.key)[rows]
    stds = np.asarray(op.stds)[0][..., taken.site.number]
    turns = np.asarray(op.round)[0]
    of_round = [draw(words[:, t], turns[t], stds[t], [b[t] for b in base]) for t in range(words.shape[1])]
    return [np.stack([np.asarray(r[i].astype(jnp.float32)) for r in of_round], axis=1) for i in range(len(base))]


@lru_cache(maxsize=64)
def _noise(mechanism: Mechanism) -> Any:
    def one(words: Any, turn: Any, std: Any, base: Sequence) -> list[jax.Array]:
        return noisy(mechanism, jax.random.wrap_key_data(words), turn, std, base)

    return jax.jit(jax.vmap(jax.vmap(one), (0, None, None, None)))


def _spread(records: Records, there: tuple[int, ...]) -> Records:
    """Rows of records, the same for every round and client."""
    return Records(*(np.broadcast_to(np.asarray(a)[:, None, None], (*there, *a.shape[1:])) for a in records))


def _flat(a: Any, axes: int) -> np.ndarray:
    a = np.asarray(a)
    return a.reshape(-1, *a.shape[axes:])
