"""Equations that are sums of outer products, Σ_t a_t ⊗ g_t: how their operands become the factors a and g.

A gradient meets the records where the program met its parameters: in a product X·W the gradient of W is Σ_t x_t ⊗ g_t over
the rows of X, in a convolution it is the same over the positions of an image, with patches for x. Here a
`dot_general` or a `conv_general_dilated` is read as that, for one record; and a convolution of two things of a record, which
XLA cannot map over records but one by one, is computed as that.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_POSITIONS = 256  # of a convolution's result; more are left to XLA, since every one is a slice of its own
EXACT = jax.lax.Precision.HIGHEST  # products of floats as floats, also where a machine has something faster


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
    if not all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in (*eqn.invars, *eqn.outvars)):
        return None
    if eqn.primitive.name == "dot_general":
        return _dot_sizes(eqn)
    if eqn.primitive.name == "conv_general_dilated" and _plain(eqn):
        left, right, out = _conv_shapes(eqn)
        return Sizes(1, math.prod(right[1:]), left[0] * math.prod(out), right[0])
    return None


def factors(eqn: Any, left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One record's a (batch, terms, rows) and g (batch, terms, columns)."""
    sizes = sizes_of(eqn)
    assert sizes is not None
    if eqn.primitive.name == "dot_general":
        contracted, batched = eqn.params["dimension_numbers"]
        a = _in_order(left, batched[0], contracted[0]).reshape(sizes.batch, sizes.terms, sizes.rows)
        return a, _in_order(right, batched[1], contracted[1]).reshape(sizes.batch, sizes.terms, sizes.columns)
    patches, g = _patches(eqn, left), _by_feature(eqn, right)
    return jnp.swapaxes(patches, 0, 1)[None], jnp.swapaxes(g, 0, 1)[None]


def result(eqn: Any, matrices: jax.Array) -> jax.Array:
    """What the equation gives, from Σ_t a_t ⊗ g_t as (batch, rows, columns), of any dtype."""
    shape = eqn.outvars[0].aval.shape
    if eqn.primitive.name == "dot_general":
        return matrices.reshape(shape)
    numbers = eqn.params["dimension_numbers"]
    left, right, out = _conv_shapes(eqn)
    apart = matrices.reshape(*out, left[0], right[0])
    spatial = len(out)
    order = [0] * len(shape)
    for i, axis in enumerate(numbers.out_spec):
        order[axis] = spatial + i if i < 2 else i - 2
    return apart.transpose(order)


def convolved(eqn: Any, left: jax.Array, right: jax.Array) -> jax.Array:
    """One record's convolution of two things of its own, as a product with patches."""
    product = jnp.matmul(_patches(eqn, left), jnp.swapaxes(_by_feature(eqn, right), 0, 1), precision=EXACT)
    return result(eqn, product[None]).astype(eqn.outvars[0].aval.dtype)


# --- products -----------------------------------------------------------------------------------------------


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


# --- convolutions -------------------------------------------------------------------------------------------


def _plain(eqn: Any) -> bool:
    p = eqn.params
    return p["feature_group_count"] == p["batch_group_count"] == 1 and math.prod(_conv_shapes(eqn)[2]) <= _POSITIONS


def _conv_shapes(eqn: Any) -> tuple[list[int], list[int], list[int]]:
    """(batch, features, positions) of the left, (new features, features, window) of the right, positions of the result."""
    numbers = eqn.params["dimension_numbers"]
    left, right, out = (v.aval.shape for v in (*eqn.invars, *eqn.outvars))
    return (
        [left[i] for i in numbers.lhs_spec],
        [right[i] for i in numbers.rhs_spec],
        [out[i] for i in numbers.out_spec[2:]],
    )


def _patches(eqn: Any, left: jax.Array) -> jax.Array:
    """(positions of the result · batch, features · window): what each number of the result is a product with."""
    p = eqn.params
    (batch, _, *_), (_, features, *window), out = _conv_shapes(eqn)
    gaps = [(low, high, dilation - 1) for (low, high), dilation in zip(p["padding"], p["lhs_dilation"], strict=True)]
    padded = jax.lax.pad(
        left.transpose(p["dimension_numbers"].lhs_spec), jnp.zeros((), left.dtype), [(0, 0, 0), (0, 0, 0), *gaps]
    )

    def at(position: Sequence[int]) -> jax.Array:
        starts = [i * stride for i, stride in zip(position, p["window_strides"], strict=True)]
        ends = [s + (w - 1) * d + 1 for s, w, d in zip(starts, window, p["rhs_dilation"], strict=True)]
        return jax.lax.slice(padded, (0, 0, *starts), (*padded.shape[:2], *ends), (1, 1, *p["rhs_dilation"]))

    slices = [at(position) for position in itertools.product(*map(range, out))]
    return jnp.stack(slices).reshape(math.prod(out) * batch, features * math.prod(window))


def _by_feature(eqn: Any, right: jax.Array) -> jax.Array:
    """(new features, features · window)."""
    numbers = eqn.params["dimension_numbers"]
    return right.transpose(numbers.rhs_spec).reshape(right.shape[numbers.rhs_spec[0]], -1)
