"""Records gathered into units of protection: a person with all their records at a client, or a whole client.

What is summed over a unit, and why it moves a sum by no more than a record does: core/unit.py.
"""

from collections.abc import Sequence

import numpy as np

from fedsofim.errors import InputError
from fedsofim.protection import Unit

_MOST_PADDING = 32  # times the records: beyond, one unit is so much larger than the others that memory goes to copies


def whose_records(unit: Unit, person: np.ndarray | None, parts: Sequence[np.ndarray], name: str) -> list[np.ndarray]:
    """For each client, the unit of each of its records, numbered from 0."""
    if unit == "client":
        return [np.zeros(len(rows), np.int64) for rows in parts]
    if person is None:
        raise InputError(
            f"{name} does not say whose each record is, so persons cannot be protected as a whole; name the column "
            "(--person-column, or kind = \"person\" in the schema), or protect records (unit 'record')"
        )
    person = np.asarray(person)
    if nameless := sum(int(np.sum(_nobody(person[rows]))) for rows in parts):
        raise InputError(
            f"{name}: {nameless} records name no person; together they would be one, and of somebody who is named in "
            "others not all. Give each person an id of their own, also those who are not known"
        )
    return [in_order(person[rows]) for rows in parts]


def _nobody(person: np.ndarray) -> np.ndarray:
    """Which ids are none: empty text, or no finite number.

    >>> _nobody(np.array(["p1", " ", ""])).tolist(), _nobody(np.array([1.0, np.nan])).tolist()
    ([False, True, True], [False, True])
    """
    if person.dtype.kind in "US":
        return np.char.strip(person) == np.zeros((), person.dtype)
    if person.dtype.kind in "iu":
        return np.zeros(len(person), bool)
    return ~np.isfinite(person) if person.dtype.kind == "f" else np.ones(len(person), bool)


def in_order(person: np.ndarray) -> np.ndarray:
    """Persons numbered as they appear: who is added up with whom does not depend on what anybody is called.

    So a person's place is that of their first record, and to replace a person is to put another in this place, with
    however many records: nobody else's number moves.
    """
    _, first, whose = np.unique(person, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[whose.reshape(-1)]


def counts(whose: Sequence[np.ndarray]) -> tuple[int, ...]:
    """How many units each client holds.

    >>> counts([np.array([0, 1, 0]), np.array([0])])
    (2, 1)
    """
    return tuple(int(w.max()) + 1 for w in whose)


def together(whose: Sequence[np.ndarray], most: int | None = None) -> int:
    """K: the public number of records that may count; without one, those of the largest unit, which is not private."""
    return max(int(np.bincount(w).max()) for w in whose) if most is None else most


def gathered(
    x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray], whose: Sequence[np.ndarray], most: int | None = None
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Records as units of K places, and which of them each client holds. Of a larger unit the first K records count.

    >>> x, y = np.arange(4.0)[:, None], np.array([5, 6, 7, 8])
    >>> _, labels, held = gathered(x, y, [np.arange(4)], [np.array([0, 1, 0, 0])], most=2)
    >>> labels.tolist(), held[0].tolist()
    ([[5, 7], [6, -1]], [0, 1])
    """
    k, units = together(whose, most), counts(whose)
    if sum(units) * k > max(_MOST_PADDING * len(x), 2**20):
        raise InputError(
            f"one unit holds {k} records, so {sum(units)} units would take {sum(units) * k} places for {len(x)} "
            "records; say how many records of a person count (--records-per-person)"
        )
    return laid_by_unit(x, y, parts, whose, k)


def laid_by_unit(
    x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray], whose: Sequence[np.ndarray], k: int
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """The same for a public K, whatever it takes: how many records there are decides nothing."""
    units = counts(whose)
    rows = np.full((sum(units), k), -1)
    first = 0
    for mine, unit, count in zip(parts, whose, units, strict=True):
        order = np.argsort(unit, kind="stable")
        place = np.arange(len(unit)) - np.repeat(np.r_[0, np.cumsum(np.bincount(unit))[:-1]], np.bincount(unit))
        kept = place < k
        rows[first + unit[order][kept], place[kept]] = np.asarray(mine)[order][kept]
        first += count
    absent = rows < 0
    rows = np.where(absent, rows[:, :1], rows)
    labels = y[rows]
    labels[absent] = np.nan if np.issubdtype(y.dtype, np.floating) else -1
    ends = np.cumsum(units)
    return x[rows], labels, tuple(np.arange(end - count, end) for end, count in zip(ends, units, strict=True))
