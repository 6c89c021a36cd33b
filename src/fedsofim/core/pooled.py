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

from fedsofim.core.audit import Program
from fedsofim.core.cohort import Carry, Cohort
from fedsofim.core.method import Method, OneGradient
from fedsofim.core.queries import TILE
from fedsofim.core.records import Records, in_blocks


def can_pool(method: Method) -> bool:
    """Does every client of this method release one gradient at one theta, and nothing else in a round?"""
    return type(method.client) is OneGradient  # a subclass may upload anything


def noise_gain(factors: np.ndarray, shared: bool) -> float:
    """Noise std of the mean over that on one client's sum, for factors a_i.

    Every client draws its own: sqrt(Σ a_i²). Shared, under secure summation, only Σ_i a_i·S_i is seen, which a record
    moves by at most max_i a_i·2c, so the total noise is that of the largest.
    """
    return float(factors.max() if shared else math.sqrt(np.sum(factors**2)))


def ask_pooled(program: Program, cohort: Cohort, carry: Carry, t: Any) -> tuple[Any, Any]:
    """The mean of all uploads, from one call of the audited program."""
    index = jnp.zeros((), jnp.int32)
    inputs = cohort.inputs(carry, t, memory=carry.memory, key=cohort.key, index=index, size=cohort.sizes[0])
    return program(inputs)


def pool(x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray], factors: np.ndarray, wide: bool) -> Records:
    """All clients' records as if of one client, each with its client's factor as its weight.

    `wide` queries read one long block, padded to whole tiles; others go from block to block.

    >>> r = pool(np.ones((600, 2)), np.zeros(600, np.int32), [np.arange(600)], np.array([0.5]), wide=True)
    >>> r.x.shape, float(r.weight.sum())
    ((1, 768, 2), 300.0)
    """
    if wide:
        return _one_block(x, y, parts, factors)
    laid = in_blocks(x, y, parts)
    weight = laid.weight * factors[laid.owner][:, None].astype(x.dtype)
    return laid._replace(weight=weight, owner=np.zeros_like(laid.owner))


def _one_block(x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray], factors: np.ndarray) -> Records:
    order = np.concatenate(parts)
    weight = np.repeat(np.asarray(factors, x.dtype), [len(p) for p in parts])
    padding = -len(order) % min(TILE, len(order))

    def laid(a: np.ndarray) -> np.ndarray:
        return np.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1))[None]

    return Records(laid(x[order]), laid(y[order]), laid(weight), np.zeros(1, np.int32))
