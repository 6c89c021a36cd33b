"""The server's momentum in C++: equal to the definition in doubles, bit-equal to itself, written where it was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim import native
from fedsofim.native.momentum import momentum_pass

pytestmark = pytest.mark.optimised

WHY_NOT = native.why_not("momentum")
needs_compiler = pytest.mark.skipif(bool(WHY_NOT), reason=f"it is left to XLA here: {WHY_NOT}")


def vectors(size, seed=0):
    m, g = np.random.default_rng(seed).normal(size=(2, size)).astype(np.float32)
    return jnp.asarray(m), jnp.asarray(g)


@needs_compiler
@pytest.mark.parametrize("size", [1, 31, 33, 2**13, 2**15 + 1, 2**18 + 77])
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_momentum_and_its_products(size, beta):
    m, g = vectors(size)
    new, square, along = jax.jit(momentum_pass)(m, g, beta)
    wanted = float(np.float32(beta)) * np.asarray(m, float) + float(np.float32(1) - np.float32(beta)) * np.asarray(g)
    np.testing.assert_allclose(new, wanted, atol=1e-6)
    exact = np.asarray(new, float)
    np.testing.assert_allclose(square, exact @ exact, rtol=2e-6)
    np.testing.assert_allclose(along, exact @ np.asarray(g, float), rtol=2e-6, atol=2e-6 * size)


@needs_compiler
def test_a_long_sum_of_equal_numbers_does_not_drift():
    """Their rounding errors all point one way."""
    m = jnp.full(2**22 + 64, 1.1e-3, jnp.float32)
    _, square, along = momentum_pass(m, m, 0.5)
    exact = float(np.float32(1.1e-3)) ** 2 * m.size
    np.testing.assert_allclose([float(square), float(along)], exact, rtol=1e-6)


@needs_compiler
def test_momentum_has_equal_bits_on_any_number_of_threads():
    m, g = vectors(2**18 + 5)
    first = jax.tree.map(np.asarray, momentum_pass(m, g, 0.9))
    for _ in range(20):
        for a, b in zip(momentum_pass(m, g, 0.9), first, strict=True):
            np.testing.assert_array_equal(a, b)


@needs_compiler
def test_momentum_is_written_where_it_was_only_if_nobody_else_needs_it():
    m, g = vectors(20_000)
    kept = np.asarray(m).copy()
    momentum_pass(m, g, 0.9)
    np.testing.assert_array_equal(m, kept)  # not given away
    step = jax.jit(lambda m, g: momentum_pass(m, g, 0.9)[0], donate_argnums=0).lower(m, g).compile()
    memory = step.memory_analysis()
    assert memory is None or memory.temp_size_in_bytes < 4096  # given away: no second buffer


@needs_compiler
def test_momentum_of_many_settings_is_each_alone():
    m, g = vectors(10_000)
    betas = jnp.array([0.0, 0.5, 0.9], jnp.float32)
    together = jax.vmap(lambda b: momentum_pass(m, g, b))(betas)
    for i, beta in enumerate(betas):
        for a, b in zip(together, momentum_pass(m, g, beta), strict=True):
            np.testing.assert_array_equal(a[i], b)


@needs_compiler
def test_a_momentum_that_is_not_finite_shows_in_the_sums():
    m, g = vectors(10_000)
    _, square, along = momentum_pass(m.at[5].set(jnp.nan), g, 0.9)
    assert np.isnan(square) and np.isnan(along)
