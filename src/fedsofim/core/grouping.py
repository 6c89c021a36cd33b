"""Groups: the records of a block that are added up in floats, at most GROUP of them, and what their sums are."""

from typing import Any

import jax
import jax.numpy as jnp

from fedsofim.core.clipping import GROUP
from fedsofim.core.lattice import Whole

_FULL = 16  # records of a group that are worth a group


def at_least_single(dtype: Any) -> Any:
    """Of sums and noise: 32 bits or more. In bfloat16 noise would have a few hundred values.

    >>> print(at_least_single(jnp.bfloat16), at_least_single(jnp.float32))
    float32 float32
    """
    return jnp.dtype(jnp.float64 if jnp.dtype(dtype) == jnp.float64 else jnp.float32)


def over_groups(whole: Whole, axis: int = 0) -> Whole:
    return Whole(*(jnp.sum(part, axis=axis, dtype=part.dtype) for part in whole))


def groups_of(records: int) -> tuple[int, int]:
    """(groups, records in each) of a block: as even as can be, or the last one padded.

    >>> groups_of(512), groups_of(50), groups_of(424), groups_of(127), groups_of(0)
    ((8, 64), (1, 50), (8, 53), (2, 64), (0, 1))
    """
    size = divisor(records, GROUP) if records else 1
    return (records // size, size) if size >= min(records, _FULL) else (-(-records // GROUP), GROUP)


def padded(a: jax.Array, length: int, axis: int = 0) -> jax.Array:
    """Records of weight 0 up to so many."""
    missing = length - a.shape[axis]
    return jnp.pad(a, [(0, missing if i == axis else 0) for i in range(a.ndim)]) if missing else a


def divisor(number: int, at_most: int) -> int:
    return max(d for d in range(1, min(number, at_most) + 1) if number % d == 0)
