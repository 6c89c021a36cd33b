"""Who takes part when: k of n clients a round, by a schedule that is public and asks everyone equally often.

The clients are dealt into G = ceil(n/k) groups as even as can be, and round t asks group t mod G. So a client answers
at most ceil(T/G) times in T rounds, G rounds apart, and pays for those: nothing is claimed for the rounds in which it
is silent, since everybody knows which they are. `door.round` is how often the client itself was asked before, which is
what noise that is laid out over the rounds goes by.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedsofim.core.records import block_size
from fedsofim.errors import InputError, expect_whole


def check_participants(participants: int | None, clients: int) -> None:
    if participants is None:
        return
    expect_whole("participants", participants, 1)
    if participants > clients:
        raise InputError(f"{participants} participants a round of {clients} clients; expected at most {clients}")


def groups_of_clients(participants: int | None, clients: int) -> int:
    """G: how many groups take turns; 1 where everybody takes part in every round.

    >>> groups_of_clients(7, 20), groups_of_clients(20, 20), groups_of_clients(None, 20)
    (3, 1, 1)
    """
    return 1 if participants is None else math.ceil(clients / participants)


def members(groups: int, clients: int) -> list[np.ndarray]:
    """The clients of each group.

    >>> [m.tolist() for m in members(3, 7)]
    [[0, 3, 6], [1, 4], [2, 5]]
    """
    return [np.arange(first, clients, groups) for first in range(groups)]


def times_asked(rounds: int, groups: int) -> int:
    """How often a client is asked in so many rounds, at most."""
    return -(-rounds // groups)


def largest_group(sizes: Sequence[int], groups: int) -> tuple[int, int]:
    """How many blocks of which length a group's records are laid out in, at most (records.py)."""
    size = block_size(sizes)
    return max(sum(-(-sizes[i] // size) for i in group) for group in members(groups, len(sizes))), size


def attendance_of(sizes: Sequence[int], client_rate: float) -> float:
    """With which probability a client is there in a round; 1 where it holds one unit, which is drawn itself.

    >>> attendance_of([3, 1], 0.1), attendance_of([1, 1], 0.1)
    (0.1, 1.0)
    """
    return 1.0 if max(sizes) == 1 else float(client_rate)
