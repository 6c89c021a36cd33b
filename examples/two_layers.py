"""A model of one's own: a hidden layer of tanh, in plain JAX. Nothing in it says anything about privacy.

Gradients of single records are clipped over all four leaves together, and summed behind the door:

    fedsofim run --model examples/two_layers.py --dataset examples/rings.py --clients 2 --clip 1 --epsilon 10
"""

import jax
import jax.numpy as jnp

from fedsofim import Model

HIDDEN = 16


def two_layers() -> Model:
    """logits = tanh(x·A + a)·B + b."""

    def init(key, shape, classes):
        first, second = jax.random.split(key)
        return {
            "A": jax.random.normal(first, (*shape, HIDDEN), jnp.float32) / shape[0] ** 0.5,
            "a": jnp.zeros(HIDDEN, jnp.float32),
            "B": jax.random.normal(second, (HIDDEN, classes), jnp.float32) / HIDDEN**0.5,
            "b": jnp.zeros(classes, jnp.float32),
        }

    def logits(params, x):
        return jnp.tanh(x @ params["A"] + params["a"]) @ params["B"] + params["b"]

    def loss(params, x, y):
        return -jax.nn.log_softmax(logits(params, x))[y]

    return Model(init, loss, logits)
