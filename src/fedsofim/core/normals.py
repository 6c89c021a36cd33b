"""Normal numbers in a form that compiles quickly."""

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
