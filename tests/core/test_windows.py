"""Convolutions and gradients of pooling computed as products and slices: what XLA gives for the same equations."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.contractions import factors, result, sizes_of, turned_sum
from fedsofim.core.lookups import looked_up, rows_of, tables
from fedsofim.core.windows import Patches, conv_of, quick

RANDOM = np.random.default_rng(0)
LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HNWC", "IHWO", "CHWN")]


def equation(fn, *args, name: str):
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    return [e for e in jaxpr.eqns if e.primitive.name == name][-1]


def shaped(layout: str, **sizes: int) -> jax.Array:
    return jnp.asarray(RANDOM.normal(size=[sizes[letter] for letter in layout]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("stride, padding, gaps, holes", [
    ((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)), ((2, 3), ((1, 2), (0, 3)), (1, 1), (1, 1)),
    ((2, 1), ((3, 0), (1, 1)), (1, 1), (1, 2)), ((1, 1), ((2, 2), (1, 3)), (2, 3), (1, 1)),
    ((1, 1), ((-1, 1), (2, 2)), (3, 2), (1, 1)),
])  # fmt: skip
def test_a_convolution(layout, channels, stride, padding, gaps, holes):
    left = shaped(layout[0], N=1, H=8, W=7, C=channels)
    right = shaped(layout[1], H=4, W=3, I=channels, O=3)

    def conv(left, right):
        return jax.lax.conv_general_dilated(
            left, right, stride, padding, lhs_dilation=gaps, rhs_dilation=holes, dimension_numbers=layout
        )

    eqn = equation(conv, left, right, name="conv_general_dilated")
    here: Any = conv_of(eqn)
    quicker = quick(eqn)
    few = channels <= 4 and gaps == (1, 1)
    assert (quicker is not None) == (few or gaps != (1, 1))

    @jax.jit
    def ways(left, right) -> list[jax.Array]:
        found = [quicker(Patches(), left, right)] if quicker is not None else []
        if gaps == (1, 1):
            a, g = factors(eqn, Patches(), left, right)
            sizes: Any = sizes_of(eqn)
            assert a.shape[1:] == (sizes.terms, sizes.rows) and g.shape[1:] == (sizes.terms, sizes.columns)
            turned = turned_sum(here, Patches(), left, right)
            found += [result(eqn, turned.T[None]), result(eqn, jnp.swapaxes(a, 1, 2) @ g)]
        return found

    for way in ways(left, right):
        np.testing.assert_allclose(way, conv(left, right), atol=1e-12)


def test_patches_are_cut_once():
    """The gradient of a kernel reads the patches that the convolution read."""
    x, kernel, g = (jnp.asarray(RANDOM.normal(size=s)) for s in ((1, 9, 9, 2), (3, 3, 2, 4), (1, 4, 4, 4)))

    def conv(kernel):
        return jax.lax.conv_general_dilated(x, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    first = equation(lambda k: conv(k), kernel, name="conv_general_dilated")
    second = equation(lambda g: jax.vjp(conv, kernel)[1](g)[0], g, name="conv_general_dilated")
    patches = Patches()
    convs: list[Any] = [conv_of(eqn) for eqn in (first, second)]
    one, two = (patches.of(c, x)[0] for c in convs)
    assert one is two


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("window, strides, padding", [
    ((1, 2, 2, 1), (1, 1, 1, 1), "VALID"), ((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    ((1, 3, 2, 1), (1, 2, 3, 1), "SAME"), ((1, 3, 3, 1), (1, 1, 2, 1), "SAME"),
])  # fmt: skip
def test_the_gradient_of_pooling(largest, window, strides, padding):
    """With many equal numbers: the first of them gets it."""
    x = jnp.asarray(RANDOM.integers(0, 3, size=(1, 7, 8, 2)).astype(float))
    start, pick = (-jnp.inf, jax.lax.max) if largest else (jnp.inf, jax.lax.min)

    def pooled(x):
        return jax.lax.reduce_window(x, start, pick, window, strides, padding)

    g = jnp.asarray(RANDOM.normal(size=pooled(x).shape))

    def gradient(x, g):
        return jax.vjp(pooled, x)[1](g)[0]

    eqn = equation(gradient, x, g, name="select_and_scatter_add")
    quicker: Any = quick(eqn)
    np.testing.assert_allclose(quicker(Patches(), g, x), gradient(x, g), atol=1e-12)


@pytest.mark.parametrize("mode", ["fill", "clip", "promise_in_bounds"])
def test_rows_of_a_table(mode):
    """Equal rows are added up in the first of them; what is outside is dropped, or at the edge."""
    table, row = jnp.zeros((6, 3)), jnp.asarray([4, 1, 4, 0, 4] if mode == "promise_in_bounds" else [4, 1, 9, 4, -9])
    g = jnp.asarray(RANDOM.normal(size=(5, 3)))

    def gradient(g):
        return jax.vjp(lambda t: t.at[row].get(mode=mode, wrap_negative_indices=False), table)[1](g)[0]

    jaxpr = jax.make_jaxpr(gradient)(g).jaxpr
    made = {v: e for e in jaxpr.eqns for v in e.outvars}
    (eqn,) = [e for e in jaxpr.eqns if e.primitive.name == "scatter-add"]
    assert rows_of(eqn, made) == (5, 3)
    found, kept = looked_up(eqn, row[:, None], g)
    touched = [int(r) for r, k in zip(found, kept, strict=True) if np.any(k)]
    assert len(touched) == len(set(touched))
    total = tables(eqn, jnp.ones((1, 1)), found[None], kept[None]).reshape(6, 3)
    np.testing.assert_allclose(total, gradient(g), atol=1e-12)
    assert float(jnp.sum(kept**2)) == pytest.approx(float(jnp.sum(gradient(g) ** 2)))


def test_a_table_that_is_not_of_zeros_is_not_read_as_one():
    table, row = jnp.ones((6, 3)), jnp.asarray([4, 1])
    jaxpr = jax.make_jaxpr(lambda t, g: t.at[row].add(g))(table, jnp.ones((2, 3))).jaxpr
    made = {v: e for e in jaxpr.eqns for v in e.outvars}
    found = [rows_of(e, made) for e in jaxpr.eqns if e.primitive.name == "scatter-add"]
    assert list(itertools.chain(found)) == [None]
