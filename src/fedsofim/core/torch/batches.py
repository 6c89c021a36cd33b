"""Which records go through a torch module together: every record always in the same place of a batch of the same size.

A record's computed vector may depend on its place. So who is where follows from public numbers; and where records are
drawn, place i is always in lane i mod `lanes` of a batch, in one turn or another (docs/clipping.md).
"""

from collections.abc import Iterator

import numpy as np

MOST = 1024  # records of a batch: torch_gradient.py counts with it
_FORMED = 2**21  # numbers of formed rows held at a time
_START = 32  # what starting a batch costs, in records
NOBODY = -1


def batch_size(records: int, formed: int = 0) -> int:
    """How many records go through the module at a time, where each has so many formed numbers.

    >>> batch_size(50_000, 100), batch_size(50, 100), batch_size(50_000, 10**6)
    (1024, 64, 2)
    """
    fitting = max(2, min(MOST, _FORMED // max(1, formed)))
    return min(fitting, max(2, 1 << (records - 1).bit_length()))


def units_at_once(numbers: int) -> int:
    """How many units' vectors of so many numbers are held at a time: at least two, as of records.

    >>> units_at_once(50), units_at_once(10**7)
    (1024, 2)
    """
    return max(2, min(MOST, _FORMED // max(1, numbers)))


def lanes_of(count: int, rate: float, most: int) -> int:
    """Of batches of drawn records: a power of two with which few are expected to be computed for nothing.

    >>> lanes_of(3000, 0.1, 1024), lanes_of(3000, 0.9, 1024), lanes_of(10, 0.01, 16)
    (64, 1024, 16)
    """

    def effort(lanes: int) -> float:
        rows = -(-count // lanes)
        return min(rows, rows * rate + 2 * (rows * rate) ** 0.5 + 1) * (lanes + _START)

    return min((1 << k for k in range(1, most.bit_length())), key=effort)


def in_place(count: int, size: int) -> Iterator[np.ndarray]:
    """All of them, one batch after another; the last one filled up with nobody."""
    for first in range(0, count, size):
        places = np.arange(first, first + size)
        yield np.where(places < count, places, NOBODY)


def in_turns(drawn: np.ndarray, lanes: int) -> Iterator[np.ndarray]:
    """Those drawn: of each lane the next one, as many times as the fullest lane has them.

    >>> [t.tolist() for t in in_turns(np.array([True, False, True, True, False]), 2)]
    [[0, 3], [2, -1]]
    """
    rows = np.pad(drawn, (0, -len(drawn) % lanes)).reshape(-1, lanes)
    turn = np.cumsum(rows, axis=0) - 1
    for number in range(int(turn[-1].max()) + 1 if len(rows) else 0):
        row, lane = np.nonzero(rows & (turn == number))
        places = np.full(lanes, NOBODY)
        places[lane] = row * lanes + lane
        yield places


def taken(a: np.ndarray, places: np.ndarray) -> np.ndarray:
    """These rows, and zeros for nobody."""
    found = a[np.maximum(places, 0)]
    found[places == NOBODY] = 0
    return found
