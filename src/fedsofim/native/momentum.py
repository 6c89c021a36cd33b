"""The server's momentum and its two inner products in one pass over memory: M ← βM + (1-β)G, |M|², M·G.

XLA's CPU compiler makes a pass of each inner product, the second on one core, and writes M in another. Here M and G
are read once and M is written where it was (momentum.cc).
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from fedsofim.native import target, why_not

LEAST = 2**13  # numbers: below, calling out of a compiled program costs more than the pass saves


def fits(m: Any, g: Any) -> bool:
    """Is this a leaf for the library?"""
    return m.size >= LEAST and m.dtype == g.dtype == jnp.float32 and not why_not("momentum")


def momentum_pass(m: jax.Array, g: jax.Array, beta: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(M', |M'|², M'·G) of one leaf, M' = βM + (1-β)G."""
    return _momentum(m, g, jnp.asarray(beta, jnp.float32))


@custom_vmap
def _momentum(m, g, beta):
    outputs = (jax.ShapeDtypeStruct(m.shape, jnp.float32), jax.ShapeDtypeStruct((2,), jnp.float32))
    m, sums = jax.ffi.ffi_call(target("momentum"), outputs, input_output_aliases={0: 0})(m, g, beta)
    return m, sums[0], sums[1]


@_momentum.def_vmap
def _side_by_side(size: int, batched: Sequence[bool], *operands: jax.Array):
    """In a sweep, one setting after another: each is a pass of its own anyway."""

    def one(index):
        return _momentum(*[a[index] if b else a for a, b in zip(operands, batched, strict=True)])

    return jax.lax.map(one, jnp.arange(size)), (True, True, True)
