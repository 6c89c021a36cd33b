"""Torch modules for tests, and the same networks written in JAX. Importing this file needs torch."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fedsofim.core.models import Model

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402 # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # noqa: E402 # pyright: ignore[reportMissingImports]


def mlp(features: int = 5, hidden: int = 7, classes: int = 3, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def cnn(classes: int = 3, seed: int = 0) -> Any:
    """8x8 images in rows of 64: a convolution, a norm within records, a pool, two linear layers."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, classes),
    )  # fmt: skip


class Attention(nn.Module):
    """Rows of 12 features as three tokens of four: an embedding of places, one head, a skip, and a layer used twice."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.places = nn.Embedding(3, 4)
        self.norm, self.qkv, self.out = nn.LayerNorm(4), nn.Linear(4, 12), nn.Linear(4, 4)
        self.last = nn.Linear(4, classes)

    def forward(self, x: Any) -> Any:
        x = x.view(x.size(0), 3, 4)
        x = x + self.places((x[:, :, 0] > 0).long())
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return self.last(torch.tanh(self.out(x)).mean(dim=1))


def in_jax(net: Any, forward: Callable[[Any, jax.Array], jax.Array]) -> Model:
    """A network of one's own in JAX that starts from a module's weights, by their names."""
    start = {name: p.detach().numpy().copy() for name, p in net.named_parameters()}

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return -jax.nn.log_softmax(forward(params, x))[y]

    def init(key: Any, shape: Any, classes: int) -> Any:
        return {name: jnp.asarray(value) for name, value in start.items()}

    return Model(init, loss, jax.vmap(forward, in_axes=(None, 0)))


def mlp_in_jax(net: Any) -> Model:
    def forward(p: Any, x: jax.Array) -> jax.Array:
        return p["2.weight"] @ jnp.tanh(p["0.weight"] @ x + p["0.bias"]) + p["2.bias"]

    return in_jax(net, forward)


def cnn_in_jax(net: Any) -> Model:
    def forward(p: Any, x: jax.Array) -> jax.Array:
        h = jax.lax.conv_general_dilated(x.reshape(1, 1, 8, 8), p["1.weight"], (1, 1), "VALID")[0]
        h = (h + p["1.bias"][:, None, None]).reshape(2, -1)
        h = (h - h.mean(1, keepdims=True)) / jnp.sqrt(h.var(1, keepdims=True) + 1e-5)
        h = jax.nn.relu(h.reshape(4, 6, 6) * p["2.weight"][:, None, None] + p["2.bias"][:, None, None])
        h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2), (1, 2, 2), "VALID").reshape(-1)
        return p["8.weight"] @ jnp.tanh(p["6.weight"] @ h + p["6.bias"]) + p["8.bias"]

    return in_jax(net, forward)


def attention_in_jax(net: Any) -> Model:
    def forward(p: Any, x: jax.Array) -> jax.Array:
        def linear(name: str, h: jax.Array) -> jax.Array:
            return h @ p[f"{name}.weight"].T + p[f"{name}.bias"]

        x = x.reshape(3, 4)
        x = x + p["places.weight"][(x[:, 0] > 0).astype(jnp.int32)]
        h = (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)
        q, k, v = jnp.split(linear("qkv", h * p["norm.weight"] + p["norm.bias"]), 3, axis=1)
        x = x + linear("out", jax.nn.softmax(q @ k.T / 2, axis=-1) @ v)
        return linear("last", jnp.tanh(linear("out", x)).mean(0))

    return in_jax(net, forward)
