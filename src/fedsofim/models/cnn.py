"""A convolutional network for images that come as rows: strided convolutions, hidden layers, the outputs.

A convolution that steps by two pixels does the work of one with pooling at a quarter of its cost.
"""

import math
from itertools import pairwise
from typing import Any

import jax

from fedsofim.core.models import Model
from fedsofim.errors import InputError, expect_whole, shown
from fedsofim.models._layers import Activation, Layer, activation_of, conv, dense, started, widths
from fedsofim.models._network import network, remembered


@remembered
def cnn(
    channels: tuple[int, ...] = (16, 32),
    image: tuple[int, ...] | None = None,
    kernel: int = 5,
    stride: int = 2,
    hidden: tuple[int, ...] = (),
    activation: Activation = "tanh",
) -> Model:
    """Convolutions with so many channels each; `image` is (height, width, channels), None: a square of one channel.

    >>> params = cnn((4, 8)).init(jax.random.key(0), (64,), 10)
    >>> [layer["w"].shape for layer in params["conv"]], [layer["w"].shape for layer in params["dense"]]
    ([(5, 5, 1, 4), (5, 5, 4, 8)], [(32, 10)])
    """
    channels, hidden, act = widths("channels", channels, least=1), widths("hidden", hidden), activation_of(activation)
    if image is not None and len(widths("image", image)) != 3:
        raise InputError(f"image is {shown(image)}; expected height, width and channels, for example image=28,28,1")
    expect_whole("kernel", kernel, 1)
    expect_whole("stride", stride, 1)

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> dict[str, list[Layer]]:
        height, width, depth = image_shape(shape, image)
        for _ in channels:
            height, width = -(-height // stride), -(-width // stride)
        depths, sizes = (depth, *channels), (height * width * channels[-1], *hidden, outputs)
        first, second = jax.random.split(key)
        keys = jax.random.split(first, len(channels)), jax.random.split(second, len(sizes) - 1)
        kernels = [(kernel, kernel, a, b) for a, b in pairwise(depths)]
        return {
            "conv": [started(k, s) for k, s in zip(keys[0], kernels, strict=True)],
            "dense": [started(k, s) for k, s in zip(keys[1], pairwise(sizes), strict=True)],
        }

    def outputs(params: Any, x: jax.Array) -> jax.Array:
        x = x.reshape(image_shape(x.shape, image))
        for layer in params["conv"]:
            x = act(conv(layer, x, stride))
        x = x.reshape(-1)
        for layer in params["dense"][:-1]:
            x = act(dense(layer, x))
        return dense(params["dense"][-1], x)

    return network(init, outputs)._replace(takes="as many features")


def image_shape(shape: tuple[int, ...], image: tuple[int, ...] | None) -> tuple[int, ...]:
    """(height, width, channels) of a record.

    >>> image_shape((784,), None), image_shape((192,), (8, 8, 3)), image_shape((8, 8), None)
    ((28, 28, 1), (8, 8, 3), (8, 8, 1))
    """
    numbers = math.prod(shape)
    if image is None and len(shape) in (2, 3):
        return (*shape, 1) if len(shape) == 2 else shape
    side = math.isqrt(numbers)
    found = (side, side, 1) if image is None else image
    if math.prod(found) != numbers:
        wanted = "a square of one channel" if image is None else "x".join(map(str, image))
        raise InputError(
            f"a record has {numbers} numbers, which are not those of {wanted}; say what the image is with "
            "image=(height, width, channels) (--set-model image=8,8,3), and use no preparation that adds features"
        )
    return found
