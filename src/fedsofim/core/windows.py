"""Convolutions and pooling as a processor computes them fast: as products of matrices, slices and sums.

XLA has no quick way on a CPU for a convolution of few channels, for one with gaps (the gradient of a strided one), for
one of two things of the same record mapped over records, or for the gradient of a maximum over windows: up to a
hundred times the time of the product that it is. Here are those, for one record; what is not listed is left to XLA.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

EXACT = jax.lax.Precision.HIGHEST  # products of floats as floats, also where a machine has something faster
_SLICES = 64  # that one array may be cut into
_FEW = 4  # channels


class Conv(NamedTuple):
    """A convolution without groups: out[b, f, o] = Σ_{c, w} left[b, c, o·stride + w·dilation - low]·right[f, c, w]."""

    params: dict[str, Any]
    left: tuple[int, ...]  # shapes in the order of the formula
    right: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        return self.out[2:]

    @property
    def window(self) -> tuple[int, ...]:
        return self.right[2:]

    @property
    def low(self) -> tuple[int, ...]:
        return tuple(low for low, _ in self.params["padding"])

    @property
    def specs(self) -> Any:
        return self.params["dimension_numbers"]


def conv_of(eqn: Any) -> Conv | None:
    """A convolution in floats and without groups; None for anything else."""
    p = eqn.params
    if eqn.primitive.name != "conv_general_dilated" or not p["feature_group_count"] == p["batch_group_count"] == 1:
        return None
    specs = p["dimension_numbers"]
    shapes = (v.aval.shape for v in (*eqn.invars, *eqn.outvars))
    return Conv(p, *(tuple(s[i] for i in spec) for s, spec in zip(shapes, specs, strict=True)))


class Patches:
    """The patches of one record's arrays; a convolution and its gradient read the same ones, and share them."""

    def __init__(self) -> None:
        self._cut: dict[Any, tuple[jax.Array, jax.Array]] = {}

    def of(self, conv: Conv, left: jax.Array) -> tuple[jax.Array, str]:
        """left[i·stride + j·dilation] for all i and j, as (u, i, j, v), and its letters.

        u and v are the axes that nothing slides along, in their order in memory; i is the larger of the two grids.
        Letters as in the formula of `Conv`: o and w for i and j, b and c for u and v.
        """
        p, specs = conv.params, conv.specs
        grids = [(conv.positions, p["window_strides"], "o"), (conv.window, p["rhs_dilation"], "w")]
        (i, along_i, name_i), (j, along_j, name_j) = sorted(grids, key=lambda grid: -math.prod(grid[0]))
        ends = sorted(specs.lhs_spec[:2])
        names = {specs.lhs_spec[0]: "b", specs.lhs_spec[1]: "c"}
        key = (id(left), conv.low, tuple(i), tuple(along_i), tuple(j), tuple(along_j))
        if key not in self._cut:
            straight = left.transpose(ends[0], *specs.lhs_spec[2:], ends[1])
            found = _cut(straight, conv.low, [*zip(i, along_i, j, along_j, strict=True)])
            self._cut[key] = left, found  # what is held is not another's id
        return self._cut[key][1], names[ends[0]] + name_i + name_j + names[ends[1]]


def cuttable(conv: Conv) -> bool:
    """Is it without gaps, and are its patches few slices?"""
    fewer = min(conv.positions, conv.window, key=math.prod)
    return all(d == 1 for d in conv.params["lhs_dilation"]) and sum(fewer) <= _SLICES


def quick(eqn: Any) -> Callable[[Patches, jax.Array, jax.Array], jax.Array] | None:
    """A quicker way for an equation whose second operand is not of the record, or for a gradient of pooling."""
    if eqn.primitive.name == "select_and_scatter_add":
        fits = math.prod(eqn.params["window_dimensions"]) <= _SLICES // 4
        return (lambda _, source, operand: _to_the_largest(eqn.params, source, operand)) if fits else None
    conv = conv_of(eqn)
    if conv is None:
        return None
    p = conv.params
    if any(d > 1 for d in p["lhs_dilation"]) and all(d == 1 for d in (*p["window_strides"], *p["rhs_dilation"])):
        return lambda _, left, right: _spread(conv, left, right)
    if cuttable(conv) and conv.right[1] <= _FEW:
        return lambda patches, left, right: _cut_and_multiplied(conv, patches, left, right)
    return None


# --- convolutions -------------------------------------------------------------------------------------------


def _cut(a: jax.Array, low: Sequence[int], dims: Sequence[tuple[int, int, int, int]]) -> jax.Array:
    """(u, *space, v) as (u, i, j, v): one dimension of space after another, so that slices are few and long."""
    space = len(low)
    need = [(i - 1) * along_i + (j - 1) * along_j + 1 for i, along_i, j, along_j in dims]
    edges = [(lo, n - lo - size, 0) for lo, n, size in zip(low, need, a.shape[1 : 1 + space], strict=True)]
    a = jax.lax.pad(a, jnp.zeros((), a.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
    for axis in range(space, 0, -1):
        i, along_i, j, along_j = dims[axis - 1]
        starts = [k * along_j for k in range(j)]
        slices = [jax.lax.slice_in_dim(a, s, s + (i - 1) * along_i + 1, along_i, axis) for s in starts]
        a = jax.lax.optimization_barrier(jnp.stack(slices, axis=space + 1))
    grids = [math.prod(d[k] for d in dims) for k in (0, 2)]
    return a.reshape(a.shape[0], *grids, a.shape[-1])


def _cut_and_multiplied(conv: Conv, patches: Patches, left: jax.Array, right: jax.Array) -> jax.Array:
    cut, letters = patches.of(conv, left)
    kernel = right.transpose(conv.specs.rhs_spec).reshape(*conv.right[:2], -1)
    product = jnp.einsum(f"{letters},fcw->bof", cut, kernel, precision=EXACT)
    return _placed(conv, product.reshape(conv.out[0], *conv.positions, conv.out[1]))


def _spread(conv: Conv, left: jax.Array, right: jax.Array) -> jax.Array:
    """With gaps of stride - 1 between the numbers of left: every number of it times the window, laid where it belongs.

    out[o] = Σ left[i]·right[w] over o = low + stride·i - w. With q = (size of the window) - 1 - w = stride·a + r this
    is o = const + stride·(i + a) + r: for each a, the numbers (i, r) lie side by side, and are added as they lie.
    """
    space = len(conv.positions)
    gaps, window = conv.params["lhs_dilation"], conv.window
    turns = [-(-w // s) for w, s in zip(window, gaps, strict=True)]
    kernel = jnp.flip(right.transpose(conv.specs.rhs_spec), range(2, 2 + space))
    kernel = jnp.pad(kernel, [(0, 0)] * 2 + [(0, t * s - w) for t, s, w in zip(turns, gaps, window, strict=True)])
    kernel = jnp.moveaxis(kernel, (0, 1), (-1, 0))  # (c, *window, f)
    inputs = jnp.moveaxis(left.transpose(conv.specs.lhs_spec), 1, -1)  # (b, *i, c)
    apart = [n for t, s in zip(turns, gaps, strict=True) for n in (t, s)]
    products = jnp.tensordot(inputs, kernel, 1, precision=EXACT).reshape(*inputs.shape[:-1], *apart, conv.out[1])
    size = [i * s for i, s in zip(conv.left[2:], gaps, strict=True)]
    canvas = [n + (t - 1) * s for n, t, s in zip(size, turns, gaps, strict=True)]
    total = jnp.zeros((conv.out[0], *canvas, conv.out[1]), products.dtype)
    for turn in itertools.product(*map(range, turns)):
        one = products[(slice(None),) * (1 + space) + tuple(k for a in turn for k in (a, slice(None)))]
        sides = [axis for d in range(space) for axis in (1 + d, 1 + space + d)]
        one = one.transpose(0, *sides, 1 + 2 * space).reshape(len(one), *size, -1)
        edges = [(a * s, c - n - a * s) for a, s, c, n in zip(turn, gaps, canvas, size, strict=True)]
        total = total + jnp.pad(one, [(0, 0), *edges, (0, 0)])
    base = [low - w + 1 for low, w in zip(conv.low, window, strict=True)]
    cropped = [(b, o - b - c, 0) for b, o, c in zip(base, conv.positions, canvas, strict=True)]
    return _placed(conv, jax.lax.pad(total, jnp.zeros((), total.dtype), [(0, 0, 0), *cropped, (0, 0, 0)]))


def _placed(conv: Conv, out: jax.Array) -> jax.Array:
    """(b, *o, f) in the order in which the equation gives it."""
    spec = conv.specs.out_spec
    order = [0] * len(spec)
    for axis, source in zip(spec, (0, len(spec) - 1, *range(1, len(spec) - 1)), strict=True):
        order[axis] = source
    return out.transpose(order)


# --- pooling ------------------------------------------------------------------------------------------------


def _to_the_largest(params: dict[str, Any], source: jax.Array, operand: jax.Array) -> jax.Array:
    """source, each number to where its window of operand has its largest (or smallest) number, the first if several."""
    strides, padding = params["window_strides"], params["padding"]
    largest = params["select_prim"].name == "ge"
    edge = jnp.asarray(-jnp.inf if largest else jnp.inf, operand.dtype)
    padded = jax.lax.pad(operand, edge, [(low, high, 0) for low, high in padding])
    spans = [(n - 1) * s + 1 for n, s in zip(source.shape, strides, strict=True)]
    best, where = None, jnp.zeros(source.shape, jnp.int32)
    offsets = list(itertools.product(*map(range, params["window_dimensions"])))
    for k, offset in enumerate(offsets):
        ends = [o + n for o, n in zip(offset, spans, strict=True)]
        value = jax.lax.slice(padded, offset, ends, strides)
        if best is None:
            best = value
            continue
        stays = best >= value if largest else best <= value
        best, where = jnp.where(stays, best, value), jnp.where(stays, where, k)
    total = jnp.zeros(operand.shape, source.dtype)
    for k, offset in enumerate(offsets):
        low = [o - lo for o, (lo, _) in zip(offset, padding, strict=True)]
        rest = [(b, n - b - span, s - 1) for b, n, span, s in zip(low, operand.shape, spans, strides, strict=True)]
        zero = jnp.zeros((), source.dtype)
        total = total + jax.lax.pad(jnp.where(where == k, source, zero), zero, rest)
    return total
