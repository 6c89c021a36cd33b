"""The clipped sum of a block of records' vectors, from the parts of their leaves (leaves.py), a micro-batch at a time.

What is in memory of a record are its parts: rows of formed leaves, factors a and g of the others. They are evaluated
once; lengths are measured on them and the sum is formed of them.

- **Formed**: the row is measured, and added up with its factor. Rows of a table: the same.
- **Apart**: |a ⊗ g| = |a|·|g| exactly, and in Σ_n f_n·a_n ⊗ g_n nothing cancels within a record, so the sum rounds as
  one of formed rows does, and once more for f·g.
- **Gram**: terms of one record may cancel, and floats see |v|² only up to γ·S², where S = Σ_t |a_t|·|g_t| and γ is the
  number of roundings times their size. So the length is taken to be sqrt(|v|² + γ·S²), not less than the true one.
  And a group is added up in so many parts that each has at most 64 terms; then its rounding is that of 64 vectors of
  length S/parts, and a record is clipped as if it were at least that long.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr

from fedsofim.core.clipping import GROUP, add_up, clip_factor, evaluated_once, guarded, square_sum
from fedsofim.core.grouping import divisor, groups_of, over_groups, padded
from fedsofim.core.lattice import Lattice, Whole
from fedsofim.core.leaves import Form, Leaf, evaluated, gram_roundings
from fedsofim.core.lookups import tables
from fedsofim.core.windows import EXACT

_MICRO_BATCH = 2**19  # numbers of formed leaves held at a time: what a cache holds; they are read twice
_IN_MEMORY = 2**21  # numbers of everything that is held
_SUMS = 3 * 2**17  # numbers of groups' sums held at a time
_LEAST = 16  # records of a micro-batch, where a group is added up in parts


class Squares(NamedTuple):
    """Of a leaf's length, and of what its sum rounds like: (records,)."""

    length: jax.Array
    rounding: jax.Array


def tiles(leaves: Sequence[Leaf], records: int) -> tuple[int, int]:
    """(groups, records in each) of a block."""
    parts = max(leaf.groups for leaf in leaves)
    return groups_of(records) if parts == 1 else (-(-records // GROUP), GROUP)


def lattice_groups(leaves: Sequence[Leaf], records: int) -> int:
    """How many sums of floats a block of so many records is added up in."""
    return tiles(leaves, records)[0] * max(leaf.groups for leaf in leaves)


def block_sum(
    jaxpr: Jaxpr, leaves: Sequence[Leaf], consts: Sequence, block: tuple[jax.Array, ...], clip: float, lattice: Lattice
) -> list[Whole]:
    """The sum of one block's weight·clip(vector), on the lattice. `block` is x, y and weight."""
    groups, size = tiles(leaves, len(block[1]))
    fit = fitting(leaves)
    micro, together = divisor(size, fit), divisor(groups, max(1, min(fit // size, _SUMS // _numbers(leaves))))
    split = [
        padded(a, groups * size).reshape(-1, together, size // micro, micro, *a.shape[1:]).swapaxes(1, 2) for a in block
    ]  # (steps, micro-batches of a group, groups together, records of a micro-batch)

    def in_floats(total: list[jax.Array], batch: tuple[jax.Array, ...]) -> tuple[list[jax.Array], None]:
        return add(total, micro_sums(jaxpr, leaves, consts, *batch, clip=clip)), None

    def step(total: list[Whole], batch: tuple[jax.Array, ...]) -> tuple[list[Whole], None]:
        if micro == size:
            sums = micro_sums(jaxpr, leaves, consts, *(a[0] for a in batch), clip=clip)
        else:
            zeros = [jnp.zeros((together * leaf.groups, leaf.numbers), leaf.dtype) for leaf in leaves]
            sums = jax.lax.scan(in_floats, zeros, batch)[0]
        return add(total, [over_groups(lattice.whole(s)) for s in sums]), None

    none = [lattice.whole(jnp.zeros(leaf.numbers, leaf.dtype)) for leaf in leaves]
    rows = jax.lax.scan(step, none, tuple(split))[0]
    return [jax.tree.map(leaf.of_row, row) for leaf, row in zip(leaves, rows, strict=True)]


def micro_sums(
    jaxpr: Jaxpr, leaves: Sequence[Leaf], consts: Sequence, x: Any, y: Any, weight: Any, clip: float
) -> list[jax.Array]:
    """Sums in floats of (groups, records of each): one row for each group, or for each part of one."""
    flat = [a.reshape(-1, *a.shape[2:]) for a in (x, y)]

    def parts(x: jax.Array) -> list[tuple[jax.Array, ...]]:
        return jax.vmap(lambda a, b: evaluated(jaxpr, leaves, consts, a, b))(x, flat[1])

    found = evaluated_once(parts, flat[0], weight)
    norm = lengths(leaves, found)
    factor = (clip_factor(norm, guarded(clip)) * weight.reshape(-1).astype(norm.dtype)).reshape(weight.shape)

    def sums(factor: jax.Array, found: list) -> list[jax.Array]:
        return [_summed(leaf, factor, part) for leaf, part in zip(leaves, found, strict=True)]

    def of_finite(factor: jax.Array, found: list) -> list[jax.Array]:
        """With zeros for records of factor 0, which may hold NaN: 0·NaN would reach the rest of the group."""
        keep = factor.reshape(-1) > 0
        return sums(factor, jax.tree.map(lambda a: jnp.where(_along(keep, a), a, jnp.zeros((), a.dtype)), found))

    return jax.lax.cond(jnp.all(jnp.isfinite(norm)), sums, of_finite, factor, found)


# --- lengths ------------------------------------------------------------------------------------------------


def lengths(leaves: Sequence[Leaf], found: Sequence[tuple[jax.Array, ...]]) -> jax.Array:
    """What each record is clipped by: |v| over all leaves jointly, or more where that is not certain.

    Squares below 2^-126 may count as 0: next to the square of the least clip, 1e-18, a billion of them are nothing.
    """
    squares = [_squares(leaf, part, len(leaves)) for leaf, part in zip(leaves, found, strict=True)]
    joint = [add_up(jnp.stack(list(kind), axis=-1)) for kind in zip(*squares, strict=True)]
    return jnp.sqrt(jnp.maximum(*joint))


def _squares(leaf: Leaf, part: tuple[jax.Array, ...], leaves: int) -> Squares:
    if leaf.form in (Form.FORMED, Form.LOOKUP):
        found = square_sum(part[-1].reshape(len(part[-1]), -1))
        return Squares(found, found)
    if leaf.form is Form.APART:
        sides = [square_sum(f[:, :, 0]) + _vanished(f) for f in leaf.factors(part)]
        found = add_up(sides[0] * sides[1])
        return Squares(found, found)
    return _gram_squares(leaf, part, leaves)


def _gram_squares(leaf: Leaf, part: tuple[jax.Array, ...], leaves: int) -> Squares:
    """Σ_tt' (a_t·a_t')(g_t·g_t') + γ·S², and (S/parts)², with S = Σ_t |a_t|·|g_t|."""
    unit = float(jnp.finfo(leaf.dtype).eps) / 2
    sides = leaf.factors(part)
    products = [jnp.matmul(f, jnp.swapaxes(f, -1, -2), precision=EXACT) for f in sides]
    found = jnp.maximum(jnp.sum(products[0] * products[1], axis=(1, 2, 3)), 0.0)
    long = [jnp.sqrt(square_sum(f) + _vanished(f) / unit) for f in sides]
    most = jnp.sum(jnp.square(jnp.sum(long[0] * long[1], axis=2)), axis=1)
    return Squares(found + 1.1 * gram_roundings(leaf.sizes, leaves) * unit * most, most / leaf.groups**2)


def _vanished(factor: jax.Array) -> float:
    """What squares that are too small for floats can add up to. The other factor may be so long that they matter."""
    return factor.shape[-1] * float(jnp.finfo(factor.dtype).tiny)


# --- sums ---------------------------------------------------------------------------------------------------


def _summed(leaf: Leaf, factor: jax.Array, part: tuple[jax.Array, ...]) -> jax.Array:
    """Every group's Σ factor·leaf as a product: factor (groups, n), parts (groups·n, ...).

    However the product adds up its terms, at most GROUP of them, with fused multiply-adds or without, it rounds each at
    most GROUP + 1 times, and once more where it was multiplied by its factor before.
    """
    groups, size = factor.shape
    factor = factor.astype(leaf.dtype)
    if leaf.form is Form.FORMED:
        return jnp.matmul(factor[:, None], part[0].reshape(groups, size, -1), precision=EXACT)[:, 0]
    if leaf.form is Form.LOOKUP:
        return tables(leaf.terms[0].eqn, factor, *part)
    s = leaf.sizes
    scaled = 0 if s.rows < s.columns else 1
    sides = leaf.factors(part)
    sides[scaled] = sides[scaled] * _along(factor.reshape(-1), sides[scaled])
    tiled = [f.reshape(groups * leaf.groups, size // leaf.groups, *f.shape[1:]) for f in sides]
    out = jnp.einsum("gnbtk,gnbtc->gbkc", *tiled, precision=EXACT)
    return out.reshape(len(out), leaf.numbers)


def _along(values: jax.Array, like: jax.Array) -> jax.Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))


def fitting(leaves: Sequence[Leaf]) -> int:
    """How many records are held at a time."""
    formed = sum(leaf.numbers for leaf in leaves if leaf.form is Form.FORMED)
    held = sum(leaf.held for leaf in leaves)
    least = _LEAST if any(leaf.groups > 1 for leaf in leaves) else 1
    return max(least, min(_MICRO_BATCH // max(1, formed), _IN_MEMORY // max(1, held)))


def _numbers(leaves: Sequence[Leaf]) -> int:
    return max(1, sum(leaf.numbers * leaf.groups for leaf in leaves))


def add(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)
