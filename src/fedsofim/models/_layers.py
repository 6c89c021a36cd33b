"""What the networks of this room are put together from: layers, activations, and how their numbers start.

Sums of tanh saturate where gradients would have to be clipped, so a little less is lost to clipping than with relu.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from fedsofim.core.normals import normal
from fedsofim.errors import InputError, is_whole, one_of, shown

Activation = Literal["tanh", "relu", "gelu"]
Layer = dict[str, jax.Array]  # w and b

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": lambda x: jnp.maximum(x, 0),
    "gelu": lambda x: jax.nn.gelu(x, approximate=True),
}

MOST_LAYERS = 100  # named by whoever orders a model: a node must not be kept busy by one


def activation_of(name: str) -> Callable[[jax.Array], jax.Array]:
    return _ACTIVATIONS[one_of("activation", name, get_args(Activation))]


def started(key: jax.Array, shape: tuple[int, ...], scale: float = 1.0) -> Layer:
    """w ~ N(0, scale²/fan_in), the last axis being what it gives; b = 0."""
    std = scale / math.sqrt(max(1, math.prod(shape[:-1])))
    return {"w": std * normal(key, shape, jnp.float32), "b": jnp.zeros(shape[-1], jnp.float32)}


def dense(layer: Layer, x: jax.Array) -> jax.Array:
    """x·w + b of one record."""
    return x @ layer["w"] + layer["b"]


def conv(layer: Layer, image: jax.Array, stride: int) -> jax.Array:
    """One record's image (h, w, c) under a kernel (k, k, c, to), with zeros around so that nothing is cut off."""
    out = jax.lax.conv_general_dilated(
        image[None], layer["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out[0] + layer["b"]


def widths(name: str, given: Any, least: int = 0) -> tuple[int, ...]:
    """Sizes of layers: whole numbers above 0, one number for one layer.

    >>> widths("hidden", 64), widths("hidden", [64, 32])
    ((64,), (64, 32))
    """
    found: tuple[Any, ...] = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not least <= len(found) <= MOST_LAYERS or not all(is_whole(n) and n >= 1 for n in found):
        raise InputError(
            f"{name} is {shown(given)}; expected whole numbers above 0, at most {MOST_LAYERS}, for example {name}=64,64"
        )
    return found
