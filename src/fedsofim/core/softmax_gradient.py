"""The gradient of a linear softmax head, summed over records without forming any record's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fedsofim.core.clipping import GROUP, clip_factor, evaluated_once, guarded, square_sum
from fedsofim.core.grouping import at_least_single, groups_of, over_groups, padded
from fedsofim.core.lattice import Lattice
from fedsofim.core.records import Records

_UP = 2.0**60  # residuals are squared in this scale, so that 1e-28, which can matter, is not squared to 0
_EXACT = jax.lax.Precision.HIGHEST  # products of floats as floats, also where a machine has something faster


@dataclass(frozen=True, slots=True)
class SoftmaxGradient:
    """Cross-entropy gradient of a linear head theta (p+1, C), bias last, in closed form.

    A record's gradient is [x;1] ⊗ r with r = softmax - onehot, so its norm is |[x;1]|·|r| and the clipped sum is
    two matrix products; no per-record gradient is ever formed.

    Sensitivity 2c, as for any vectors (`queries.PerRecord`): the two summands that differ are at most c long each. That
    |u ⊗ r| = |u|·|r| holds for whatever r was computed, so nothing depends on how exact the softmax is. A record with
    |[x;1]| of 2^64 or more, or not finite, says nothing.

    Between the products numbers are laid out (block, group, class, record): sums over classes then run along contiguous
    records, and many small products are how XLA's CPU library computes the second one fastest.
    """

    ratio: ClassVar[float] = 2.0
    wide: ClassVar[bool] = True
    tile: ClassVar[int] = 4 * GROUP

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(consts[0].shape, at_least_single(consts[0].dtype))]

    def groups(self, records: int, rate: float) -> int:
        return groups_of(records)[0]

    def changed(self, records: int, rate: float) -> int:
        return 2

    def vectors(self, consts: Sequence, x: jax.Array, y: jax.Array) -> list[jax.Array]:
        """Every record's gradient, unclipped."""
        dtype = at_least_single(consts[0].dtype)
        theta, x = consts[0].astype(dtype), x.astype(dtype)
        r = jax.nn.softmax(x @ theta[:-1] + theta[-1]) - jax.nn.one_hot(y, theta.shape[1], dtype=dtype)
        ones = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
        return [ones[:, :, None] * r[:, None, :]]

    def blocks(self, consts: Sequence, batched: Sequence[bool], records: Records, clip: float, lattice: Lattice):
        """The sum of every block's weight·clip(gradient), on the lattice: leaves (blocks, p+1, C)."""
        dtype = at_least_single(consts[0].dtype)
        blocks, (groups, size) = len(records.owner), groups_of(records.y.shape[1])
        tiled = (blocks, groups, size)
        x, y, weight = (padded(jnp.asarray(a), groups * size, axis=1) for a in records[:3])
        x, weight = x.astype(dtype), weight.astype(dtype).reshape(tiled)
        each, tiled_y = batched[0], y.reshape(tiled)
        r = evaluated_once(lambda theta: _residuals(theta, each, records.owner, x, tiled_y), consts[0], weight)
        length = jnp.sqrt(square_sum(x) + 1.0).reshape(tiled)
        norm = length * jnp.sqrt(square_sum(jnp.swapaxes(r, 2, 3) * _UP) if r.shape[2] > 256 else _squares(r))
        factor = clip_factor(norm, guarded(clip) * _UP) * weight
        clipped = jnp.where(factor[:, :, None] > 0, r * factor[:, :, None], 0.0)
        product = _product(clipped, x.reshape(*tiled, -1), jnp.isfinite(length))
        parts = [over_groups(lattice.whole(s), 1) for s in (product, jnp.sum(clipped, axis=3, keepdims=True))]
        return [jax.tree.map(lambda *a: jnp.swapaxes(jnp.concatenate(a, axis=2), 1, 2), *parts)]


def _residuals(theta: jax.Array, each: bool, owner: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """softmax - onehot, (blocks, groups, classes, records of a group)."""
    theta = theta.astype(x.dtype)
    head = theta[owner] if each else theta
    # the barrier keeps XLA from computing the transpose as a product of transposed factors, which is slow
    logits = jax.lax.optimization_barrier(x @ head[..., :-1, :])
    bias = head[:, None, -1, :, None] if each else head[-1][:, None]
    logits = jnp.swapaxes(logits.reshape(*y.shape, -1), 2, 3) + bias
    return jax.nn.softmax(logits, axis=2) - jax.nn.one_hot(y, logits.shape[2], dtype=x.dtype, axis=2)


def _squares(r: jax.Array) -> jax.Array:
    return jnp.sum(jnp.square(r * _UP), axis=2)


def _product(clipped: jax.Array, x: jax.Array, finite: jax.Array) -> jax.Array:
    """Every group's product with its records. A record that is not finite is set to zeros, but not in every round for
    all: 0·NaN would reach the rest of its group."""

    def product(x: jax.Array) -> jax.Array:
        return jnp.matmul(clipped, x, precision=_EXACT)

    return jax.lax.cond(jnp.all(finite), product, lambda x: product(jnp.where(finite[..., None], x, 0.0)), x)
