"""Keys for running programs that draw nothing: derived as JAX derives its own, by a mixing that compiles in no time.

JAX's own derivation (threefry) takes most of the time of compiling a small program. Where the only question is whether
two keys are equal, any good mixing answers it. As with JAX's, `split` gives what `fold_in` of 0, 1, 2, … gives, so that
keys which would be equal there are equal here.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl


def _fold_in(key: jax.Array, number: Any) -> jax.Array:
    """Two words mixed with a number: every step can be undone but the last, which the other word keeps."""
    n = number.astype(jnp.uint32)
    a = (key[0] ^ (n + np.uint32(0x9E3779B9))) * np.uint32(0x85EBCA6B)
    b = ((key[1] + a) ^ (a >> 15)) * np.uint32(0xC2B2AE35) + n
    a = (a ^ (b >> 13)) * np.uint32(0x27D4EB2F) + b
    return jnp.stack([a, b])


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    numbers = jnp.arange(math.prod(shape), dtype=jnp.uint32)
    return jax.vmap(_fold_in, (None, 0))(key, numbers).reshape(*shape, 2)


def _seed(number: jax.Array) -> jax.Array:
    return _fold_in(jnp.zeros(2, jnp.uint32), jnp.asarray(number))


def _bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    return _split(key, (math.prod(shape),))[:, 0].astype(f"uint{width}").reshape(shape)


_IMPL = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="stand_in", tag="stand_in"
)


def keys_from(words: Any) -> jax.Array:
    """Keys with these words, (..., 2)."""
    return jax.random.wrap_key_data(np.asarray(words, np.uint32), impl=_IMPL)  # type: ignore[arg-type]
