"""All clients' records in one array of fixed-size blocks, each block owned by one client.

Clients of 891 and 9,986 records then cost what they hold plus at most one part-filled block each, not the size
of the largest; and one compiled program serves any number of clients.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

_BLOCK_OVERHEAD = 8  # what starting a block costs, in records: keeps blocks from becoming tiny


class Records(NamedTuple):
    """Blocks of records. Everything here but `owner` is private; shapes and sizes are public."""

    x: jax.Array | np.ndarray  # (blocks, B, *features); of units (unit.py): (blocks, B, K, *features)
    y: jax.Array | np.ndarray  # (blocks, B), of units (blocks, B, K); one axis more where a record has several labels
    weight: jax.Array | np.ndarray  # (blocks, B): 1 for a record or unit, 0 for padding
    owner: jax.Array | np.ndarray  # (blocks,): the client's index


def block_size(sizes: Sequence[int], largest: int = 512) -> int:
    """The block length that costs least in padding and block starts.

    >>> block_size([50] * 1000), block_size([1])
    (50, 1)
    """
    counts = np.asarray(sizes)
    candidates = [*range(1, 64), *range(64, largest + 1, 8)]
    costs = [int(np.sum(-(-counts // b)) * (b + _BLOCK_OVERHEAD)) for b in candidates]
    return candidates[int(np.argmin(costs))]


def block_shape(sizes: Sequence[int]) -> tuple[int, int]:
    """How many blocks of which length `in_blocks` makes of clients of these sizes."""
    size = block_size(sizes)
    return sum(-(-n // size) for n in sizes), size


def in_blocks(x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray], size: int | None = None) -> Records:
    """Lay the records of each client (index arrays in `parts`) out in blocks.

    >>> x, y = np.ones((5, 2), np.float32), np.zeros(5, np.int32)
    >>> r = in_blocks(x, y, [np.array([0, 1, 2]), np.array([3, 4])], size=2)
    >>> r.owner.tolist(), r.weight.tolist()
    ([0, 0, 1], [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    """
    size = size or block_size([len(p) for p in parts])
    blocks = [-(-len(p) // size) for p in parts]
    total = sum(blocks)
    order = np.zeros(total * size, np.int64)
    weight = np.zeros(total * size, x.dtype)
    start = 0
    for part, count in zip(parts, blocks, strict=True):
        order[start : start + len(part)] = part
        weight[start : start + len(part)] = 1
        start += count * size
    shape = (total, size)
    keep = weight.reshape(shape).astype(bool)

    def laid(a: np.ndarray) -> np.ndarray:
        kept = np.where(keep.reshape(shape + (1,) * (a.ndim - 1)), a[order].reshape(shape + a.shape[1:]), 0)
        return kept.astype(a.dtype)

    owner = np.repeat(np.arange(len(parts), dtype=np.int32), blocks)
    return Records(laid(x), laid(y), weight.reshape(shape), owner)
