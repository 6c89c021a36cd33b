"""Clipped sums of the softmax head in one pass over the records.

XLA writes the logits of all records to memory between the two products of a clipped sum, and narrow products run at
a fraction of the machine's rate. Here a tile of records is read once and everything happens while it is in cache
(sums.cc, tile.h). It computes what `SoftmaxGradient.blocks` computes, to float rounding, and its rounding has the same
bound (docs/clipping.md).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from fedsofim.native import target, why_not

GROUP = 64  # kGroup of tile.h
_LONGEST = 2**16  # places


def fits(theta: Any, x: Any, weight: Any) -> bool:
    """Are these arrays that the library sums?"""
    real = all(a.dtype == jnp.float32 for a in (theta, x, weight))
    return real and x.ndim == 3 and x.shape[2] > 0 and not why_not("sums")


def fused_sums(
    theta: jax.Array,
    x: Any,
    y: Any,
    weight: Any,
    owner: Any,
    *,
    one_each: bool,
    clients: int,
    clip: float,
    rate: float = 1.0,
) -> tuple[jax.Array, jax.Array]:
    """Every client's clipped sum, (clients, p+1, C), at one theta (p+1, C) or at `one_each` (clients, p+1, C): for each
    number the nearest float, and the rest.

    x (blocks, B, p), y and weight (blocks, B), owner (blocks,): blocks of records, each of one client. `rate`: which
    part of the records have a weight, about; below 1 only those are computed.
    """
    thetas = theta[None] if one_each else theta[None, None]
    hi, lo = _sums(clients, float(clip), reach_of(rate))(x, y.astype(jnp.int32), weight, owner, thetas)
    return hi[0], lo[0]


def reach_of(rate: float) -> int:
    """Of how many places the drawn records are packed together: hardly ever more than a group of them; 0: all are read.

    >>> reach_of(1.0), reach_of(0.5), reach_of(0.1), reach_of(0.01), reach_of(1e-9)
    (0, 64, 384, 3840, 65536)
    """
    if rate == 1:
        return 0
    most = (math.sqrt(4 + GROUP) - 2) ** 2 / rate  # where n·rate + 4·sqrt(n·rate) is a group
    return min(max(int(most) // GROUP, 1) * GROUP, _LONGEST)


@lru_cache(maxsize=64)
def _sums(clients: int, clip: float, reach: int) -> Any:
    """The call as JAX sees it: theta (settings, 1 or clients, p+1, C) to two of (settings, clients, p+1, C)."""

    @custom_vmap
    def sums(x, y, weight, owner, theta):
        out = jax.ShapeDtypeStruct((theta.shape[0], clients, *theta.shape[2:]), jnp.float32)
        return jax.ffi.ffi_call(target("sums"), (out, out))(
            x, y, weight, owner, theta, np.float32(clip), np.int32(reach)
        )

    @sums.def_vmap
    def _swept(size: int, batched: Sequence[bool], *operands: jax.Array):
        """Many thetas on the same records are one call; where the records differ too (sampling), one after another."""
        *shared, theta = operands
        if not any(batched[:-1]):
            flat = sums(*shared, theta.reshape(-1, *theta.shape[2:]))
            return tuple(a.reshape(size, -1, *a.shape[1:]) for a in flat), (True, True)

        def one(index):
            return sums(*[a[index] if b else a for a, b in zip(operands, batched, strict=True)])

        return jax.lax.map(one, jnp.arange(size)), (True, True)

    return sums
