"""Per-record vectors of a gradient with a vote on the clip (adaptive_clip.py), of which no gradient is formed twice.

The length of a gradient is read off the parts that its clipped sum is made of (leaves.py), and its clipped form is the
gradient of factor·loss, in which a layer's part is an outer product still. Nothing of this is trusted: whatever vector
comes out, the door clips it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedsofim.core.grouping import at_least_single
from fedsofim.core.leaves import evaluated, leaves_of
from fedsofim.core.opening import opened
from fedsofim.core.record_sums import lengths


def with_vote(gradient: Callable, clip: float, part: float) -> Callable:
    """fn(x, y, scale) -> (sqrt(1-part)·clip·u, ±sqrt(part)·clip), from gradient(x, y, factor) = factor·g."""

    def fn(x: Any, y: Any, scale: Any) -> tuple[Any, jax.Array]:
        one = jnp.ones((), jnp.float32)
        length = length_of(lambda x, y: gradient(x, y, one), x, y)
        bound = clip * jnp.asarray(scale).astype(length.dtype)
        factor = (1 - part) ** 0.5 * clip / jnp.maximum(length, bound)
        vote = jnp.where(length <= bound, 1.0, -1.0) * part**0.5 * clip
        return gradient(x, y, factor), vote.astype(jnp.float32)

    return fn


def gradient_of(loss: Callable, params: Any) -> Callable:
    """gradient(x, y, factor): of factor·loss."""

    def weighted(p: Any, x: Any, y: Any, factor: Any) -> Any:
        value = loss(p, x, y)
        return factor.astype(value.dtype) * value

    return lambda x, y, factor: jax.grad(weighted)(params, x, y, factor)


def length_of(fn: Callable, x: Any, y: Any) -> jax.Array:
    """|fn(x, y)| over all leaves of one record, whose outer products are not formed."""
    closed = jax.make_jaxpr(opened(fn))(x, y)
    leaves = leaves_of(closed.jaxpr, [at_least_single(v.aval.dtype) for v in closed.jaxpr.outvars])  # type: ignore[attr-defined]
    found = evaluated(closed.jaxpr, leaves, closed.consts, x, y)
    return lengths(leaves, [tuple(p[None] for p in parts) for parts in found])[0]


def head_loss(theta: Any, x: Any, y: Any) -> jax.Array:
    """The softmax head's loss as one product, whose gradient is [x;1] ⊗ r."""
    return optax.softmax_cross_entropy_with_integer_labels(jnp.append(x, jnp.ones((), x.dtype)) @ theta, y)
