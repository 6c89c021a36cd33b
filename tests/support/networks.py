"""Networks of every kind whose gradients are clipped: per-record losses with their parameters and records."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Network(NamedTuple):
    loss: Callable[[Any, Any, Any], Any]  # of parameters, one record and its label
    params: Any
    x: np.ndarray
    y: np.ndarray
    forms: dict[str, str]  # of the leaves whose form is known, by their names


CLASSES = 3


def cross_entropy(logits, y):
    return -jax.nn.log_softmax(logits)[y]


class Maker:
    """Random numbers of one dtype."""

    def __init__(self, seed: int, dtype: Any):
        self.random, self.dtype = np.random.default_rng(seed), dtype

    def __call__(self, *shape: int) -> jax.Array:
        scale = 1 / math.sqrt(max(1, shape[0]))
        return jnp.asarray(scale * self.random.normal(size=shape), self.dtype)

    def records(self, records: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
        x = self.random.normal(size=(records, *shape)) * self.random.lognormal(size=(records, *[1] * len(shape)))
        return x.astype(self.dtype), self.random.integers(CLASSES, size=records).astype(np.int32)


def dense(m: Maker, records: int) -> Network:
    def loss(p, x, y):
        return cross_entropy(jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], y)

    params = {"w1": m(6, 9), "b1": m(9), "w2": m(9, CLASSES), "b2": m(CLASSES)}
    return Network(loss, params, *m.records(records, 6), {"w1": "APART", "w2": "APART", "b1": "FORMED"})


def convolutional(m: Maker, records: int) -> Network:
    def conv(x, kernel, stride, padding):
        return jax.lax.conv_general_dilated(
            x, kernel, (stride,) * 2, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss(p, x, y):
        h = jax.nn.relu(conv(x[None, :, :, None], p["k1"], 2, "SAME") + p["b1"])
        h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")
        h = jax.nn.relu(conv(h, p["k2"], 1, "VALID"))
        return cross_entropy(h.reshape(-1) @ p["w"], y)

    params = {"k1": m(3, 3, 1, 4), "b1": m(4), "k2": m(2, 2, 4, 5), "w": m(2 * 2 * 5, CLASSES)}
    return Network(loss, params, *m.records(records, 8, 8), {"k1": "FORMED", "w": "APART"})


def dilated_1d(m: Maker, records: int) -> Network:
    """A convolution over time, channels first, with holes and unequal padding; a second one that is grouped."""

    def loss(p, x, y):
        h = jax.lax.conv_general_dilated(x[None], p["k"], (2,), [(2, 1)], rhs_dilation=(2,))
        h = jax.lax.conv_general_dilated(jnp.sin(h), p["grouped"], (1,), "SAME", feature_group_count=2)
        h = jax.lax.conv_transpose(h, p["t"], (2,), "SAME", dimension_numbers=("NCH", "OIH", "NCH"))
        return cross_entropy(jnp.mean(h, axis=2)[0], y)

    params = {"k": m(4, 3, 3), "grouped": m(4, 2, 3), "t": m(CLASSES, 4, 2)}
    return Network(loss, params, *m.records(records, 3, 11), {"k": "FORMED", "grouped": "FORMED"})


def normalised(m: Maker, records: int) -> Network:
    """Per record: a layer's outputs by their own mean and deviation, with a scale and a shift; and a skip around it."""

    def loss(p, x, y):
        h = x @ p["w1"]
        h = (h - jnp.mean(h)) / jnp.sqrt(jnp.var(h) + 1e-3) * p["scale"] + p["shift"]
        h = h + jax.nn.gelu(h @ p["w2"])
        return cross_entropy(h @ p["w3"], y)

    params = {"w1": m(5, 8), "scale": 1 + m(8), "shift": m(8), "w2": m(8, 8), "w3": m(8, CLASSES)}
    return Network(loss, params, *m.records(records, 5), {"w2": "APART", "scale": "FORMED"})


def attention(m: Maker, records: int) -> Network:
    """One head over six tokens, queries and keys by one einsum."""

    def loss(p, x, y):
        qkv = jnp.einsum("td,dsh->sth", x, p["qkv"])
        weights = jax.nn.softmax(qkv[0] @ qkv[1].T / 2, axis=-1)
        out = (weights @ qkv[2]) @ p["out"] + x
        return cross_entropy(jnp.mean(out, axis=0) @ p["w"], y)

    params = {"qkv": m(40, 3, 30), "out": m(30, 40), "w": m(40, CLASSES)}
    return Network(loss, params, *m.records(records, 3, 40), {"qkv": "GRAM", "out": "GRAM", "w": "APART"})


def tied(m: Maker, records: int) -> Network:
    """There and back again by one matrix."""

    def loss(p, x, y):
        return jnp.sum(jnp.square(jnp.tanh(x @ p["w"]) @ p["w"].T - x)) / 7 + cross_entropy(x[:CLASSES] * p["s"], y)

    return Network(loss, {"w": m(7, 9), "s": m(CLASSES)}, *m.records(records, 7), {"w": "GRAM"})


def twice(m: Maker, records: int) -> Network:
    """One layer three times over, and a matrix that is used both as it is and scaled."""

    def loss(p, x, y):
        h = x
        for _ in range(3):
            h = jnp.tanh(h @ p["w"] + p["b"])
        return cross_entropy(h @ p["v"] + x @ (2 * p["v"]), y)

    params = {"w": m(11, 11), "b": m(11), "v": m(11, CLASSES)}
    return Network(loss, params, *m.records(records, 11), {"w": "GRAM", "v": "FORMED"})


def recurrent(m: Maker, records: int) -> Network:
    """A loop: what it adds up inside is not read."""

    def loss(p, x, y):
        h = jax.lax.scan(lambda h, row: (jnp.tanh(row @ p["in"] + h @ p["w"]), None), x[0] @ p["in"], x)[0]
        return cross_entropy(h @ p["out"], y)

    params = {"in": m(4, 5), "w": m(5, 5), "out": m(5, CLASSES)}
    return Network(loss, params, *m.records(records, 6, 4), {"w": "FORMED", "out": "APART"})


def embedded(m: Maker, records: int) -> Network:
    """Tokens looked up in a table, which also reads them out."""

    def loss(p, x, y):
        tokens = jnp.clip(jnp.abs(x) * 3, 0, 12).astype(jnp.int32)
        h = p["table"][tokens] + p["positions"]
        out = jnp.tanh(h).sum(axis=0) @ p["tied"].T + jnp.sum(p["tied"][tokens], axis=0)[0]
        return cross_entropy(out[:CLASSES], y)

    params = {"table": m(13, 6), "positions": m(5, 6), "tied": m(13, 6)}
    return Network(loss, params, *m.records(records, 5), {"tied": "FORMED", "table": "LOOKUP"})


def heads(m: Maker, records: int) -> Network:
    """A matrix for each of four heads, in one product with a batch."""

    def loss(p, x, y):
        h = jnp.tanh(jnp.einsum("hd,hdk->hk", x, p["w"]))
        return cross_entropy(jnp.einsum("hk,hkc->c", h, p["v"]), y)

    params = {"w": m(4, 5, 6), "v": m(4, 6, CLASSES)}
    return Network(loss, params, *m.records(records, 4, 5), {"w": "APART"})


NETWORKS = [dense, convolutional, dilated_1d, normalised, attention, tied, twice, recurrent, embedded, heads]
