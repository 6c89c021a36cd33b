"""Clipped sums as a deployed node forms them: every record's vector clipped in doubles, rounded onto a lattice, added
up as integers, so that no rounding of a sum depends on a record.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.queries import Query, SecondMoment
from fedsofim.errors import Refused

_AT_ONCE = 2**22  # numbers of per-record vectors held at a time
_GUARD = 1 - 1e-9  # keeps a clipped norm below the clip in spite of rounding in the last digits of a double


def exact_sum(
    query: Query,
    consts: Sequence,
    x: np.ndarray,
    y: np.ndarray,
    clip: float,
    step: float | None,
    taken: np.ndarray | None = None,
) -> np.ndarray:
    """Sum of clipped vectors over records: int64 in units of `step`, or float64 where there is none.

    `taken`: which records count (None: all). Vectors are computed of all of them, each in its place: in floats a vector
    may depend on what stands beside it, and who was drawn must not change what others say.
    """
    consts = [jnp.asarray(c) for c in consts]
    size = sum(math.prod(s.shape) for s in query.outputs(consts))
    if step is not None:
        check_fits(len(y), clip, step)
    total = np.zeros(size, np.float64 if step is None else np.int64)
    chunk = max(1, _AT_ONCE // size)
    for first in range(0, len(y), chunk):
        piece = slice(first, first + chunk)
        clipped = _summands(query, consts, x[piece], y[piece], clip)
        clipped = clipped if taken is None else np.where(taken[piece, None], clipped, 0.0)
        total += clipped.sum(axis=0) if step is None else np.rint(clipped / step).astype(np.int64).sum(axis=0)
    return total


def check_fits(count: int, clip: float, step: float) -> None:
    """Do sums of so many records fit the lattice's integers? Also asked before a request is charged."""
    if not (step > 0 and count * clip / step < 2**62 and clip / step < 2**52):
        raise Refused(f"{count} records at clip {clip:g} and this noise do not fit the lattice; raise the multiplier")


def _summands(query: Query, consts: Sequence, x: np.ndarray, y: np.ndarray, clip: float) -> np.ndarray:
    """What each record adds, one row of doubles for each, of norm at most `clip`."""
    if not isinstance(query, SecondMoment):
        return _clipped(_vectors(query, consts, x, y), clip)
    v = _clipped(_vectors(query.vector, consts, x, y), math.sqrt(clip))
    rows, columns = np.triu_indices(v.shape[1])  # v·vᵀ in doubles: in floats it would not quite be semi-definite
    return v[:, rows] * v[:, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))


def _vectors(query: Query, consts: Sequence, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Every record's vector, unclipped, as one row of doubles."""
    leaves = _each(query, consts, jnp.asarray(x), jnp.asarray(y))
    return np.concatenate([np.asarray(leaf, np.float64).reshape(len(y), -1) for leaf in leaves], axis=1)


@partial(jax.jit, static_argnums=0)
def _each(query: Any, consts: Sequence, x: jax.Array, y: jax.Array) -> list[jax.Array]:
    return query.vectors(consts, x, y)


def _clipped(vectors: np.ndarray, clip: float) -> np.ndarray:
    """Rows of norm at most `clip`; a row that is not finite becomes zero and says nothing at all."""
    norm = np.linalg.norm(vectors, axis=1)
    finite = np.isfinite(norm)
    factor = np.where(finite, np.minimum(1.0, clip * _GUARD / np.maximum(norm, 1e-300)), 0.0)
    return np.where(finite[:, None], vectors, 0.0) * factor[:, None]
