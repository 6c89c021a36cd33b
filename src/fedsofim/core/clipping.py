"""How long a record's vector is, and what shortens it, in floats that round (docs/clipping.md has every rounding).

A vector v becomes v·min(1, c'/|v|) with c' = (1 - GUARD)·c. The guard is larger than everything that is rounded between
a record and the sum it is in, so a sum of computed vectors keeps the sensitivity that exact vectors clipped to c
have, and that is what is priced. Nothing is asked of a record: what is not finite, or longer than floats can square
(2^64), counts as zero.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

GROUP = 64  # records that are added up in floats; native/tile.h has it too, as kGroup
GUARD = 2.0**-11  # of the clip: 64·66 roundings of 2^-24 are 2.6e-4 of it, norms and lattice at most 1.3e-4
_TERMS = 256  # numbers that are added up at a time in a long norm
_SHORT = 3 * _TERMS  # as many at once round no more than three levels do, which 16 million numbers have


def guarded(clip: float) -> float:
    """The length c' that vectors are really clipped to.

    >>> guarded(2.0), guarded(float("inf"))
    (1.9990234375, inf)
    """
    return clip * (1 - GUARD)


def clip_factor(norm: jax.Array, clip: float) -> jax.Array:
    """min(1, clip/norm), and 0 for a record whose vector is not finite: it then says nothing at all."""
    factor = clip / jnp.maximum(norm, clip) if clip < float("inf") else jnp.ones_like(norm)
    return jnp.where(jnp.isfinite(norm), factor, 0.0).astype(norm.dtype)


def square_sum(a: jax.Array) -> jax.Array:
    """Σ a² along the last axis, at once for up to _SHORT numbers, else at most _TERMS at a time.

    Adding n numbers rounds each at most n times, in whatever order: a relative error of n·2^-24 for squares. In
    levels of 256 that is 256·2^-24 a level, 4.6e-5 for 16 million numbers, where one long sum may be off by 1. And
    it is 4.6e-5 for 768 numbers at once, which spares XLA cutting them up.
    """
    return add_up(jnp.square(a))


def add_up(a: jax.Array) -> jax.Array:
    """Σ a along the last axis, in as few roundings."""
    if a.shape[-1] <= _SHORT:
        return jnp.sum(a, axis=-1)
    while a.shape[-1] > _TERMS:
        whole = a.shape[-1] // _TERMS * _TERMS
        parts = jnp.sum(a[..., :whole].reshape(*a.shape[:-1], -1, _TERMS), axis=-1)
        if whole < a.shape[-1]:
            parts = jnp.concatenate([parts, jnp.sum(a[..., whole:], axis=-1, keepdims=True)], axis=-1)
        a = jax.lax.optimization_barrier(parts)  # or XLA makes one long sum of it
    return jnp.sum(a, axis=-1)


def evaluated_once(compute: Callable[..., Any], x: jax.Array, weight: jax.Array) -> Any:
    """compute(x), in memory.

    XLA computes an array anew for each of its uses if that is cheap, and may round differently each time: then what is
    measured is not what is added, and where numbers cancel the difference is as large as they are. What a loop
    leaves behind is computed by the loop alone. It runs once, which XLA cannot know: weights are never negative. And
    x is handed from turn to turn, for all XLA knows another one each time: or it would compute before the loop, and
    only copy in it. So x is what all of it depends on: micro-batch or parameters, and small, as it is copied.
    """
    times = jnp.where(weight.reshape(-1)[0] >= 0, 1, 2)
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(compute, x))

    def step(state: tuple[jax.Array, jax.Array, Any]) -> tuple[jax.Array, jax.Array, Any]:
        turn, x, _ = state
        return turn + 1, jnp.where(turn < times, x, jnp.zeros_like(x)), compute(x)

    return jax.lax.while_loop(lambda state: state[0] < times, step, (jnp.zeros_like(times), x, start))[2]
