"""Clipped sums of the softmax head, defined in doubles, and problems to compute them for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim import native
from fedsofim.core.records import in_blocks

WHY_NOT = native.why_not("sums")
needs_compiler = pytest.mark.skipif(bool(WHY_NOT), reason=f"it is left to XLA here: {WHY_NOT}")


def problem(sizes, features=5, classes=3, seed=0, scale=1.0):
    """Records of clients of these sizes in blocks, with weights in [0, 1], and a theta for each client."""
    random = np.random.default_rng(seed)
    total = sum(sizes)
    x = scale * random.normal(size=(total, features))
    y = random.integers(0, classes, total)
    parts = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    laid = in_blocks(x.astype(np.float32), y.astype(np.int32), parts)
    weight = laid.weight * random.random(laid.weight.shape).astype(np.float32)
    thetas = (random.normal(size=(len(sizes), features + 1, classes)) / np.sqrt(features)).astype(np.float32)
    return jax.tree.map(jnp.asarray, laid._replace(weight=weight)), jnp.asarray(thetas)


def in_doubles(theta, records, clients, clip):
    """The definition: each record's gradient is formed, clipped, weighted and added to its owner's sum."""
    out = np.zeros((clients, *theta.shape[-2:]))
    laid = [np.asarray(a) for a in records]
    for x, y, weight, owner in zip(*laid, strict=True):
        t = np.asarray(theta if theta.ndim == 2 else theta[owner], float)
        ones = np.concatenate([x.astype(float), np.ones((len(x), 1))], axis=1)
        e = np.exp(ones @ t - (ones @ t).max(axis=1, keepdims=True))
        r = e / e.sum(axis=1, keepdims=True) - np.eye(t.shape[1])[y]
        g = ones[:, :, None] * r[:, None, :]
        norms = np.maximum(np.linalg.norm(g.reshape(len(x), -1), axis=1), 1e-300)
        out[owner] += np.tensordot(weight * np.minimum(1, clip / norms), g, 1)
    return out
