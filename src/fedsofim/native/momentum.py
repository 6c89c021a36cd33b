"""The server's momentum and its two inner products in one pass over memory: M ← βM + (1-β)G, |M|², M·G.

XLA's CPU compiler makes a pass of each inner product, the second on one core, and writes M in another. Here M and G
are read once and M is written where it was (momentum.cc).
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from fedsofim.native import target, why_not

LEAST = 2**13  # numbers: below, calling out of a compiled program costs more than the pass saves


def fits(m: Any, g: Any) -> bool:
    """Is this a leaf for the library?"""
    return m.size >= LEAST and m.dtype == g.dtype == jnp.float32 and not why_not("momentum")


def momentum_pass(m: jax.Array, g: jax.Array, beta: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(M', |M'|², M'·G) of one leaf, M' = βM + (1-β)G."""
    found, square, product = momentum_p.bind(m, g, jnp.asarray(beta, jnp.float32))
    return found, square, product


#: The pass as an operation of its own, which a method's server may hold (core/sealed.py).
momentum_p = Primitive("fedsofim_momentum")
momentum_p.multiple_results = True


@momentum_p.def_abstract_eval
def _shapes(m: Any, g: Any, beta: Any) -> list[ShapedArray]:
    number = ShapedArray((), jnp.dtype(jnp.float32))
    return [ShapedArray(m.shape, jnp.dtype(jnp.float32)), number, number]


def _one(m: jax.Array, g: jax.Array, beta: jax.Array) -> list[jax.Array]:
    outputs = (jax.ShapeDtypeStruct(m.shape, jnp.float32), jax.ShapeDtypeStruct((2,), jnp.float32))
    m, sums = jax.ffi.ffi_call(target("momentum"), outputs, input_output_aliases={0: 0})(m, g, beta)
    return [m, sums[0], sums[1]]


def _side_by_side(operands: Sequence[jax.Array], dims: Sequence[Any]) -> tuple[list[jax.Array], list[int]]:
    """In a sweep, one setting after another: each is a pass of its own anyway."""
    moved = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(operands, dims, strict=True)]
    mapped = [d is not None for d in dims]
    size = next(len(a) for a, m in zip(moved, mapped, strict=True) if m)

    def one(index: jax.Array) -> list[jax.Array]:
        return momentum_p.bind(*[a[index] if m else a for a, m in zip(moved, mapped, strict=True)])

    return jax.lax.map(one, jnp.arange(size)), [0, 0, 0]


momentum_p.def_impl(jax.jit(_one))
mlir.register_lowering(momentum_p, mlir.lower_fun(_one, multiple_results=True))
batching.primitive_batchers[momentum_p] = _side_by_side
