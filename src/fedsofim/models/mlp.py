"""A multilayer perceptron: layers of x -> activation(x·w + b), then one without activation.

A record's gradient of a layer is the outer product of what goes in and the loss's slope behind it: never formed.
"""

import math
from itertools import pairwise
from typing import Any

import jax

from fedsofim.core.models import Model
from fedsofim.models._layers import Activation, Layer, activation_of, dense, started, widths
from fedsofim.models._network import network, remembered


@remembered
def mlp(hidden: tuple[int, ...] = (64, 64), activation: Activation = "tanh") -> Model:
    """Hidden layers of these widths between the features and the outputs.

    >>> params = mlp((8,)).init(jax.random.key(0), (5,), 3)
    >>> [layer["w"].shape for layer in params]
    [(5, 8), (8, 3)]
    """
    hidden, act = widths("hidden", hidden), activation_of(activation)

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> list[Layer]:
        sizes = (math.prod(shape), *hidden, outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        return [started(k, pair) for k, pair in zip(keys, pairwise(sizes), strict=True)]

    def outputs(params: Any, x: jax.Array) -> jax.Array:
        x = x.reshape(-1)
        for layer in params[:-1]:
            x = act(dense(layer, x))
        return dense(params[-1], x)

    return network(init, outputs)
