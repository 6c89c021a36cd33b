"""The operations of torch that place numbers, as functions of JAX: shapes, constants, indices, tables."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.errors import Refused
from fedsofim.models.adapters.torch_operations import Shaped, axes_of, axis_of, operation, true, typed

# --- shapes -------------------------------------------------------------------------------------------------


@operation("view.default", "unsqueeze.default", "squeeze.dims")
def _reshape(out: Shaped, self: Any, **_: Any) -> Any:
    return self.reshape(out.shape)  # the same numbers in the same order: the shape is torch's


@operation("permute.default")
def _permute(out: Shaped, self: Any, dims: list[int]) -> Any:
    return self.transpose([axis_of(d, self) for d in dims])


@operation("expand.default")
def _expand(out: Shaped, self: Any, size: Any, implicit: bool) -> Any:
    return jnp.broadcast_to(self, out.shape)


@operation("repeat.default")
def _repeat(out: Shaped, self: Any, repeats: list[int]) -> Any:
    return jnp.tile(self.reshape((1,) * (len(repeats) - self.ndim) + self.shape), repeats)


@operation("flip.default")
def _flip(out: Shaped, self: Any, dims: list[int]) -> Any:
    return jnp.flip(self, axes_of(dims, self)) if dims else self


@operation("cat.default")
def _cat(out: Shaped, tensors: list[Any], dim: int) -> Any:
    full = [typed(t, out.dtype) for t in tensors if t.shape != (0,)]  # torch leaves these out
    return jnp.concatenate(full, axis=dim)


@operation("split_with_sizes.default")
def _split(out: Any, self: Any, split_sizes: list[int], dim: int) -> Any:
    ends = np.cumsum(split_sizes)
    axis = axis_of(dim, self)
    return tuple(
        jax.lax.slice_in_dim(self, int(e) - s, int(e), axis=axis) for s, e in zip(split_sizes, ends, strict=True)
    )


@operation("slice.Tensor")
def _slice(out: Shaped, self: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    axis, places = axis_of(dim, self), _places(self, dim, start, end, step)
    return jax.lax.slice_in_dim(self, places.start, max(places.start, places.stop), step, axis=axis)


def _places(array: Any, dim: int, start: int | None, end: int | None, step: int) -> range:
    return range(*slice(start, end, step).indices(array.shape[dim]))


@operation("select.int")
def _select(out: Shaped, self: Any, dim: int, index: int) -> Any:
    return jax.lax.index_in_dim(self, index, axis_of(dim, self), keepdims=False)


@operation("slice_scatter.default")
def _slice_scatter(out: Shaped, self: Any, src: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    axis, places = axis_of(dim, self), _places(self, dim, start, end, step)
    source = jnp.broadcast_to(typed(src, self.dtype), (*self.shape[:axis], len(places), *self.shape[axis + 1 :]))
    if step == 1:
        sides = [(0, places.start), (places.start + len(places), self.shape[axis])]
        before, after = (jax.lax.slice_in_dim(self, a, b, axis=axis) for a, b in sides)
        return jnp.concatenate([before, source, after], axis=axis)
    return self.at[(slice(None),) * axis + (slice(places.start, places.stop, step),)].set(source)


@operation("constant_pad_nd.default")
def _constant_pad(out: Shaped, self: Any, pad: list[int], value: Any) -> Any:
    sides = [(0, 0, 0)] * (self.ndim - len(pad) // 2)
    sides += [(pad[i], pad[i + 1], 0) for i in range(len(pad) - 2, -1, -2)]
    return jax.lax.pad(self, jnp.asarray(typed(value, self.dtype)), sides)


@operation("copy.default")
def _copy(out: Shaped, self: Any, src: Any, non_blocking: bool) -> Any:
    return jnp.broadcast_to(true(src) if out.dtype == jnp.bool_ else typed(src, out.dtype), out.shape)


@operation("diagonal.default")
def _diagonal(out: Shaped, self: Any, offset: int, dim1: int, dim2: int) -> Any:
    return jnp.diagonal(self, offset, dim1, dim2)


# --- made of nothing ----------------------------------------------------------------------------------------


@operation("full.default", "full_like.default")
def _full(out: Shaped, fill_value: Any, dtype: Any, size: Any = None, self: Any = None) -> Any:
    return jnp.full(out.shape, typed(fill_value, out.dtype), out.dtype)


@operation("empty.memory_format")
def _empty(out: Shaped, size: Any, dtype: Any) -> Any:
    return jnp.zeros(out.shape, out.dtype)


@operation("scalar_tensor.default")
def _scalar(out: Shaped, s: Any, dtype: Any) -> Any:
    return jnp.full((), typed(s, out.dtype), out.dtype)


@operation("arange.start_step")
def _arange(out: Shaped, start: Any, end: Any, step: Any, dtype: Any) -> Any:
    steps = jax.lax.iota(jnp.int32, out.shape[0]).astype(out.dtype)
    if step != 1:
        steps = steps * typed(step, out.dtype)
    return steps + typed(start, out.dtype) if start else steps


# --- indices ------------------------------------------------------------------------------------------------
# Where torch fails on an index, the result is NaN: a record on which the module fails contributes zero.


def _not_negative(index: Any, size: int) -> Any:
    return jnp.where(index < 0, size, index)


def _positions(self: Any, indices: list[Any]) -> tuple[Any, ...]:
    if any(i is not None and i.dtype != jnp.int32 for i in indices):
        raise Refused(
            "'aten.index' picks by a mask of true and false, so how much it gives depends on the record; use "
            "torch.where"
        )
    return tuple(slice(None) if i is None else i for i in indices)


@operation("index.Tensor")
def _index(out: Shaped, self: Any, indices: list[Any]) -> Any:
    return self.at[_positions(self, indices)].get(mode="fill")


@operation("index_put.default")
def _index_put(out: Shaped, self: Any, indices: list[Any], values: Any, accumulate: bool) -> Any:
    at = self.at[_positions(self, indices)]
    return at.add(values) if accumulate else at.set(values)


@operation("index_select.default")
def _index_select(out: Shaped, self: Any, dim: int, index: Any) -> Any:
    axis = axis_of(dim, self)
    return jnp.take(self, _not_negative(index, self.shape[axis]), axis=axis, mode="fill")


def _grid(index: Any, axis: int, size: int) -> tuple[Any, ...]:
    """Return the places that an index along one axis means, as torch's gather and scatter read it."""
    grid = [jax.lax.broadcasted_iota(jnp.int32, index.shape, a) for a in range(index.ndim)]
    grid[axis] = _not_negative(index, size)
    return tuple(grid)


@operation("gather.default")
def _gather(out: Shaped, self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    axis = axis_of(dim, self)
    return self.at[_grid(index, axis, self.shape[axis])].get(mode="fill")


@operation("scatter.value", "scatter.src")
def _scatter(out: Shaped, self: Any, dim: int, index: Any, value: Any = None, src: Any = None) -> Any:
    axis = axis_of(dim, self)
    at = self.at[_grid(index, axis, self.shape[axis])]
    return at.set(typed(value, self.dtype) if src is None else _corner(src, index))


@operation("scatter_add.default")
def _scatter_add(out: Shaped, self: Any, dim: int, index: Any, src: Any) -> Any:
    axis = axis_of(dim, self)
    return self.at[_grid(index, axis, self.shape[axis])].add(_corner(src, index))


def _corner(src: Any, index: Any) -> Any:
    return jax.lax.slice(src, [0] * src.ndim, index.shape)


@operation("embedding.default")
def _embedding(out: Shaped, weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Any:
    if scale_grad_by_freq:
        raise Refused("'aten.embedding' scales gradients by how often a row is used; set scale_grad_by_freq=False")
    rows = jnp.take(weight, _not_negative(indices, weight.shape[0]), axis=0, mode="fill")
    if padding_idx < 0:
        return rows
    return jnp.where((indices == padding_idx)[..., None], jax.lax.stop_gradient(rows), rows)
