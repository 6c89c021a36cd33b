"""Clipped sums of every client at once, by the fused C++ pass or by XLA, and the noise on them."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fedsofim.core.mechanisms import Mechanism, draw_tree
from fedsofim.core.queries import Query, SoftmaxGradient
from fedsofim.core.records import Records
from fedsofim.native import sums as native_sums


def fused(query: Query, consts: Sequence, records: Records) -> bool:
    """Is this a sum that the C++ pass computes?"""
    return type(query) is SoftmaxGradient and native_sums.fits(consts[0], records.x, records.weight)


def client_sums(
    query: Query, consts: Sequence, batched: Sequence[bool], records: Records, clients: int, clip: float
) -> list[jax.Array]:
    """Clipped sums per client, (clients, ...) for each leaf; `batched` consts hold one value per client."""
    if fused(query, consts, records):
        return [native_sums.fused_sums(consts[0], *records, one_each=batched[0], clients=clients, clip=clip)]

    def block(owner, x, y, weight):
        mine = [c[owner] if b else c for c, b in zip(consts, batched, strict=True)]
        return query.block(mine, x, y, weight, clip)

    x, y, weight, owner = records
    if query.wide:
        sums = jax.vmap(block)(owner, x, y, weight)
        if clients == 1:
            return [jnp.sum(s, axis=0, keepdims=True) for s in sums]
        return [jax.ops.segment_sum(s, owner, clients, indices_are_sorted=True) for s in sums]
    single = [c[0] if b else c for c, b in zip(consts, batched, strict=True)]
    totals = [jnp.zeros((clients, *s.shape), s.dtype) for s in query.outputs(single)]

    def add(totals, row):
        sums = block(*row)
        return [t.at[row[0]].add(s) for t, s in zip(totals, sums, strict=True)], None

    return jax.lax.scan(add, totals, (owner, x, y, weight))[0]


def noisy(mechanism: Mechanism, key, round, std, sums: Sequence) -> list[jax.Array]:
    """Sums plus the mechanism's noise at this round."""
    noise = draw_tree(mechanism, key, round, sums)
    return [s + std.astype(s.dtype) * z for s, z in zip(sums, noise, strict=True)]
