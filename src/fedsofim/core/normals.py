"""Normal numbers in a form that compiles quickly, and coins that fall no more often than they are priced for."""

import math
from collections.abc import Sequence
from typing import Any

import jax


def normal(key: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
    """`jax.random.normal`, number for number, drawn as one row: with a short last axis XLA takes several times as long
    to compile it, and compiling is most of a cold run.

    >>> bool((normal(jax.random.key(0), (3, 2), float) == jax.random.normal(jax.random.key(0), (3, 2), float)).all())
    True
    """
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(tuple(shape))


_COIN = 2**23  # a float of 32 bits between 0 and 1, as JAX draws it, is one of so many


def coins(key: jax.Array, rate: float, shape: Sequence[int]) -> jax.Array:
    """Who takes part: each with probability `rate`, or up to 2^-23 less.

    A uniform float is k/2^23, and below `rate` with a probability that is rounded up to the next of these: of a rate of
    1e-9 a hundred times as often. Rounded down here, so that what is drawn is never more than what is priced (a smaller
    rate never costs more).

    >>> int(coins(jax.random.key(0), 2.0**-24, (1000,)).sum())
    0
    """
    return jax.random.bernoulli(key, math.floor(rate * _COIN) / _COIN, tuple(shape))
