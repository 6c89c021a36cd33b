"""SOFIM against the explicit dense inverse, its operator bounds, and its use as a plain optax part."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsofim.errors import InputError
from fedsofim.transforms import scale_by_sofim, schedule, sofim

D = 7


def dense_steps(gradients, rho, beta, direction, bias_correction):
    """The definition, with a d x d matrix and its inverse."""
    m = np.zeros(D)
    for t, g in enumerate(gradients):
        m = beta * m + (1 - beta) * g
        hat = m / (1 - beta ** (t + 1)) if bias_correction else m
        inverse = np.linalg.inv(np.outer(hat, hat) + rho * np.eye(D))
        yield inverse @ (hat if direction == "momentum" else g)


def run(transform, gradients, params: Any = None) -> tuple[list[Any], Any]:
    params = jnp.zeros(D) if params is None else params
    state, out = transform.init(params), []
    for g in gradients:
        step, state = transform.update(g, state, params)
        out.append(step)
    return out, state


@pytest.fixture
def gradients():
    return [jnp.asarray(g) for g in np.random.default_rng(0).normal(size=(6, D)) * 3]


@pytest.mark.parametrize("direction", ["momentum", "gradient"])
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("rho", [1e-3, 0.5, 10.0])
def test_equals_the_dense_inverse(gradients, direction, bias_correction, rho):
    transform = scale_by_sofim(rho, 0.9, direction, bias_correction)
    steps, _ = run(transform, gradients)
    for step, wanted in zip(steps, dense_steps(gradients, rho, 0.9, direction, bias_correction), strict=True):
        np.testing.assert_allclose(step, wanted, rtol=1e-9)


@pytest.mark.parametrize("rho", [0.01, 1.0, 100.0])
def test_operator_bounds(gradients, rho):
    """|Hv| <= |v|/rho and |v|²/(rho+|M|²) <= v·Hv <= |v|²/rho (the paper's Sherman-Morrison lemma)."""
    transform = scale_by_sofim(rho, 0.9, "gradient", bias_correction=False)
    state: Any = transform.init(jnp.zeros(D))
    for g in gradients:
        step, state = transform.update(g, state)
        square, size = float(g @ g), float(state.momentum @ state.momentum)
        assert jnp.linalg.norm(step) <= jnp.linalg.norm(g) / rho * (1 + 1e-9)
        assert square / (rho + size) * (1 - 1e-9) <= float(g @ step) <= square / rho * (1 + 1e-9)


def test_any_pytree_gives_the_same_step_as_one_vector(gradients):
    transform = scale_by_sofim(0.3, 0.8)
    whole, _ = run(transform, gradients)
    tree = [{"a": g[:3].reshape(3, 1), "b": (g[3:],)} for g in gradients]
    parts, _ = run(transform, tree, params=jax.tree.map(jnp.zeros_like, tree[0]))
    for w, p in zip(whole, parts, strict=True):
        np.testing.assert_allclose(jnp.concatenate([p["a"].ravel(), p["b"][0]]), w, rtol=1e-12)


def test_one_buffer_of_d_numbers():
    params = {"w": jnp.zeros((1000, 10)), "b": jnp.zeros(10)}
    state = scale_by_sofim().init(params)
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == 1000 * 10 + 10 + 1


def test_hard_warmup_is_the_ema_step(gradients):
    steps, _ = run(scale_by_sofim(0.5, 0.9, warmup=3), gradients)
    full, _ = run(scale_by_sofim(0.5, 0.9), gradients)
    m = jnp.zeros(D)
    for t, g in enumerate(gradients):
        m = 0.9 * m + 0.1 * g
        wanted = m / (1 - 0.9 ** (t + 1)) if t < 3 else full[t]
        np.testing.assert_allclose(steps[t], wanted, rtol=1e-9)


@pytest.mark.parametrize("direction, plain", [("gradient", "grad-only"), ("momentum", "ema-only")])
def test_blended_warmup_rises_from_plain_to_full(gradients, direction, plain):
    blended, _ = run(scale_by_sofim(0.5, 0.9, direction, warmup=4, warmup_kind="blend"), gradients)
    none, _ = run(scale_by_sofim(0.5, 0.9, direction, variant=plain), gradients)
    full, _ = run(scale_by_sofim(0.5, 0.9, direction), gradients)
    for t in range(6):
        mix = min(t / 4, 1.0)
        np.testing.assert_allclose(blended[t], (1 - mix) * none[t] + mix * full[t], rtol=1e-9)


def test_variants(gradients):
    ema, state = run(scale_by_sofim(0.5, 0.9, variant="ema-only", bias_correction=False), gradients)
    grad, _ = run(scale_by_sofim(0.5, 0.9, variant="grad-only"), gradients)
    np.testing.assert_allclose(ema[-1], state.momentum / 0.5)
    np.testing.assert_allclose(grad[-1], gradients[-1] / 0.5)


def test_weight_decay_is_decoupled(gradients):
    params = jnp.ones(D)
    plain, _ = run(sofim(0.1, rho=0.5, beta=0.9), gradients, params)
    decayed, _ = run(sofim(0.1, weight_decay=0.3, rho=0.5, beta=0.9), gradients, params)
    for a, b in zip(plain, decayed, strict=True):
        np.testing.assert_allclose(b, a - 0.1 * 0.3 * params, rtol=1e-9)


def test_alone_in_an_optax_chain_it_minimises():
    target = jnp.arange(1.0, 6.0)
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), scale_by_sofim(1.0, 0.5), optax.scale(-0.3))
    params: Any = jnp.zeros(5)
    state = optimizer.init(params)
    for _ in range(300):
        updates, state = optimizer.update(params - target, state)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(params, target, atol=1e-3)


def test_float16_leaves_do_not_overflow():
    g = {"w": jnp.full((1000,), 60.0, jnp.float16)}
    step: Any
    step, _ = scale_by_sofim(0.5, 0.9).update(g, scale_by_sofim().init(g))
    assert bool(jnp.all(jnp.isfinite(step["w"])))
    assert step["w"].dtype == jnp.float16


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "inverse-sqrt"])
def test_schedules_start_at_the_peak_and_do_not_rise(kind):
    values = [float(np.asarray(schedule(kind, 0.5, 20)(jnp.float64(t)))) for t in range(20)]
    assert values[0] == 0.5
    assert all(a >= b >= 0 for a, b in itertools.pairwise(values))


@pytest.mark.parametrize(
    "settings",
    [{"rho": 0.0}, {"beta": 1.0}, {"warmup": -1}, {"direction": "up"}, {"variant": "x"}, {"warmup_kind": "x"}],
)
def test_senseless_settings(settings):
    with pytest.raises(InputError):
        scale_by_sofim(**settings)
