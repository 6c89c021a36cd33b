"""The operations of torch that are translated, each as a function of JAX: the table, arithmetic and reductions.

torch_shapes.py and torch_layers.py add theirs. A function takes the arguments of the operation's ATen
schema by name, defaults filled in, and `out`: the shape and type that torch gives the result, or a tuple of them. What
is not in the table is refused by name, and so is an argument that a function does not take.

Types are float32, int32 (for torch's int64 and int32), uint8 and bool: operands are cast to what torch promotes them
to.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.errors import Refused

Shaped = jax.ShapeDtypeStruct

OPERATIONS: dict[str, Callable[..., Any]] = {}

_WHOLE = 2**31


def operation(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the translation of ATen operations, named as "add.Tensor"."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


def typed(value: Any, dtype: Any) -> Any:
    """Cast an array or a plain number."""
    if isinstance(value, bool | int | float):
        if jnp.issubdtype(dtype, jnp.integer):
            if not (math.isfinite(value) and abs(value) < _WHOLE):
                raise Refused(f"the torch module uses the number {value:g} as a whole number; expected 32 bits")
            value = int(value)
        return np.asarray(value, dtype)[()]
    return value if value.dtype == dtype else value.astype(dtype)


_ORDER: list[Any] = [jnp.dtype(t) for t in (jnp.bool_, jnp.uint8, jnp.int32, jnp.float32)]


def common(*values: Any) -> Any:
    """Return the type that torch promotes operands to; a plain number counts by its kind alone."""
    highest = max((_ORDER.index(v.dtype) for v in values if not isinstance(v, bool | int | float)), default=0)
    for value in values:
        if type(value) is float:
            highest = _ORDER.index(jnp.dtype(jnp.float32))
        elif type(value) is int and highest == 0:
            highest = _ORDER.index(jnp.dtype(jnp.int32))
    return _ORDER[highest]


def true(value: Any) -> Any:
    """Return where a value is not 0."""
    if isinstance(value, bool | int | float):
        return np.bool_(value != 0)
    return value if value.dtype == jnp.bool_ else value != jnp.zeros((), value.dtype)


def axis_of(dim: int, array: Any) -> int:
    """Return a dimension counted from the front."""
    return dim % max(1, array.ndim)


def axes_of(dim: Any, array: Any) -> tuple[int, ...]:
    """Return dimensions counted from the front; none named means all."""
    if dim is None or dim == []:
        return tuple(range(array.ndim))
    return tuple(axis_of(d, array) for d in (dim if isinstance(dim, list) else [dim]))


# --- one operand --------------------------------------------------------------------------------------------


def absolute(x: Any) -> Any:
    """Return |x|, with a slope of 0 at 0, as in torch."""
    return jnp.where(x > 0, x, jnp.where(x < 0, -x, jax.lax.stop_gradient(jnp.abs(x))))


def _bounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An exponential whose slope is 0 where it is infinite: torch.export writes softplus by `where` over one.

    The branch that is not taken has a gradient of 0 there, and 0 times infinity is no number.
    """

    def apply(x: Any) -> Any:
        top = jnp.asarray(_TOP, x.dtype)
        return jnp.where(x > top, jnp.asarray(jnp.inf, x.dtype), function(jnp.minimum(x, top)))

    return apply


_TOP = 88.72283  # the largest float32 whose exponential is one, about


def _elementwise(name: str, function: Callable[..., Any]) -> None:
    def apply(out: Shaped, self: Any) -> Any:
        return function(typed(self, out.dtype))

    OPERATIONS[f"{name}.default"] = apply


for _name, _function in {
    "abs": absolute, "acos": jnp.arccos, "acosh": jnp.arccosh, "asin": jnp.arcsin, "asinh": jnp.arcsinh,
    "atan": jnp.arctan, "atanh": jnp.arctanh, "ceil": jnp.ceil, "cos": jnp.cos, "cosh": jnp.cosh, "erf": jax.lax.erf,
    "erfc": jax.lax.erfc, "exp": _bounded(jnp.exp), "exp2": jnp.exp2, "expm1": _bounded(jnp.expm1),
    "floor": jnp.floor, "log": jnp.log,
    "log10": jnp.log10, "log1p": jnp.log1p, "log2": jnp.log2, "neg": jnp.negative, "relu": jax.nn.relu,
    "round": jnp.round, "rsqrt": jax.lax.rsqrt, "sigmoid": jax.nn.sigmoid, "sign": jnp.sign,
    "sin": jnp.sin, "sinh": jnp.sinh, "sqrt": jnp.sqrt, "tan": jnp.tan, "tanh": jnp.tanh,
    "trunc": jnp.trunc, "bitwise_not": jnp.bitwise_not, "reciprocal": lambda x: 1 / x,
}.items():  # fmt: skip
    _elementwise(_name, _function)


@operation("logical_not.default")
def _logical_not(out: Shaped, self: Any) -> Any:
    return ~true(self)


@operation("isnan.default")
def _isnan(out: Shaped, self: Any) -> Any:
    return self != self


@operation("isinf.default")
def _isinf(out: Shaped, self: Any) -> Any:
    return jnp.abs(typed(self, jnp.float32)) == jnp.inf


@operation("gelu.default")
def _gelu(out: Shaped, self: Any, approximate: str) -> Any:
    if approximate not in ("none", "tanh"):
        raise Refused(f"'aten.gelu' is asked for the approximation {approximate!r}; expected none or tanh")
    return jax.nn.gelu(self, approximate=approximate == "tanh")


@operation("elu.default")
def _elu(out: Shaped, self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    below = jnp.where(self > 0, jnp.zeros((), self.dtype), self)
    return jnp.where(self > 0, self * scale, jnp.expm1(below * input_scale) * (alpha * scale))


@operation("leaky_relu.default")
def _leaky_relu(out: Shaped, self: Any, negative_slope: Any) -> Any:
    return jnp.where(self > 0, self, self * negative_slope)


@operation("rrelu_with_noise_functional.default")
def _rrelu(out: Any, self: Any, noise: Any, lower: Any, upper: Any, training: bool, generator: Any) -> Any:
    if training or generator is not None:
        raise Refused("'aten.rrelu' draws random slopes in training mode; call eval() on the module")
    return _leaky_relu(out[0], self, (lower + upper) / 2), None


@operation("hardtanh.default")
def _hardtanh(out: Shaped, self: Any, min_val: Any, max_val: Any) -> Any:
    low, high = typed(min_val, out.dtype), typed(max_val, out.dtype)
    return jnp.where(self <= low, low, jnp.where(self >= high, high, self))  # no slope at the ends, as in torch


@operation("clamp.default", "clamp.Tensor")
def _clamp(out: Shaped, self: Any, min: Any, max: Any) -> Any:
    found = typed(self, out.dtype)
    if min is not None:
        low = typed(min, out.dtype)
        found = jnp.where(found < low, low, found)  # a slope of 1 at the ends, as in torch
    if max is not None:
        high = typed(max, out.dtype)
        found = jnp.where(found > high, high, found)
    return found


@operation("clone.default")
def _clone(out: Shaped, self: Any, memory_format: Any = None) -> Any:
    return self


@operation("alias.default")
def _alias(out: Shaped, self: Any) -> Any:
    return jax.lax.stop_gradient(self)  # what is left of detach()


@operation("_to_copy.default")
def _to_copy(out: Shaped, self: Any, dtype: Any, non_blocking: bool) -> Any:
    return true(self) if out.dtype == jnp.bool_ else typed(self, out.dtype)


# --- two operands -------------------------------------------------------------------------------------------


def _scaled(other: Any, alpha: Any, dtype: Any) -> Any:
    found = typed(other, dtype)
    return found if alpha == 1 else found * typed(alpha, dtype)


@operation("add.Tensor", "add.Scalar")
def _add(out: Shaped, self: Any, other: Any, alpha: Any) -> Any:
    return jnp.add(typed(self, out.dtype), _scaled(other, alpha, out.dtype))


@operation("sub.Tensor")
def _sub(out: Shaped, self: Any, other: Any, alpha: Any) -> Any:
    return jnp.subtract(typed(self, out.dtype), _scaled(other, alpha, out.dtype))


@operation("mul.Tensor", "mul.Scalar")
def _mul(out: Shaped, self: Any, other: Any) -> Any:
    return jnp.multiply(typed(self, out.dtype), typed(other, out.dtype))


@operation("div.Tensor")
def _div(out: Shaped, self: Any, other: Any) -> Any:
    return jnp.true_divide(typed(self, out.dtype), typed(other, out.dtype))


@operation("div.Tensor_mode")
def _div_mode(out: Shaped, self: Any, other: Any, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return _div(out, self, other)
    if rounding_mode not in ("floor", "trunc"):
        raise Refused(f"'aten.div' is asked to round by {rounding_mode!r}; expected floor or trunc")
    a, b = typed(self, out.dtype), _divisor("div", other, out.dtype)
    if rounding_mode == "floor":
        return jax.lax.stop_gradient(jnp.floor_divide(a, b))
    return jax.lax.stop_gradient(_truncated(a, b, out.dtype))


def _truncated(a: Any, b: Any, dtype: Any) -> Any:
    if not jnp.issubdtype(dtype, jnp.integer):
        return jnp.trunc(jnp.true_divide(a, b))
    a, b = jnp.broadcast_arrays(a, b)
    return jax.lax.div(a, b)


def _divisor(name: str, other: Any, dtype: Any) -> Any:
    """Whole numbers are divided by a plain number only: torch fails on 0, and JAX does not."""
    if jnp.issubdtype(dtype, jnp.integer) and (not isinstance(other, int | float) or other == 0):
        raise Refused(
            f"'aten.{name}' divides whole numbers by computed ones, which fails where these are 0; convert to float "
            "before the division, or divide by a constant"
        )
    return typed(other, dtype)


@operation("remainder.Tensor", "remainder.Scalar")
def _remainder(out: Shaped, self: Any, other: Any) -> Any:
    return jnp.remainder(typed(self, out.dtype), _divisor("remainder", other, out.dtype))


@operation("fmod.Tensor", "fmod.Scalar")
def _fmod(out: Shaped, self: Any, other: Any) -> Any:
    return jnp.fmod(typed(self, out.dtype), _divisor("fmod", other, out.dtype))


@operation("pow.Tensor_Scalar")
def _pow_scalar(out: Shaped, self: Any, exponent: Any) -> Any:
    base = typed(self, out.dtype)
    if float(exponent).is_integer() and abs(exponent) <= 64:
        if exponent == 0:
            return jnp.ones(out.shape, out.dtype)
        return jax.lax.integer_pow(base, int(exponent))
    return jnp.sqrt(base) if exponent == 0.5 else jnp.power(base, typed(exponent, out.dtype))


@operation("pow.Tensor_Tensor", "pow.Scalar")
def _pow(out: Shaped, self: Any, exponent: Any) -> Any:
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise Refused("'aten.pow' raises whole numbers to computed powers; convert to float before")
    return jnp.power(typed(self, out.dtype), typed(exponent, out.dtype))


@operation("atan2.default")
def _atan2(out: Shaped, self: Any, other: Any) -> Any:
    return jnp.arctan2(typed(self, out.dtype), typed(other, out.dtype))


@operation("maximum.default")
def _maximum(out: Shaped, self: Any, other: Any) -> Any:
    return jnp.maximum(typed(self, out.dtype), typed(other, out.dtype))


@operation("minimum.default")
def _minimum(out: Shaped, self: Any, other: Any) -> Any:
    return jnp.minimum(typed(self, out.dtype), typed(other, out.dtype))


def _comparison(name: str, function: Callable[..., Any]) -> None:
    @operation(f"{name}.Tensor", f"{name}.Scalar")
    def compare(out: Shaped, self: Any, other: Any) -> Any:
        dtype = common(self, other)
        return function(typed(self, dtype), typed(other, dtype))


for _name, _function in {
    "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater,
    "ge": jnp.greater_equal,
}.items():  # fmt: skip
    _comparison(_name, _function)


def _logic(name: str, function: Callable[..., Any]) -> None:
    def both(out: Shaped, self: Any, other: Any) -> Any:
        return function(true(self), true(other))

    def bits(out: Shaped, self: Any, other: Any) -> Any:
        return function(typed(self, out.dtype), typed(other, out.dtype))

    OPERATIONS[f"logical_{name}.default"] = both
    OPERATIONS[f"bitwise_{name}.Tensor"] = OPERATIONS[f"bitwise_{name}.Scalar"] = bits


for _name, _function in {"and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor}.items():
    _logic(_name, _function)


@operation("where.self")
def _where(out: Shaped, condition: Any, self: Any, other: Any) -> Any:
    return jnp.where(condition, typed(self, out.dtype), typed(other, out.dtype))


# --- reductions ---------------------------------------------------------------------------------------------


@operation("sum.dim_IntList")
def _sum(out: Shaped, self: Any, dtype: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.sum(typed(self, out.dtype), axis=axes_of(dim, self), keepdims=keepdim, dtype=out.dtype)


@operation("mean.default", "mean.dim")
def _mean(out: Shaped, self: Any, dtype: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.mean(typed(self, out.dtype), axis=axes_of(dim, self), keepdims=keepdim)


@operation("prod.default", "prod.dim_int")
def _prod(out: Shaped, self: Any, dtype: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.prod(typed(self, out.dtype), axis=axes_of(dim, self), keepdims=keepdim, dtype=out.dtype)


@operation("amax.default", "max.default")
def _amax(out: Shaped, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.max(self, axis=axes_of(dim, self), keepdims=keepdim)


@operation("amin.default", "min.default")
def _amin(out: Shaped, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.min(self, axis=axes_of(dim, self), keepdims=keepdim)


@operation("any.default", "any.dim", "any.dims")
def _any(out: Shaped, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.any(true(self), axis=axes_of(dim, self), keepdims=keepdim)


@operation("argmax.default")
def _argmax(out: Shaped, self: Any, dim: int | None, keepdim: bool) -> Any:
    return jnp.argmax(self, axis=dim, keepdims=keepdim).astype(out.dtype)


@operation("argmin.default")
def _argmin(out: Shaped, self: Any, dim: int | None, keepdim: bool) -> Any:
    return jnp.argmin(self, axis=dim, keepdims=keepdim).astype(out.dtype)


@operation("max.dim")
def _max_dim(out: Any, self: Any, dim: int, keepdim: bool) -> Any:
    return _where_found(out, self, dim, jnp.argmax(self, axis=dim, keepdims=True))


@operation("min.dim")
def _min_dim(out: Any, self: Any, dim: int, keepdim: bool) -> Any:
    return _where_found(out, self, dim, jnp.argmin(self, axis=dim, keepdims=True))


def _where_found(out: Any, array: Any, dim: int, index: Any) -> Any:
    """The slope goes to the one number that was found, as in torch."""
    values = jnp.take_along_axis(array, index, axis=dim)
    return values.reshape(out[0].shape), index.reshape(out[1].shape).astype(out[1].dtype)


@operation("var.correction")
def _var(out: Shaped, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return _moments(self, dim, correction, keepdim)[0]


@operation("var_mean.correction")
def _var_mean(out: Any, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return _moments(self, dim, correction, keepdim)


def _moments(array: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    axes = axes_of(dim, array)
    count = math.prod(array.shape[a] for a in axes)
    mean = jnp.mean(array, axis=axes, keepdims=True)
    squares = jnp.sum(jnp.square(array - mean), axis=axes, keepdims=keepdim)
    left = max(0.0, count - (1 if correction is None else correction))
    variance = squares / left if left else jnp.full_like(squares, jnp.nan)
    return variance, mean if keepdim else mean.reshape(variance.shape)


@operation("cumsum.default")
def _cumsum(out: Shaped, self: Any, dim: int, dtype: Any) -> Any:
    return jnp.cumsum(typed(self, out.dtype), axis=dim, dtype=out.dtype) if self.ndim else typed(self, out.dtype)


@operation("_softmax.default")
def _softmax(out: Shaped, self: Any, dim: int, half_to_float: bool) -> Any:
    return jax.nn.softmax(self, axis=dim)


@operation("_log_softmax.default")
def _log_softmax(out: Shaped, self: Any, dim: int, half_to_float: bool) -> Any:
    return jax.nn.log_softmax(self, axis=dim)


@operation("linalg_vector_norm.default")
def _norm(out: Shaped, self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    axes = axes_of(dim, self)
    if ord == 1:
        return jnp.sum(absolute(self), axis=axes, keepdims=keepdim)
    if ord == math.inf:
        return jnp.max(absolute(self), axis=axes, keepdims=keepdim)
    if ord != 2:
        raise Refused(f"'aten.linalg_vector_norm' is of order {ord:g}; expected 1, 2 or infinity")
    squares = jnp.sum(jnp.square(self), axis=axes, keepdims=keepdim)
    there = squares != 0  # at 0 the slope is 0, as in torch
    return jnp.where(there, jnp.sqrt(jnp.where(there, squares, jnp.ones((), squares.dtype))), squares)


@operation("sort.default", "sort.stable")
def _sort(out: Any, self: Any, dim: int, descending: bool, stable: Any = None) -> Any:
    order = jnp.argsort(self, axis=dim, descending=descending, stable=True)
    return jnp.take_along_axis(self, order, axis=dim), order.astype(out[1].dtype)


@operation("topk.default")
def _topk(out: Any, self: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    order = jnp.argsort(self, axis=dim, descending=largest, stable=True)
    order = jax.lax.slice_in_dim(order, 0, k, axis=axis_of(dim, self))
    return jnp.take_along_axis(self, order, axis=dim), order.astype(out[1].dtype)
