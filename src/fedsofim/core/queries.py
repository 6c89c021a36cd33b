"""What is summed over records, and the L2 bound that makes its sum private.

A query turns a block of records into the weighted sum of clipped per-record vectors. Its `ratio` is how far the
sum can move, in units of the clip, when one record is replaced: 2 in general.

Formal guarantee: for weights in [0, 1], replacing one record changes `block`'s result by at most ratio·clip in
L2 norm over all leaves jointly (up to float rounding).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr

TILE = 256  # records that a closed form works on at a time
_SMALLEST_TILE = 16
_MICRO_BATCH = 2**21  # numbers a per-record gradient buffer may hold: bounds memory at records x parameters


class Query(Protocol):
    @property
    def ratio(self) -> float: ...

    @property
    def wide(self) -> bool:
        """May all blocks be computed at once (closed forms), or one after another (memory)?"""
        ...

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        """Shapes of the summed leaves."""
        ...

    def block(self, consts: Sequence, x, y, weight, clip: float) -> list[jax.Array]:
        """Sum over one block of weight·clip(vector of the record)."""
        ...


def clip_factor(norm: jax.Array, clip: float) -> jax.Array:
    """min(1, clip/norm), and 0 for a record whose vector is not finite: it then says nothing at all."""
    factor = clip / jnp.maximum(norm, clip) if math.isfinite(clip) else jnp.ones_like(norm)
    return jnp.where(jnp.isfinite(norm), factor, 0.0)


@dataclass(frozen=True, eq=False)
class PerRecord:
    """Any function of one record, traced: vectors are formed a micro-batch at a time, clipped jointly, summed."""

    jaxpr: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    ratio: float = 2.0
    wide: bool = False

    @staticmethod
    def trace(fn: Callable, x: Any, y: Any) -> tuple["PerRecord", list, Any]:
        """The query of fn(x, y) -> pytree, the values it closes over, and its output's structure."""
        closed, out = jax.make_jaxpr(fn, return_shape=True)(x, y)
        leaves, tree = jax.tree.flatten(out)
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        return PerRecord(closed.jaxpr, shapes), closed.consts, tree

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        return list(self.shapes)

    def block(self, consts: Sequence, x, y, weight, clip: float) -> list[jax.Array]:
        dim = sum(math.prod(s.shape) for s in self.shapes)
        micro = _divisor(len(y), max(1, _MICRO_BATCH // max(dim, 1)))
        split = [a.reshape((-1, micro, *a.shape[1:])) for a in (x, y, weight)]
        start = [jnp.zeros(s.shape, s.dtype) for s in self.shapes]

        def add(total, batch):
            return [t + s for t, s in zip(total, self._micro(consts, *batch, clip=clip), strict=True)], None

        return jax.lax.scan(add, start, tuple(split))[0]

    def _micro(self, consts: Sequence, x, y, weight, clip: float) -> list[jax.Array]:
        vectors = jax.vmap(lambda a, b: eval_jaxpr(self.jaxpr, consts, a, b))(x, y)
        squares = [jnp.sum(jnp.square(v.reshape(len(y), -1)), axis=1) for v in vectors]
        factor = clip_factor(jnp.sqrt(sum(squares[1:], squares[0])), clip) * weight
        keep = factor > 0

        def total(v):
            column = (-1,) + (1,) * (v.ndim - 1)
            finite = jnp.where(keep.reshape(column), v, jnp.zeros_like(v))
            return jnp.tensordot(factor.astype(v.dtype), finite, 1)

        return [total(v) for v in vectors]


@dataclass(frozen=True)
class SoftmaxGradient:
    """Cross-entropy gradient of a linear head theta (p+1, C), bias last, in closed form.

    A record's gradient is [x;1] ⊗ r with r = softmax - onehot, so its norm is |[x;1]|·|r| and the clipped sum is
    two matrix products; no per-record gradient is ever formed.

    Between the products numbers are laid out (tile, class, record): sums over classes then run along contiguous
    records, and a sum over tiles of small products is how XLA's CPU library computes the second one fastest.
    """

    ratio: float = 2.0
    wide: bool = True

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(consts[0].shape, consts[0].dtype)]

    def block(self, consts: Sequence, x, y, weight, clip: float) -> list[jax.Array]:
        theta = consts[0]
        tiles, classes = _tiles(len(y)), theta.shape[1]
        # the barrier keeps XLA from computing the transpose as a product of transposed factors, which is slow
        logits = jax.lax.optimization_barrier(x @ theta[:-1])
        logits = jnp.swapaxes(logits.reshape(*tiles, classes), 1, 2) + theta[-1][:, None]
        r = jax.nn.softmax(logits, axis=1) - jax.nn.one_hot(y.reshape(tiles), classes, dtype=logits.dtype, axis=1)
        norm = jnp.sqrt((jnp.sum(x * x, axis=1) + 1.0).reshape(tiles) * jnp.sum(r * r, axis=1))
        factor = (clip_factor(norm, clip) * weight.reshape(tiles))[:, None, :]
        clipped = jnp.where(factor > 0, r * factor, 0.0)
        product = jnp.sum(clipped @ x.reshape(*tiles, -1), axis=0)
        return [jnp.concatenate([product, jnp.sum(clipped, axis=(0, 2))[:, None]], axis=1).T]


@dataclass(frozen=True)
class SecondMoment:
    """Sum of v vᵀ over records, v the per-record vector clipped to C, so |v vᵀ|_F <= C².

    Two such matrices have a non-negative inner product: replacing one moves the sum by at most sqrt(2)·C². The
    result is the isometric half (diagonal, sqrt(2)·upper triangle), on which independent noise is symmetric noise.
    """

    vector: PerRecord
    ratio: float = math.sqrt(2.0)
    wide: bool = False

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        (shape,) = self.vector.shapes
        size = shape.shape[0]
        return [jax.ShapeDtypeStruct((size * (size + 1) // 2,), shape.dtype)]

    def block(self, consts: Sequence, x, y, weight, clip: float) -> list[jax.Array]:
        (v,) = jax.vmap(lambda a, b: eval_jaxpr(self.vector.jaxpr, consts, a, b))(x, y)
        factor = clip_factor(jnp.linalg.norm(v, axis=1), math.sqrt(clip))  # the matrix is what `clip` bounds
        v = jnp.where(factor[:, None] > 0, v * factor[:, None], 0.0)
        return [half_of((v * weight[:, None]).T @ v)]


def half_of(matrix: jax.Array) -> jax.Array:
    """A symmetric matrix as a vector of the same norm."""
    rows, columns = jnp.triu_indices(matrix.shape[0])
    return matrix[rows, columns] * jnp.where(rows == columns, 1.0, math.sqrt(2.0)).astype(matrix.dtype)


def matrix_of(half: jax.Array) -> jax.Array:
    """The symmetric matrix of `half_of`'s vector.

    >>> m = jnp.array([[1.0, 2.0], [2.0, 3.0]])
    >>> bool(jnp.allclose(matrix_of(half_of(m)), m))
    True
    """
    size = (math.isqrt(8 * half.shape[0] + 1) - 1) // 2
    rows, columns = jnp.triu_indices(size)
    values = half / jnp.where(rows == columns, 1.0, math.sqrt(2.0)).astype(half.dtype)
    return jnp.zeros((size, size), half.dtype).at[rows, columns].set(values).at[columns, rows].set(values)


#: Closed forms whose bound is proved and property-tested here; a method cannot bring its own.
TRUSTED = (SoftmaxGradient,)


def _tiles(records: int) -> tuple[int, int]:
    """(tiles, records in each): at least two tiles of at most TILE records, or one where none divide evenly.

    >>> _tiles(50_176), _tiles(512), _tiles(53)
    ((196, 256), (2, 256), (1, 53))
    """
    size = _divisor(records, max(1, min(TILE, records // 2)))
    return (records // size, size) if size >= _SMALLEST_TILE else (1, records)


def _divisor(number: int, at_most: int) -> int:
    return max(d for d in range(1, min(number, at_most) + 1) if number % d == 0)
