"""What is summed over records, and the L2 bound that makes its sum private.

A query turns records into the weighted sum of clipped per-record vectors. Its ratio is how far that sum can move, in
units of the clip, when one record is replaced. The sensitivity that is priced is ratio·clip.

Formal guarantee: for weights in [0, W], replacing one record changes the sum that `clipped_sums.client_sums` gives by
at most W·ratio·clip in L2 norm over all leaves jointly, for any records, finite or not, **all rounding included**.

Proof. Each query's docstring says why its exact sum moves by at most W·ratio·c', where c' = (1 - g)·c is the length
that vectors are really clipped to and g = `GUARD` = 4.88e-4. Rounding adds, in units of W·ratio·c:
1. A computed vector is longer than c' by at most 2^-14 of it (clipping.py: norms in levels, factor, product).
2. A record is added to at most 63 others in floats. In whatever order, a summand is rounded at most 66 times, so the
   group's sum is off by at most 64·66·2^-24 c < 2.6e-4 c, before and after the replacement: 5.2e-4 c, which is
   2.6e-4 of 2c and, where v·vᵀ is rounded once less, 3.6e-4 of sqrt(2)c. Who is in a group follows from sizes and
   weights alone: no other changes. Leaves that are not formed: record_sums.py.
3. Groups are added up on a lattice, or in C++ in doubles, which rounds by at most 2^-14; where it could be more, the
   sum is refused (`clipped_sums`, sums.cc).
Together at most 2.6e-4 or 3.6e-4, and twice 6.2e-5: below g. docs/clipping.md goes through them in turn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr

from fedsofim.core.clipping import GROUP, clip_factor, evaluated_once, guarded, square_sum
from fedsofim.core.drawn_sums import Span, drawn_sum, packs
from fedsofim.core.grouping import at_least_single, groups_of, over_groups, padded
from fedsofim.core.lattice import Lattice, Whole
from fedsofim.core.leaves import Leaf, leaves_of
from fedsofim.core.record_sums import block_sum, lattice_groups
from fedsofim.core.softmax_gradient import SoftmaxGradient as SoftmaxGradient  # these two and those below are all
from fedsofim.core.windows import EXACT
from fedsofim.errors import Refused


class Query(Protocol):
    ratio: ClassVar[float]
    wide: ClassVar[bool]
    """May all blocks be computed at once (closed forms), or one after another (memory)?"""
    tile: ClassVar[int]
    """Records that are worth computing together: what a long block of them is padded to."""

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        """Shapes of the summed leaves, which are floats of 32 bits or more whatever the vectors are."""
        ...

    def groups(self, records: int, rate: float) -> int:
        """How many sums of floats a block of so many records is added up in, of which this part was drawn."""
        ...

    def changed(self, records: int, rate: float) -> int:
        """How many of these one record may change, before and after."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class PerRecord:
    """Any function of one record, traced: vectors are clipped over all leaves jointly and summed, a micro-batch at a
    time; leaves that are outer products are not even formed (leaves.py, record_sums.py).

    Sensitivity 2c: with one record replaced, all summands but one are the same, and the two that differ are at most c
    long each, weighted by at most 1: |a·v - a·w| <= |v| + |w| <= 2c.
    """

    ratio: ClassVar[float] = 2.0
    wide: ClassVar[bool] = False
    tile: ClassVar[int] = 16 * GROUP
    jaxpr: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]

    @staticmethod
    def trace(fn: Callable, x: Any, y: Any) -> tuple["PerRecord", list, Any]:
        """The query of fn(x, y) -> pytree, the values it closes over, and its output's structure."""
        closed, out = jax.make_jaxpr(fn, return_shape=True)(x, y)
        leaves, tree = jax.tree.flatten(out)
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        return PerRecord(closed.jaxpr, shapes), closed.consts, tree

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(s.shape, at_least_single(s.dtype)) for s in self.shapes]

    def groups(self, records: int, rate: float) -> int:
        leaves = self.leaves()
        return (
            Span.of(leaves, rate, records).groups(records) if packs(leaves, rate) else lattice_groups(leaves, records)
        )

    def changed(self, records: int, rate: float) -> int:
        leaves = self.leaves()
        return Span.of(leaves, rate, records).changed if packs(leaves, rate) else 2

    def vectors(self, consts: Sequence, x: jax.Array, y: jax.Array) -> list[jax.Array]:
        """Every record's vector, unclipped."""
        leaves = jax.vmap(lambda a, b: eval_jaxpr(self.jaxpr, consts, a, b))(x, y)
        return [v.astype(at_least_single(v.dtype)) for v in leaves]

    def leaves(self) -> tuple[Leaf, ...]:
        """How each leaf is computed."""
        return _leaves(self)

    def block(self, consts: Sequence, x, y, weight, clip: float, lattice: Lattice, rate: float) -> list[Whole]:
        """The sum of one block's weight·clip(vector), on the lattice."""
        leaves = self.leaves()
        if packs(leaves, rate):
            return drawn_sum(self.jaxpr, leaves, consts, (x, y, weight), clip, lattice, rate)
        return block_sum(self.jaxpr, leaves, consts, (x, y, weight), clip, lattice)


@lru_cache(maxsize=64)
def _leaves(query: PerRecord) -> tuple[Leaf, ...]:
    return leaves_of(query.jaxpr, [at_least_single(s.dtype) for s in query.shapes])


@dataclass(frozen=True, slots=True)
class SecondMoment:
    """Sum of v vᵀ over records, v the per-record vector clipped to C, so |v vᵀ|_F <= C².

    Sensitivity sqrt(2)·C²: |v vᵀ - w wᵀ|² = |v|⁴ + |w|⁴ - 2(v·w)² <= 2C⁴, since (v·w)² is not negative. `clip` is C².
    The result is the isometric half (diagonal, sqrt(2)·upper triangle), on which independent noise is symmetric noise.
    A computed v vᵀ is semi-definite up to the roundings that the guard is for.
    """

    ratio: ClassVar[float] = math.sqrt(2.0)
    wide: ClassVar[bool] = False
    tile: ClassVar[int] = GROUP
    vector: PerRecord

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        (shape,) = self.vector.outputs(consts)
        size = shape.shape[0]
        return [jax.ShapeDtypeStruct((size * (size + 1) // 2,), shape.dtype)]

    def groups(self, records: int, rate: float) -> int:
        return groups_of(records)[0]

    def changed(self, records: int, rate: float) -> int:
        return 2

    def block(self, consts: Sequence, x, y, weight, clip: float, lattice: Lattice, rate: float) -> list[Whole]:
        """The sum of one block's weight·v·vᵀ, on the lattice."""
        tiled = groups_of(len(y))
        x, y, weight = (padded(a, math.prod(tiled)) for a in (x, y, weight))
        vectors = evaluated_once(lambda x: self.vector.vectors(consts, x, y), x, weight)
        norm = jnp.sqrt(square_sum(vectors[0]))
        factor = clip_factor(norm, math.sqrt(guarded(clip)))[:, None]  # the matrix is what `clip` bounds
        v = jnp.where(factor > 0, vectors[0] * factor, 0.0).reshape(*tiled, -1)
        weighted = v * weight.reshape(*tiled, 1).astype(v.dtype)
        sums = jnp.matmul(jnp.swapaxes(weighted, 1, 2), v, precision=EXACT)
        return [over_groups(lattice.whole(jax.vmap(half_of)(sums)))]


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


#: Sums whose bound is proved beside them and property-tested; a method or a model cannot bring its own.
TRUSTED = (SoftmaxGradient,)

#: How far a sum can move, in units of the clip, when one record is replaced: proved above, class by class.
RATIO: dict[type, float] = {PerRecord: 2.0, SoftmaxGradient: 2.0, SecondMoment: math.sqrt(2.0)}


def ratio_of(query: Query) -> float:
    """The ratio of a query of this file. A subclass may sum something else, so it has none."""
    inner = query.vector if type(query) is SecondMoment else query
    if type(query) not in RATIO or (inner is not query and type(inner) is not PerRecord):
        raise Refused(
            f"a release sums {type(query).__name__}, whose sensitivity is not proved; "
            "use door.sum, door.gradient or door.second_moment"
        )
    return RATIO[type(query)]
