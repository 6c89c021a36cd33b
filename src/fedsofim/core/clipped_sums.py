"""Clipped sums of every client at once, by the fused C++ pass or by XLA, and the noise on them.

Formal guarantee of `client_sums`, with its proof: queries.py. What the two paths round, and where: docs/clipping.md.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedsofim.core.clipping import guarded
from fedsofim.core.lattice import Lattice, Pair, Whole
from fedsofim.core.mechanisms import Mechanism, draw_tree
from fedsofim.core.queries import Query, SoftmaxGradient
from fedsofim.core.records import Records
from fedsofim.errors import Refused
from fedsofim.native import sums as native_sums

_LATTICE = 2.0**-14  # of the sensitivity: what the guard leaves for the lattice


def fused(query: Query, consts: Sequence, records: Records) -> bool:
    """Is this a sum that the C++ pass computes?"""
    return type(query) is SoftmaxGradient and native_sums.fits(consts[0], records.x, records.weight)


def client_sums(
    query: Query, consts: Sequence, batched: Sequence[bool], records: Records, clients: int, clip: float,
    rate: float = 1.0, weights: Any = None,
) -> list[Pair]:  # fmt: skip
    """Clipped sums per client, (clients, ...) for each leaf; `batched` consts hold one value per client. `rate`: which
    part of the records was drawn, where the rest have weight 0: if it is small, no others are computed. `weights`:
    those of the records before any was drawn.

    Both ways scale weights by a power of two to a largest one in (1/2, 1], and the sums back, which is exact: so
    rounding is small next to the largest weight, not next to 1. A lattice is as fine whoever was drawn: by the largest
    weight of the drawn, one record would decide how all others are rounded. (Floats, and so the fused pass, round alike
    at every scale.)
    """
    if fused(query, consts, records):
        how = {"one_each": batched[0], "clients": clients, "clip": guarded(clip), "rate": rate}
        return [Pair(*native_sums.fused_sums(consts[0], *records, **how))]
    held = records.weight if weights is None else weights
    records, scale = _unit_weights(records, held)
    pairs = _by_xla(query, consts, batched, records, clients, clip, rate)
    return jax.tree.map(lambda a: a * scale.astype(a.dtype), pairs)


def _by_xla(
    query: Any, consts: Sequence, batched: Sequence[bool], records: Records, clients: int, clip: float, rate: float
) -> list[Pair]:
    outputs = query.outputs([c[0] if b else c for c, b in zip(consts, batched, strict=True)])
    blocks, size = records.weight.shape
    lattice = Lattice(clip=clip, records=blocks * size, groups=blocks * query.groups(size, rate))
    _check(lattice, query.changed(size, rate) / query.ratio, outputs)
    if query.wide:
        totals = [_by_client(s, records.owner, clients) for s in query.blocks(consts, batched, records, clip, lattice)]
    else:
        block = partial(query.block, clip=clip, lattice=lattice, rate=rate)
        none = [lattice.whole(jnp.zeros((clients, *s.shape), s.dtype)) for s in outputs]
        totals = _one_after_another(block, none, consts, batched, records)
    return [lattice.pair(t, s.dtype) for t, s in zip(totals, outputs, strict=True)]


def _by_client(sums: Whole, owner: Any, clients: int) -> Whole:
    if clients == 1:
        return Whole(*(jnp.sum(s, axis=0, keepdims=True, dtype=s.dtype) for s in sums))
    return Whole(*(jax.ops.segment_sum(s, owner, clients, indices_are_sorted=True) for s in sums))


def _one_after_another(
    block: Callable, none: list[Whole], consts: Sequence, batched: Sequence[bool], records: Records
) -> list[Whole]:
    """Block by block: the vectors of one are all that is in memory."""

    def add(totals, row):
        owner, x, y, weight = row
        mine = [c[owner] if b else c for c, b in zip(consts, batched, strict=True)]
        return jax.tree.map(lambda t, s: t.at[owner].add(s), totals, block(mine, x, y, weight)), None

    x, y, weight, owner = records
    if len(y) == 1:  # without a loop, which would copy the block
        return add(none, (owner[0], x[0], y[0], weight[0]))[0]
    return jax.lax.scan(add, none, (owner, x, y, weight))[0]


def _check(lattice: Lattice, sums: float, outputs: Sequence[jax.ShapeDtypeStruct]) -> None:
    """The lattice is so fine that the guard covers its rounding of so many sums, next to the sensitivity."""
    lost = math.hypot(*(sums * lattice.loss(math.prod(s.shape), s.dtype) for s in outputs))
    if lost > _LATTICE:
        numbers = sum(math.prod(s.shape) for s in outputs)
        raise Refused(
            f"a sum of {numbers} numbers over {lattice.records} records rounds by {lost:.1g} of its sensitivity, "
            f"more than the {_LATTICE:.1g} that clipping leaves room for; sum over fewer records, or fewer numbers"
        )


def _unit_weights(records: Records, weights: Any) -> tuple[Records, jax.Array]:
    """Records with weights of at most 1, where `weights` are the largest, and the power of two they were divided by."""
    mantissa, exponent = jnp.frexp(jnp.max(weights, initial=0.0))
    exponent = exponent - (mantissa == 0.5).astype(exponent.dtype)  # a power of two is its own
    up, down = (jnp.ldexp(jnp.ones_like(mantissa), e) for e in (exponent, -exponent))
    return records._replace(weight=records.weight * down), up


def noisy(mechanism: Mechanism, key, round, std, sums: Sequence[Pair]) -> list[jax.Array]:
    """Sums plus the mechanism's noise at this round. The noise is added to what one float cannot hold of a sum before
    the rest, so that only the noisy sum is rounded to a float."""
    noise = draw_tree(mechanism, key, round, [s.hi for s in sums])
    return [s.hi + (s.lo + std.astype(z.dtype) * z) for s, z in zip(sums, noise, strict=True)]
