"""The operations of torch that are layers, as functions of JAX: products, convolutions, norms, pools, resizing.

They use the products and convolutions that core/leaves.py recognises, so that per-record gradients of their weights
need not be formed.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedsofim.errors import Refused
from fedsofim.models.adapters.torch_operations import Shaped, operation, typed


def each(value: int | Sequence[int], count: int) -> list[int]:
    """Return one number for each dimension, where torch takes one for all."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


# --- products -----------------------------------------------------------------------------------------------


@operation("mm.default", "bmm.default")
def _product(out: Shaped, self: Any, mat2: Any) -> Any:
    return jnp.matmul(self, mat2)


@operation("addmm.default")
def _addmm(out: Shaped, self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    product = jnp.matmul(mat1, mat2)
    product = product if alpha == 1 else product * typed(alpha, out.dtype)
    return product + (self if beta == 1 else self * typed(beta, out.dtype))


@operation("_trilinear.default")
def _trilinear(
    out: Shaped, i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int
) -> Any:
    a, b, c = (jnp.expand_dims(i, tuple(e)) for i, e in ((i1, expand1), (i2, expand2), (i3, expand3)))
    return jnp.sum(a * b * c, axis=tuple(sumdim))


# --- convolutions -------------------------------------------------------------------------------------------


@operation("convolution.default")
def _convolution(
    out: Shaped, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    space = input.ndim - 2
    stride, padding, dilation, extra = (each(v, space) for v in (stride, padding, dilation, output_padding))
    how: dict[str, Any] = {"rhs_dilation": dilation, "feature_group_count": groups}
    if transposed:
        weight = _turned(weight, groups)
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        sides = [(r - p, r - p + e) for r, p, e in zip(reach, padding, extra, strict=True)]
        found = _convolved(input, weight, (1,) * space, sides, lhs_dilation=stride, **how)
    else:
        found = _convolved(input, weight, stride, [(p, p) for p in padding], **how)
    return found if bias is None else found + bias.reshape(-1, *[1] * space)


def _convolved(input: Any, weight: Any, stride: Any, sides: Any, **how: Any) -> Any:
    """Channels stand last, as XLA computes fastest on a processor."""
    space = input.ndim - 2
    letters = "DHW"[3 - space :]
    names = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    image = jnp.moveaxis(input, 1, -1)
    kernel = weight.transpose(*range(2, 2 + space), 1, 0)
    found = jax.lax.conv_general_dilated(image, kernel, stride, sides, dimension_numbers=names, **how)
    return jnp.moveaxis(found, -1, 1)


def _turned(weight: Any, groups: int) -> Any:
    """(inputs, outputs of a group, ...) as the weight (outputs, inputs of a group, ...) of the convolution it turns."""
    inputs, outputs, *window = weight.shape
    parts = weight.reshape(groups, inputs // groups, outputs, *window).swapaxes(1, 2)
    parts = parts.reshape(groups * outputs, inputs // groups, *window)
    return jnp.flip(parts, tuple(range(2, parts.ndim)))


# --- norms --------------------------------------------------------------------------------------------------


def _normed(x: Any, axes: tuple[int, ...], eps: Any) -> Any:
    centred = x - jnp.mean(x, axis=axes, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=axes, keepdims=True) + typed(eps, x.dtype))


def _affine(x: Any, weight: Any, bias: Any, shape: tuple[int, ...]) -> Any:
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _by_channel(x: Any) -> tuple[int, ...]:
    return (-1, *[1] * (x.ndim - 2))


@operation("native_layer_norm.default")
def _layer_norm(out: Any, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: Any) -> Any:
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    return _affine(_normed(input, axes, eps), weight, bias, tuple(normalized_shape)), None, None


@operation("native_group_norm.default")
def _group_norm(out: Any, input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: Any) -> Any:
    normed = _normed(input.reshape(N, group, -1), (2,), eps).reshape(input.shape)
    return _affine(normed, weight, bias, _by_channel(input)), None, None


@operation("_native_batch_norm_legit_no_training.default")
def _stored_norm(
    out: Any, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: Any, eps: Any
) -> Any:
    shape = _by_channel(input)
    scale = jax.lax.rsqrt(running_var + typed(eps, running_var.dtype))
    normed = (input - running_mean.reshape(shape)) * scale.reshape(shape)
    return _affine(normed, weight, bias, shape), None, None


@operation("_native_batch_norm_legit.no_stats")
def _instance_norm(out: Any, input: Any, weight: Any, bias: Any, training: bool, momentum: Any, eps: Any) -> Any:
    if not training:
        raise Refused("'aten._native_batch_norm_legit' has no statistics to normalise by")
    axes = tuple(a for a in range(input.ndim) if a != 1)
    return _affine(_normed(input, axes, eps), weight, bias, _by_channel(input)), None, None


# --- pools --------------------------------------------------------------------------------------------------


def _windows(
    out: Shaped, x: Any, kernel_size: Any, stride: Any, padding: Any
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return kernel, stride and padding for each dimension of space, and the padding at the end that gives torch's
    size, whether that was rounded down or up."""
    space = len(each(kernel_size, 1)) if len(each(kernel_size, 1)) > 1 else x.ndim - 2
    kernel, low = each(kernel_size, space), each(padding, space)
    step = each(stride, space) if stride else kernel
    sizes = zip(out.shape[-space:], x.shape[-space:], kernel, step, low, strict=True)
    high = [max(0, (o - 1) * s + k - n - p) for o, n, k, s, p in sizes]
    return kernel, step, low, high


def _over_windows(x: Any, start: Any, combine: Any, windows: tuple[list[int], ...]) -> Any:
    kernel, step, low, high = windows
    rest = x.ndim - len(kernel)
    sides = [(0, 0)] * rest + list(zip(low, high, strict=True))
    return jax.lax.reduce_window(x, start, combine, (1,) * rest + tuple(kernel), (1,) * rest + tuple(step), sides)


@operation("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def _max_pool(out: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    if any(d != 1 for d in each(dilation, 1)):
        raise Refused("'aten.max_pool' has a dilation, which is not translated; use dilation=1")
    return _over_windows(self, -jnp.inf, jax.lax.max, _windows(out[0], self, kernel_size, stride, padding)), None


@operation("avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    out: Shaped, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    windows = kernel, _, low, high = _windows(out, self, kernel_size, stride, padding)
    total = _over_windows(self, 0.0, jax.lax.add, windows)
    if divisor_override is not None:
        return total / divisor_override
    padded_more = any(h > p for h, p in zip(high, low, strict=True))  # rounded up: what is beyond counts never
    if not padded_more and (count_include_pad or not any(low)):
        return total / math.prod(kernel)
    rest = self.ndim - len(kernel)
    ones = jnp.ones(self.shape[rest:], self.dtype)
    if count_include_pad:
        within = [(p, min(p, h), 0) for p, h in zip(low, high, strict=True)]
        ones = jax.lax.pad(ones, jnp.ones((), self.dtype), within)
        windows = kernel, windows[1], [0] * len(kernel), [h - w[1] for h, w in zip(high, within, strict=True)]
    return total / _over_windows(ones, 0.0, jax.lax.add, windows)


@operation("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def _adaptive_avg_pool(out: Shaped, self: Any, output_size: Any) -> Any:
    space = len(output_size)
    for axis, size in zip(range(self.ndim - space, self.ndim), out.shape[-space:], strict=True):
        self = _bins(self, axis, size)
    return self


def _bins(x: Any, axis: int, size: int) -> Any:
    """The mean over bins along one axis; a rectangle's mean is the mean of its rows' means."""
    found = x.shape[axis]
    if found % size == 0:
        return jnp.mean(x.reshape(*x.shape[:axis], size, found // size, *x.shape[axis + 1 :]), axis=axis + 1)
    ends = [(i * found // size, -(-(i + 1) * found // size)) for i in range(size)]
    parts = [jnp.mean(jax.lax.slice_in_dim(x, a, b, axis=axis), axis=axis, keepdims=True) for a, b in ends]
    return jnp.concatenate(parts, axis=axis)


@operation("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def _adaptive_max_pool(out: Any, self: Any, output_size: Any) -> Any:
    space = len(output_size)
    sizes = list(zip(self.shape[-space:], out[0].shape[-space:], strict=True))
    if any(n % o for n, o in sizes):
        raise Refused("'aten.adaptive_max_pool' has bins of unequal size, which are not translated")
    kernel = [n // o for n, o in sizes]
    return _over_windows(self, -jnp.inf, jax.lax.max, (kernel, kernel, [0] * space, [0] * space)), None


# --- resizing -----------------------------------------------------------------------------------------------


def _ratio(scale_factors: Any, place: int, size: int, wanted: int) -> float:
    """How far one step in the result goes in the input."""
    return 1 / scale_factors[place] if scale_factors else size / wanted


@operation("upsample_nearest2d.vec")
def _nearest(out: Shaped, input: Any, output_size: Any, scale_factors: Any) -> Any:
    for place, axis in enumerate(range(2, input.ndim)):
        size, wanted = input.shape[axis], out.shape[axis]
        if wanted % size == 0 and _ratio(scale_factors, place, size, wanted) == size / wanted:
            input = jnp.repeat(input, wanted // size, axis=axis)
            continue
        step = jnp.float32(_ratio(scale_factors, place, size, wanted))
        at = jnp.floor(jax.lax.iota(jnp.float32, wanted) * step).astype(jnp.int32)
        input = jnp.take(input, jnp.minimum(at, size - 1), axis=axis, mode="clip")
    return input


@operation("upsample_bilinear2d.vec")
def _linear(out: Shaped, input: Any, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
    for place, axis in enumerate(range(2, input.ndim)):
        size, wanted = input.shape[axis], out.shape[axis]
        at = jax.lax.iota(jnp.float32, wanted)
        if align_corners:
            at = at * jnp.float32((size - 1) / (wanted - 1) if wanted > 1 else 0.0)
        else:
            at = (at + 0.5) * jnp.float32(_ratio(scale_factors, place, size, wanted)) - 0.5
        at = jnp.clip(at, 0, size - 1)
        weights = jnp.maximum(0.0, 1 - jnp.abs(at[:, None] - jax.lax.iota(jnp.float32, size)[None]))
        input = jnp.moveaxis(jnp.tensordot(input, weights, [[axis], [1]]), -1, axis)
    return input
