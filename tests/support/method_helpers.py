"""Small data, a two-leaf model and plain gradients, shared by the tests of the methods."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedsofim.core.budget import budget_of, stated
from fedsofim.core.method import Method
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.plan import Plan
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for


def blobs(sizes: tuple[int, ...], features: int = 4, classes: int = 3, seed: int = 0) -> Split:
    """Gaussian blobs dealt out to clients of these sizes."""
    random = np.random.default_rng(seed)
    n = sum(sizes)
    labels = np.arange(n + 30) % classes
    x = (2 * random.normal(size=(classes, features)))[labels] + random.normal(size=(n + 30, features))
    data = Dataset.of("blobs", x_train=x[:n], y_train=labels[:n], x_test=x[n:], y_test=labels[n:])
    return Split(data, tuple(np.split(np.arange(n), np.cumsum(sizes)[:-1])), "blobs")


def two_leaf_head() -> Model:
    """The linear head as {"w", "b"}: no closed form, so it goes the generic way."""

    def init(key: jax.Array, shape: tuple[int, ...], classes: int) -> dict[str, jax.Array]:
        w = 0.1 * jax.random.normal(key, (shape[0], classes), jnp.float32)
        return {"w": w, "b": jnp.zeros(classes, jnp.float32)}

    def logits(params: Any, x: jax.Array) -> jax.Array:
        return x @ params["w"] + params["b"]

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y)

    return Model(init, loss, logits)


TWO_LEAVES = two_leaf_head()


def planned(data: Split, method: Method, epsilon: float, rounds: int = 4, **more: Any) -> Plan:
    return plan_for(data, method, budget_of(stated(epsilon), 1e-5), rounds, **more)


def final(
    data: Split,
    method: Method,
    epsilon: float = math.inf,
    rounds: int = 4,
    *,
    seed: int = 0,
    apart: bool = False,
    **more: Any,
) -> Any:
    """Parameters after the run."""
    return simulate(planned(data, method, epsilon, rounds, **more), data, seed, every=rounds, apart=apart)[0]


def start(data: Split, seed: int = 0) -> np.ndarray:
    """θ_0 of the simulator's runs."""
    key = jax.random.split(jax.random.key(seed))[0]
    return np.asarray(softmax_head().init(key, data.dataset.x_train.shape[1:], data.dataset.classes), np.float64)


def gradients(data: Split, theta: np.ndarray) -> list[np.ndarray]:
    """Each client's mean cross-entropy gradient at its own row of theta (or at the one theta), in float64."""
    out = []
    for i, part in enumerate(data.parts):
        x = np.concatenate([data.dataset.x_train[part], np.ones((len(part), 1))], axis=1).astype(np.float64)
        z = x @ (theta[i] if theta.ndim == 3 else theta)
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(part)), data.dataset.y_train[part]] -= 1
        out.append(x.T @ p / len(part))
    return out
