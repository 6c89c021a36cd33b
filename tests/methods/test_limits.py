"""Limits in which one method is another, or a textbook's."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsofim.core.door import Facts
from fedsofim.core.mechanisms import Tree
from fedsofim.core.method import Method, OneGradient, server_method
from fedsofim.methods import adafedprox as prox_module
from fedsofim.methods import fedavg as avg_module
from fedsofim.methods import make
from fedsofim.methods.adafedprox import adafedprox
from fedsofim.methods.fedadam import fedadam
from fedsofim.methods.fedavg import fedavg
from fedsofim.methods.fedfc import fedfc
from fedsofim.methods.fedgd import fedgd
from fedsofim.methods.fedyogi import fedyogi
from fedsofim.methods.ftrl import ftrl
from fedsofim.methods.scaffold import scaffold
from method_helpers import blobs, final, gradients, start

DATA = blobs((9, 30, 14))
FREE: dict[str, Any] = {"clip": 1e4}  # nothing is clipped; without a budget nothing is noisy either


def close(a: Any, b: Any) -> bool:
    """Equal but for float32 against float64 over a few rounds."""
    return np.allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_one_local_step_is_gradient_descent_bit_for_bit():
    reference = final(DATA, fedgd(lr=0.2 * 0.5), 1.0)
    for method in (fedavg(1, client_lr=0.2, server_lr=0.5), adafedprox(1, client_lr=0.2, server_lr=0.5)):
        assert np.array_equal(final(DATA, method, 1.0), reference)
    assert np.allclose(final(DATA, fedavg(1), 1.0), final(DATA, fedgd(), 1.0), rtol=1e-5)


@pytest.mark.slow
def test_the_general_path_at_one_step_is_gradient_descent():
    reference = final(DATA, fedgd(lr=0.1), apart=True)
    prox = prox_module.many_steps(1, 0.2, 0.5, 3.0)
    for method in (avg_module.many_steps(1, 0.2, 0.5), prox, scaffold(1, 0.2, 0.5)):
        assert close(final(DATA, method, apart=True), reference)


@pytest.mark.slow
def test_with_noise_scaffold_and_prox_at_one_step_are_fedavg():
    reference = final(DATA, avg_module.many_steps(1, 0.2, 0.5), 5.0)
    assert np.array_equal(final(DATA, prox_module.many_steps(1, 0.2, 0.5, 3.0), 5.0), reference)
    # control variates cancel in the mean, noise and all, when every client takes part
    assert np.allclose(final(DATA, scaffold(1, 0.2, 0.5), 5.0), reference, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_tree_restarted_every_round_is_gradient_descent_bit_for_bit():
    assert np.array_equal(final(DATA, ftrl(lr=0.1, restart=1), 1.0), final(DATA, fedgd(lr=0.1), 1.0))


@pytest.mark.slow
def test_tree_of_one_round_draws_the_same_noise():
    tree = server_method("tree", optax.sgd(0.1), OneGradient(Tree(restart=1)))
    assert close(final(DATA, tree, 1.0), final(DATA, fedgd(lr=0.1), 1.0))


@pytest.mark.slow
def test_fedfc_with_huge_gamma_is_scaled_gradient_descent():
    for flat, plain in ((fedfc(lr=1e5, gamma=1e6), fedgd(lr=0.1)), (fedfc(gamma=1e6), fedgd())):
        assert np.allclose(final(DATA, flat), final(DATA, plain), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        (fedgd(lr=0.3), optax.sgd(0.3)),
        (fedadam(lr=0.1, beta1=0.8, beta2=0.95, tau=1e-2), optax.adam(0.1, 0.8, 0.95, 1e-2)),
        (
            fedyogi(lr=0.1, beta1=0.8, beta2=0.95, tau=1e-2),
            optax.chain(optax.scale_by_yogi(0.8, 0.95, 1e-2, initial_accumulator_value=0.0), optax.scale(-0.1)),
        ),
        (ftrl(lr=0.3), optax.sgd(0.3)),
    ],
    ids=["fedgd", "fedadam", "fedyogi", "ftrl"],
)
def test_without_clip_and_noise_it_is_the_textbook_method(method: Method, optimizer: Any):
    theta: Any = jnp.asarray(start(DATA))
    state = optimizer.init(theta)
    with jax.numpy_dtype_promotion("standard"):  # optax itself relies on promotion
        for _ in range(4):
            mean = jnp.asarray(sum(gradients(DATA, np.asarray(theta))) / 3)
            updates, state = optimizer.update(mean, state, theta)
            theta = optax.apply_updates(theta, updates)
    assert close(final(DATA, method, **FREE), theta)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["adam", "yogi"])
def test_reddi_form_by_hand(rule: str):
    b1, b2, tau, lr = 0.8, 0.9, 0.1, 0.2
    theta = start(DATA)
    m, v = np.zeros_like(theta), np.full_like(theta, tau**2)
    for _ in range(4):
        g = sum(gradients(DATA, theta)) / 3
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2 if rule == "adam" else v - (1 - b2) * np.sign(v - g**2) * g**2
        theta = theta - lr * m / (np.sqrt(v) + tau)
    make_it = fedadam if rule == "adam" else fedyogi
    got = final(DATA, make_it(lr=lr, beta1=b1, beta2=b2, tau=tau, bias_corrected=False), **FREE)
    assert close(got, theta)


@pytest.mark.slow
def test_scaffold_is_a_plain_loop():
    eta_c, eta_s, steps = 0.1, 0.7, 3
    theta = start(DATA)
    c, mine = np.zeros_like(theta), np.zeros((3, *theta.shape))
    for _ in range(4):
        y = np.stack([theta] * 3)
        for _ in range(steps):
            y = y - eta_c * (np.stack(gradients(DATA, y)) - mine + c)
        new = mine - c + (theta - y) / (steps * eta_c)
        theta, c, mine = theta + eta_s * (y - theta).mean(0), c + (new - mine).mean(0), new
    assert close(final(DATA, scaffold(steps, eta_c, eta_s), **FREE), theta)


@pytest.mark.slow
@pytest.mark.parametrize("mu0", [0.0, 2.0])
def test_fedavg_and_adafedprox_are_plain_loops(mu0: float):
    eta_c, eta_s, steps = 0.1, 0.7, 3
    theta = start(DATA)
    for t in range(1, 5):
        y = np.stack([theta] * 3)
        for _ in range(steps):
            y = y - eta_c * (np.stack(gradients(DATA, y)) + max(mu0 / math.sqrt(t), 0.1 * mu0) * (y - theta))
        theta = theta + eta_s * (y - theta).mean(0)
    method = adafedprox(steps, eta_c, eta_s, mu0) if mu0 else fedavg(steps, eta_c, eta_s)
    assert close(final(DATA, method, **FREE), theta)


@pytest.mark.slow
def test_fedfc_is_a_plain_loop():
    theta, gamma = start(DATA), 0.5
    moment = np.zeros((len(theta), len(theta)))
    for part in DATA.parts:
        x = np.concatenate([DATA.dataset.x_train[part], np.ones((len(part), 1))], axis=1).astype(np.float64)
        moment += x.T @ x / len(part) / 3
    inverse = np.linalg.inv(moment + gamma * np.eye(len(theta)))
    for _ in range(4):
        theta = theta - 0.8 * inverse @ sum(gradients(DATA, theta)) / 3
    assert close(final(DATA, fedfc(lr=0.8, gamma=gamma, feature_clip=1e3), clip=1e3), theta)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedgd", "fedadam", "fedyogi", "fedsofim", "ftrl"])
def test_settings_may_be_traced(name: str):
    """A sweep maps over step sizes: each lane is the run it would be alone."""
    params = jnp.ones((3, 2), jnp.float32)
    mean = jnp.full((3, 2), 0.5, jnp.float32)

    def step(lr: Any) -> Any:
        method = make(name, {} if lr is None else {"lr": lr})
        return method.server(mean, method.init(params), params, Facts(5, 2, 1.0, jnp.float32(0.1)))[0]

    lanes = jax.vmap(step)(jnp.array([0.1, 0.3], jnp.float32))
    assert np.allclose(lanes[1], step(0.3), rtol=1e-6)
    assert np.isfinite(step(None)).all()
