"""Every JAX primitive that a client's program may hold, with the rule that the walk has for it. All others are refused.

A primitive is known by its object, not by its name alone: one of the same name that JAX did not make is a stranger. A
name that the installed JAX does not have is simply absent, so a new or renamed primitive is refused by name until
somebody has thought about it and written it down here. Nothing that acts (prints, calls back, waits, talks to other
devices, writes to a reference) and nothing that brings rules of its own (custom_vmap, ffi calls) may ever be listed.
Nor what is lowered to a loop that ends when *all* its numbers have converged (incomplete beta and gamma functions):
mapped over records, one of them decides how often the others go round. Nor what a Python function tells what to do
(`reduce`).
"""

import importlib
from collections.abc import Iterable
from enum import Enum
from typing import Any

from jax.extend.core import Primitive


class Rule(Enum):
    """How the walk follows values through a primitive."""

    PURE = "its results are a function of its operands alone; programs it holds are looked into"
    CALL = "it runs the one program it holds, and is replaced by it before anything else happens"
    SCAN = "a loop of known length"
    WHILE = "a loop of unknown length"
    COND = "a choice between programs"
    FOLD = "a key of its own for a number"
    SPLIT = "many keys from one"


_PURE = """
    abs acos acosh add add_any and approx_top_k argmax argmin asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    bitcast_convert_type broadcast_in_dim cbrt ceil cholesky clamp clz complex concatenate conj
    conv_general_dilated convert_element_type copy cos cosh cumlogsumexp cummax cummin cumprod cumsum
    custom_linear_solve digamma div dot_general dynamic_slice dynamic_update_slice eig eigh empty2 eq eq_to erf
    erf_inv erfc exp exp2 expm1 fft floor gather ge gt hessenberg householder_product imag integer_pow iota
    iota_2x32_shape is_finite le le_to lgamma log log1p logistic lt lt_to lu lu_pivots_to_permutation max min mul
    mulhi name ne neg nextafter not optimization_barrier or pad polygamma population_count pow qr random_bits
    random_clone random_seed random_unwrap random_wrap real reduce_and reduce_max reduce_min reduce_or
    reduce_precision reduce_prod reduce_sum reduce_window_max reduce_window_min reduce_window_sum reduce_xor rem
    reshape rev round rsqrt scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub schur
    select_and_gather_add select_and_scatter_add select_n shift_left shift_right_arithmetic shift_right_logical
    sign sin sinh slice sort split sqrt square squeeze stack stop_gradient sub svd tan tanh threefry2x32 tile
    top_k transpose triangular_solve tridiagonal tridiagonal_solve unstack xor zeta
"""
#: The parameter in which a call holds its program. What it says beside that (how to differentiate it, what to keep in
#: memory, where to put it) no longer matters: nobody differentiates a program that has been read.
PROGRAM_OF = {
    "jit": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
}  # fmt: skip
_OTHERS = {
    "scan": Rule.SCAN, "while": Rule.WHILE, "cond": Rule.COND, "random_fold_in": Rule.FOLD, "random_split": Rule.SPLIT,
}  # fmt: skip

RULES = dict.fromkeys(_PURE.split(), Rule.PURE) | dict.fromkeys(PROGRAM_OF, Rule.CALL) | _OTHERS

# Where JAX keeps its primitives: the public list, and the homes of those that it leaves out.
_HOMES = (
    "jax.extend.core.primitives", "jax._src.lax.lax", "jax._src.lax.slicing", "jax._src.lax.linalg", "jax._src.prng",
    "jax._src.lax.other", "jax._src.lax.special", "jax._src.ad_checkpoint", "jax._src.lax.control_flow",
    "jax._src.lax.windowed_reductions", "jax._src.random.core", "jax._src.random.prng",
)  # fmt: skip


def _primitives_in(homes: Iterable[str]) -> Iterable[Primitive]:
    for home in homes:
        try:
            module = importlib.import_module(home)
        except ImportError:  # a JAX that keeps house differently: what lived there is refused
            continue
        yield from (value for value in vars(module).values() if isinstance(value, Primitive))


_KNOWN: dict[str, Primitive] = {}
for _primitive in _primitives_in(_HOMES):
    _KNOWN.setdefault(_primitive.name, _primitive)


def rule_of(primitive: Any) -> Rule | None:
    """The rule for a primitive; None means that it is refused.

    >>> from jax.extend.core import Primitive
    >>> from jax.extend.core.primitives import add_p
    >>> rule_of(add_p).name, rule_of(Primitive("add"))  # not JAX's own
    ('PURE', None)
    """
    return RULES.get(primitive.name) if _KNOWN.get(primitive.name) is primitive else None
