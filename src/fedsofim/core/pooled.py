"""Pooled: all clients' mean in one sum, where each releases one gradient at the same theta. All about it is here.

With a_i = w_i/|D_i|, the mean of such uploads is

    Σ_i w_i·(S_i + z_i)/|D_i| = Σ_i a_i·S_i + Σ_i a_i·z_i,

one clipped sum in which client i's records weigh a_i, plus one Gaussian. So the audited program may run once, on
records that carry those weights, as a client of size 1: the same law as asking every client, at a fraction of the work.
The charges do not change, they are those of one client's program.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedsofim.core.adaptive_clip import AdaptiveGradient
from fedsofim.core.audit import Program
from fedsofim.core.clipping import GROUP
from fedsofim.core.cohort import Carry, Cohort
from fedsofim.core.method import Method, OneGradient
from fedsofim.core.records import Records


def can_pool(method: Method) -> bool:
    """Does every client of this method release one gradient at one theta, and nothing else in a round?"""
    return type(method.client) in (OneGradient, AdaptiveGradient)  # a subclass may upload anything


def noise_gain(factors: np.ndarray, shared: bool, min_clients: int | None = None) -> float:
    """Noise std of the mean over that on one client's sum, for factors a_i.

    Every client draws its own: sqrt(Σ a_i²). Shared, under secure summation, only Σ_i a_i·S_i is seen, which a record
    moves by at most max_i a_i·2c, so the total noise is that of the largest. Where `min_clients` of n may be all that
    is left, these must draw that much, each 1/sqrt(min_clients) of it: with all n there it is sqrt(n/min_clients) more.
    """
    if not shared:
        return math.sqrt(np.sum(factors**2))
    return float(factors.max()) * math.sqrt(len(factors) / (min_clients or len(factors)))


def ask_pooled(program: Program, cohort: Cohort, carry: Carry, t: Any) -> tuple[Any, Any]:
    """The mean of all uploads, from one call of the audited program."""
    index = jnp.zeros((), jnp.int32)
    inputs = cohort.inputs(carry, t, memory=carry.memory, key=cohort.key, index=index, size=cohort.sizes[0])
    return program(inputs)


def pool(x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray], factors: np.ndarray, tile: int) -> Records:
    """All clients' records as if of one client, each with its client's factor as its weight, in one long block.

    Padded to whole tiles of so many records (`Query.tile`), or of a few where tiles would be mostly padding.

    >>> r = pool(np.ones((600, 2)), np.zeros(600, np.int32), [np.arange(600)], np.array([0.5]), tile=256)
    >>> r.x.shape, float(r.weight.sum())
    ((1, 640, 2), 300.0)
    """
    order = np.concatenate(parts)
    weight = np.repeat(np.asarray(factors, x.dtype), [len(p) for p in parts])
    padding = -len(order) % _tile(tile, len(order))

    def laid(a: np.ndarray) -> np.ndarray:
        return np.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1))[None]

    return Records(laid(x[order]), laid(y[order]), laid(weight), np.zeros(1, np.int32))


def whose(sizes: Sequence[int], laid: Records) -> np.ndarray:
    """Whose each of the records is that `pool` laid out; padding is the last one's, and weighs nothing."""
    owner = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return np.pad(owner, (0, laid.weight.size - len(owner)), mode="edge").reshape(laid.weight.shape)


def _tile(tile: int, records: int) -> int:
    """So that at most a sixteenth of what is laid out is padding, but for a group's.

    >>> _tile(1024, 50_000), _tile(1024, 3000), _tile(256, 600), _tile(256, 10)
    (1024, 128, 64, 10)
    """
    while tile > GROUP and tile > records / 16:
        tile //= 2
    return min(tile, records)
