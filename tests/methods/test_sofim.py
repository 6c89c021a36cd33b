"""SOFIM against the explicit dense inverse, its operator bounds, and its use as a plain optax part."""

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsofim.core.budget import NO_PRIVACY
from fedsofim.errors import InputError
from fedsofim.methods._sofim import scale_by_sofim, schedule, sofim
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.models import make as make_model
from fedsofim.native.momentum import LEAST
from fedsofim.simulation.training import train
from toy import make_toy

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


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["momentum", "gradient"])
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("rho", [1e-3, 0.5, 10.0])
def test_equals_the_dense_inverse(gradients, direction, bias_correction, rho):
    transform = scale_by_sofim(rho, 0.9, direction, bias_correction)
    steps, _ = run(transform, gradients)
    for step, wanted in zip(steps, dense_steps(gradients, rho, 0.9, direction, bias_correction), strict=True):
        np.testing.assert_allclose(step, wanted, rtol=1e-9)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_alone_in_an_optax_chain_it_minimises():
    target = jnp.arange(1.0, 6.0)
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), scale_by_sofim(1.0, 0.5), optax.scale(-0.3))
    params: Any = jnp.zeros(5)
    state = optimizer.init(params)
    for _ in range(300):
        updates, state = optimizer.update(params - target, state)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(params, target, atol=1e-3)


@pytest.mark.slow
def test_float16_leaves_do_not_overflow():
    g = {"w": jnp.full((1000,), 60.0, jnp.float16)}
    step: Any
    step, _ = scale_by_sofim(0.5, 0.9).update(g, scale_by_sofim().init(g))
    assert bool(jnp.all(jnp.isfinite(step["w"])))
    assert step["w"].dtype == jnp.float16


# around the size from which a leaf is one fused pass, and its blocks of 2^13, chunks of 2^15 and lanes of 32
SIZES = [1, 7, LEAST - 1, LEAST, LEAST + 1, 2**14 + 31, 2**15 + 33, 100_001]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_gradient_form_at_any_size_and_type(size, dtype):
    first, second = (jnp.asarray(v, dtype) for v in np.random.default_rng(size).normal(size=(2, size)) / size**0.5)
    (_, step), _ = run(scale_by_sofim(0.5, 0.9, "gradient", False), [first, second], first)
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    m = 0.09 * a + 0.1 * b
    wanted = b / 0.5 - m * (m @ b) / (0.5 * (0.5 + m @ m))
    assert step.dtype == dtype
    rtol = {2: 3e-2, 4: 1e-5, 8: 1e-11}[dtype(0).itemsize]
    np.testing.assert_allclose(np.asarray(step, np.float64), wanted, atol=rtol * float(np.abs(wanted).max()), rtol=0)


@pytest.mark.slow
def test_gradient_form_of_large_and_small_leaves_is_that_of_one_vector():
    g = [jnp.asarray(v) for v in np.random.default_rng(1).normal(size=(2, 20_001)) / 100]
    transform = scale_by_sofim(0.3, 0.8, "gradient")
    whole, _ = run(transform, g, g[0])
    tree = [{"a": v[:10_000].reshape(100, 100), "b": v[10_000:20_000], "c": v[20_000]} for v in g]
    parts, _ = run(transform, tree, tree[0])
    for w, p in zip(whole, parts, strict=True):
        np.testing.assert_allclose(jnp.concatenate([p["a"].ravel(), p["b"], p["c"][None]]), w, rtol=1e-10)


@pytest.mark.parametrize("direction", ["momentum", "gradient"])
def test_settings_may_be_traced_and_batched(direction):
    g = jnp.asarray(np.random.default_rng(2).normal(size=10_000) / 100, jnp.float32)

    def second_step(rho, beta) -> Any:
        transform = scale_by_sofim(rho, beta, direction)
        _, state = transform.update(g, transform.init(g))
        return transform.update(2 * g, state)[0]

    settings = [(0.1, 0.5), (0.5, 0.9), (2.0, 0.0)]
    batched = jax.jit(jax.vmap(second_step))(*(jnp.asarray(s, jnp.float32) for s in zip(*settings, strict=True)))
    for row, (rho, beta) in zip(batched, settings, strict=True):
        np.testing.assert_allclose(row, second_step(rho, beta), rtol=1e-4)


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


# --- one proxy for each array -------------------------------------------------------------------------------


def as_tree(g):
    """Seven numbers as three arrays of unequal size."""
    return {"a": g[:1], "b": g[1:3], "c": g[3:].reshape(2, 2)}


@pytest.mark.parametrize("direction", ["momentum", "gradient"])
@pytest.mark.parametrize("bias_correction", [True, False])
def test_by_leaf_it_equals_the_dense_inverse_of_a_block_diagonal_matrix(gradients, direction, bias_correction):
    transform = scale_by_sofim(0.5, 0.9, direction, bias_correction, blocks="leaf")
    steps, _ = run(transform, [as_tree(g) for g in gradients], as_tree(jnp.zeros(D)))
    blocks = [range(1), range(1, 3), range(3, 7)]
    m = np.zeros(D)
    for t, (g, step) in enumerate(zip(gradients, steps, strict=True)):
        m = 0.9 * m + 0.1 * np.asarray(g)
        hat = m / (1 - 0.9 ** (t + 1)) if bias_correction else m
        fisher = 0.5 * np.eye(D)
        for block in blocks:
            fisher[np.ix_(block, block)] += np.outer(hat[block], hat[block])
        wanted = np.linalg.inv(fisher) @ (hat if direction == "momentum" else g)
        np.testing.assert_allclose(np.concatenate([step[k].ravel() for k in "abc"]), wanted, rtol=1e-9)


def test_one_array_is_one_block_either_way(gradients):
    model, leaf = (run(scale_by_sofim(0.5, 0.9, blocks=blocks), gradients)[0] for blocks in ("model", "leaf"))
    np.testing.assert_array_equal(np.stack(model), np.stack(leaf))


def test_the_whole_model_has_one_proxy_however_it_is_cut(gradients):
    whole, _ = run(scale_by_sofim(0.5, 0.9), gradients)
    cut, _ = run(scale_by_sofim(0.5, 0.9), [as_tree(g) for g in gradients], as_tree(jnp.zeros(D)))
    for one, tree in zip(whole, cut, strict=True):
        np.testing.assert_allclose(np.concatenate([tree[k].ravel() for k in "abc"]), one, rtol=1e-12)


def test_it_keeps_one_number_for_each_parameter(gradients):
    state = scale_by_sofim(blocks="leaf").init(as_tree(gradients[0]))
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == D + 1  # and how often it was called


def test_an_unknown_kind_of_block_is_an_error():
    with pytest.raises(InputError, match="blocks"):
        fedsofim(blocks="layer")  # type: ignore[arg-type]


@pytest.mark.parametrize("lr", [None, 0.5])
def test_a_network_trains_by_leaf(lr):
    """Two layers on a small dataset, one proxy for each of four arrays, at a public step size or an automatic one."""
    model = make_model(str(Path(__file__).parents[2] / "examples" / "two_layers.py"))
    method = fedsofim(lr=lr, blocks="leaf", bias_correction=True)
    ran = train(make_toy(), method, NO_PRIVACY, model=model, rounds=40, clip=2.0, recipe="paper")
    assert ran.plan.releases == 40
    assert max(ran.summary()["accuracy"].values()) > 60
