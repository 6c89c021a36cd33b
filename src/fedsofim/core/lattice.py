"""Sums without rounding: each summand is rounded onto a lattice, and then whole numbers are added.

A long sum of floats rounds at every step, and how depends on all that was added before: replacing one record then moves
the rounding of all the others, at a million records by a tenth of the clip. Rounded onto a lattice, a summand
becomes the same whole number whatever the others are, and replacing it moves the sum by that alone.

JAX has no 64-bit numbers by default, so a whole number is two of 32 bits, coarse and fine, and the sum is given out
as two floats.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Pair(NamedTuple):
    """A sum as hi + lo: hi is its nearest float, lo the rest."""

    hi: jax.Array
    lo: jax.Array


class Whole(NamedTuple):
    """coarse·(coarse step) + fine·(fine step); integers, or floats and zeros where there is no lattice."""

    coarse: jax.Array
    fine: jax.Array


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """For sums of `records` vectors of at most `clip`, which come in `groups` sums of a few.

    With b bits for a number (30, or 61 for doubles), 2^e <= clip < 2^(e+1), and records and groups rounded up to powers
    of two N and G: the coarse step is 2^(e+1-b)·N, so coarse numbers add up to at most 2^b + G/2. What a group has
    beyond them is at most half a coarse step, and the fine step is G·2^-b coarse ones, so fine numbers do too. All
    steps are powers of two, and every product, difference and conversion below is exact.
    """

    clip: float
    records: int
    groups: int

    def steps(self, dtype: Any) -> tuple[float, float]:
        """(coarse, fine): what is lost of a group's number is at most half a fine step."""
        bits = _bits(dtype)
        coarse = math.ldexp(_power_from(self.records), math.frexp(self.clip)[1] - bits)
        return coarse, math.ldexp(coarse * _power_from(self.groups), -bits)

    def whole(self, sums: jax.Array) -> Whole:
        """Sums of groups, each rounded to the nearest on the lattice."""
        if math.isinf(self.clip):
            return Whole(sums, jnp.zeros_like(sums))
        (coarse, fine), whole = self.steps(sums.dtype), _integers(sums.dtype)
        first = jnp.round(sums * (1 / coarse))
        second = jnp.round((sums - first * coarse) * (1 / fine))
        return Whole(first.astype(whole), second.astype(whole))

    def pair(self, total: Whole, dtype: Any) -> Pair:
        """A sum of whole numbers as two floats: exact but for the last rounding of lo, 2^-24 of it."""
        if math.isinf(self.clip):
            return Pair(total.coarse, total.fine)
        coarse, fine = self.steps(dtype)
        shift = round(math.log2(coarse / fine))
        carry = (total.fine + (1 << (shift - 1))) >> shift
        high, low = total.coarse + carry, total.fine - (carry << shift)
        hi = high.astype(dtype)
        rest = high - hi.astype(high.dtype)
        return Pair(hi * coarse, rest.astype(dtype) * coarse + low.astype(dtype) * fine)

    def loss(self, numbers: int, dtype: Any) -> float:
        """How far one group's rounding and the pair's can take a sum of so many numbers, in clips and in L2.

        Half a fine step a number; and 2^-23 of |lo|, at most 2^-24·|hi| and half a coarse step, where |hi| is at
        most a clip for each record.
        """
        if math.isinf(self.clip):
            return 0.0
        coarse, fine = self.steps(dtype)
        return math.sqrt(numbers) * (fine / 2 + coarse * 2.0**-24) / self.clip + self.records * 2.0**-47


def _bits(dtype: Any) -> int:
    return 61 if jnp.dtype(dtype) == jnp.float64 else 30


def _integers(dtype: Any) -> Any:
    return jnp.int64 if jnp.dtype(dtype) == jnp.float64 else jnp.int32


def _power_from(number: int) -> int:
    """The least power of two that is not below.

    >>> _power_from(1), _power_from(5), _power_from(64)
    (1, 8, 64)
    """
    return 1 << max(0, number - 1).bit_length()
