"""Keys of the one generator that everything here is drawn with, whatever generator the process has as its default.

What is proved of keys (walk.py: none reaches a release twice) is about how this generator derives them. In others keys
may meet: where folding in commutes (`unsafe_rbg`), client i would draw in round t what client t draws in round i.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_GENERATOR = "threefry2x32"


def key_of(seed: int) -> jax.Array:
    """The key of all 64 bits of a seed; `jax.random.key` takes 32 of them unless JAX counts in 64 bits.

    >>> bool((key_of(3) == jax.random.key(3)).all())
    True
    """
    return key_of_words(jnp.asarray(words_of(seed)))


def words_of(seed: int) -> np.ndarray:
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def key_of_words(words: Any) -> jax.Array:
    """Keys with these words, (..., 2)."""
    return jax.random.wrap_key_data(words, impl=_GENERATOR)


def is_own_key(dtype: Any) -> bool:
    """Is it a key's type of this generator, itself and not one that says it is equal?"""
    own: Any = jax.eval_shape(lambda: key_of(0)).dtype
    return type(dtype) is type(own) and dtype._impl is own._impl


def is_own_generator(value: Any) -> bool:
    """Is it this generator itself?"""
    own: Any = jax.eval_shape(lambda: key_of(0)).dtype
    return value is own._impl
