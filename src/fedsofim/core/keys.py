"""Keys of the one generator that everything here is drawn with, whatever generator the process has as its default.

What is proved of keys (walk.py: none reaches a release twice) is about how this generator derives them. In others keys
may meet: where folding in commutes (`unsafe_rbg`), client i would draw in round t what client t draws in round i.
"""

from typing import Any

import jax

_GENERATOR = "threefry2x32"


def key_of(seed: Any) -> jax.Array:
    """The key of a seed: `jax.random.key(seed)`, where JAX's default is what it is without a setting.

    >>> bool((key_of(3) == jax.random.key(3)).all())
    True
    """
    return jax.random.key(seed, impl=_GENERATOR)


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
