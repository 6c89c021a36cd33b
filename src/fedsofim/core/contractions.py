"""Equations that are sums of outer products, Σ_t a_t ⊗ g_t: how their operands become the factors a and g.

A gradient meets the records where the program met its parameters: in a product X·W the gradient of W is Σ_t x_t ⊗ g_t
over the rows of X, in a convolution the same over the positions of an image, with patches for x. Here a
`dot_general` or a `conv_general_dilated` of two things of a record is read as that.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsofim.core.windows import EXACT, Conv, Patches, conv_of, cuttable


class Sizes(NamedTuple):
    """Σ_t a_t ⊗ g_t with t < terms, a_t of `rows` numbers and g_t of `columns`; `batch` times side by side."""

    batch: int
    terms: int
    rows: int
    columns: int

    @property
    def numbers(self) -> int:
        return self.batch * self.rows * self.columns


def sizes_of(eqn: Any) -> Sizes | None:
    """The sizes of an equation as a sum of outer products; None where it is something else."""
    if eqn.primitive.name not in ("dot_general", "conv_general_dilated"):
        return None
    if not all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in (*eqn.invars, *eqn.outvars)):
        return None
    if eqn.primitive.name == "dot_general":
        return _dot_sizes(eqn)
    conv = conv_of(eqn)
    if conv is None or not cuttable(conv):
        return None
    return Sizes(1, math.prod(conv.right[1:]), conv.out[0] * math.prod(conv.positions), conv.right[0])


def factors(eqn: Any, patches: Patches, left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One record's a (batch, terms, rows) and g (batch, terms, columns)."""
    conv = conv_of(eqn)
    if conv is not None:
        cut, letters = patches.of(conv, left)
        return _one(jnp.einsum(f"{letters}->cwob", cut), conv), _one(jnp.einsum("fcw->cwf", _flat(conv, right)), conv)
    s = _dot_sizes(eqn)
    contracted, batched = eqn.params["dimension_numbers"]
    a = _in_order(left, batched[0], contracted[0]).reshape(s.batch, s.terms, s.rows)
    return a, _in_order(right, batched[1], contracted[1]).reshape(s.batch, s.terms, s.columns)


def turned_sum(conv: Conv, patches: Patches, left: jax.Array, right: jax.Array) -> jax.Array:
    """One record's Σ_t g_t ⊗ a_t, (columns, rows): this way round it is quickest."""
    cut, letters = patches.of(conv, left)
    product = jnp.einsum(f"fcw,{letters}->fob", _flat(conv, right), cut, precision=EXACT)
    return product.reshape(conv.right[0], -1)


def result(eqn: Any, matrices: Any) -> Any:
    """What the equation gives, from Σ_t a_t ⊗ g_t as (batch, rows, columns), an array of JAX's or NumPy's."""
    conv = conv_of(eqn)
    if conv is None:
        return matrices.reshape(eqn.outvars[0].aval.shape)
    space = len(conv.positions)
    order = [0] * (2 + space)
    for axis, source in zip(conv.specs.out_spec, (space, space + 1, *range(space)), strict=True):
        order[axis] = source
    return matrices.reshape(*conv.positions, conv.out[0], conv.out[1]).transpose(order)


def _dot_sizes(eqn: Any) -> Sizes:
    contracted, batched = eqn.params["dimension_numbers"]
    left, right = (v.aval.shape for v in eqn.invars)
    batch = math.prod(left[i] for i in batched[0])
    terms = math.prod(left[i] for i in contracted[0])
    both = max(1, batch * terms)
    return Sizes(batch, terms, math.prod(left) // both, math.prod(right) // both)


def _in_order(a: jax.Array, batched: Sequence[int], contracted: Sequence[int]) -> jax.Array:
    rest = [i for i in range(a.ndim) if i not in batched and i not in contracted]
    return a.transpose(*batched, *contracted, *rest)


def _flat(conv: Conv, right: jax.Array) -> jax.Array:
    """(f, c, w)."""
    return right.transpose(conv.specs.rhs_spec).reshape(*conv.right[:2], -1)


def _one(a: jax.Array, conv: Conv) -> jax.Array:
    return a.reshape(1, math.prod(conv.right[1:]), -1)
