"""Records set apart from training, to test or to score on: by their places alone.

Which records of a client are set apart follows from how many it has and from nothing that they say. So no label moves a
record between training and test, its own or another's, and no other client does. Where records have persons these are
set apart, with all their records, and it does not matter how many anybody has: persons have the places of their first
records (`unit_rows.in_order`).
"""

import numpy as np

from fedsofim.data.unit_rows import in_order
from fedsofim.errors import InputError

SEED = 0


def set_apart(units: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Which of so many places are set apart: `count` of them at random, but never all.

    >>> set_apart(10, 2, np.random.default_rng(0)).sum(), set_apart(3, 9, np.random.default_rng(0)).sum()
    (np.int64(2), np.int64(2))
    """
    apart = np.zeros(units, bool)
    apart[random.permutation(units)[: min(count, units - 1)]] = True
    return apart


def hold_out(name: str, owner: np.ndarray, fraction: float, person: np.ndarray | None = None) -> np.ndarray:
    """Which records form the test set: the same fraction of each client's, or of its persons, the same every time.

    A person at two clients is to each somebody of its own, so one may train on whom the other tests on.

    >>> hold_out("toy", np.repeat([0, 1], [10, 3]), 0.2).sum()
    np.int64(3)
    """
    if not 0 < fraction < 1:
        raise InputError(f"holdout is {fraction}; expected a fraction between 0 and 1, e.g. 0.2")
    held = np.zeros(len(owner), bool)
    for client in np.unique(owner):
        mine = np.flatnonzero(owner == client)
        whose = np.arange(len(mine)) if person is None else in_order(person[mine])
        units = int(whose.max()) + 1
        held[mine] = set_apart(units, round(fraction * units), np.random.default_rng(SEED))[whose]
    if not held.any():
        what = "records" if person is None else "persons"
        raise InputError(
            f"{name}: too few {what} to hold out {fraction:g} of them; give a test file with test=FILE (--test FILE)"
        )
    return held


def noted(fraction: float, person: np.ndarray | None) -> str:
    """What a result says of it: no numbers of records, which tell of one where persons or clients are protected."""
    return f"held out {fraction:g} of the {'records' if person is None else 'persons'}, by place, seed {SEED}"
