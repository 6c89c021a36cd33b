"""Rows of one file of the user's own, checked while the file, row and column can still be named."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsofim.data.schema import Schema
from fedsofim.data.targets import checked_answers
from fedsofim.errors import InputError
from fedsofim.tasks import LABELS, Task


@dataclass(frozen=True)
class Rows:
    """Features (records x p), labels as written (numbers and counts in their units), the file they came from and its
    columns, if named."""

    x: np.ndarray
    y: np.ndarray
    origin: str
    columns: tuple[str, ...] = ()
    schema: Schema | None = None  # of a table; with classes in it, labels are their numbers
    person: np.ndarray | None = None  # whose record it is, where the table says so
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)  # public groups that accuracy is told for
    task: Task = Task()

    @staticmethod
    def of(
        x: Any,
        y: Any,
        origin: str,
        columns: tuple[str, ...] = (),
        place: Callable[[int], str] = "row {}".format,
        task: Task = Task(),
    ) -> "Rows":
        """Check one file's arrays; `place` says where in the file a record stands.

        >>> Rows.of([[1.0, float("nan")]], ["a"], "mine.csv", ("width", "height"))
        Traceback (most recent call last):
        fedsofim.errors.InputError: mine.csv: row 0, column 'height' is nan; remove or fill it (1 such value)
        """
        x, y = np.asarray(x), np.asarray(y)
        several = task.kind == LABELS
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 and not several else y
        if x.ndim != 2 or y.ndim != 1 + several or len(x) != len(y):
            raise InputError(
                f"{origin}: features of shape {x.shape} and labels of shape {y.shape}; expected (records, "
                f"features) and {'(records, labels)' if several else '(records,)'}"
            )
        if len(x) == 0 or x.shape[1] == 0:
            raise InputError(f"{origin}: {len(x)} records of {x.shape[1]} features; expected one or more of each")
        if x.dtype.kind not in "fiub":
            raise InputError(f"{origin}: features are {x.dtype}; expected numbers")
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which the next line reports
            x = x.astype(np.float32)
        _check_finite(x, origin, columns, place)
        read = _labels(y, origin, place) if task.by_class else checked_answers(y, origin, place, task)
        return Rows(x, read, origin, columns, task=task)


def _check_finite(x: np.ndarray, origin: str, columns: tuple[str, ...], place: Callable[[int], str]) -> None:
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = bad[0]
        name = repr(columns[column]) if columns else str(column)
        raise InputError(
            f"{origin}: {place(row)}, column {name} is {x[row, column]}; remove or fill it "
            f"({len(bad)} such value{'s' * (len(bad) > 1)})"
        )


def _labels(y: np.ndarray, origin: str, place: Callable[[int], str]) -> np.ndarray:
    """Labels as whole numbers or as text."""
    if y.dtype.kind in "US":
        return y.astype(str)
    if y.dtype.kind not in "fiub":
        raise InputError(f"{origin}: labels are {y.dtype}; expected whole numbers or text")
    odd = np.flatnonzero(~np.isfinite(y) | (y != np.floor(y))) if y.dtype.kind == "f" else []
    if len(odd):
        raise InputError(f"{origin}: {place(int(odd[0]))} has another label; expected a whole number or text")
    return y.astype(np.int64)


def joined(parts: list[Rows]) -> Rows:
    """Rows of several files as one, columns in the order of the first file."""
    first = parts[0]
    parts = [_in_order(rows, first) for rows in parts]
    text = any(rows.y.dtype.kind == "U" for rows in parts)
    labels = [rows.y.astype(str) if text else rows.y for rows in parts]
    persons = [rows.person for rows in parts if rows.person is not None]
    return replace(
        first,
        x=np.concatenate([rows.x for rows in parts]),
        y=np.concatenate(labels),
        person=np.concatenate(persons) if len(persons) == len(parts) else None,
        groups={name: np.concatenate([rows.groups[name] for rows in parts]) for name in first.groups},
    )


def _in_order(rows: Rows, like: Rows) -> Rows:
    if rows.columns and like.columns and rows.columns != like.columns:
        missing, extra = (
            sorted(set(a) - set(b)) for a, b in ((like.columns, rows.columns), (rows.columns, like.columns))
        )
        if missing or extra:
            raise InputError(
                f"{rows.origin}: its columns differ from those of {like.origin}: "
                + "; ".join(f"{word} {', '.join(c)}" for word, c in (("missing", missing), ("only here", extra)) if c)
            )
        order = [rows.columns.index(column) for column in like.columns]
        return replace(rows, x=rows.x[:, order], columns=like.columns)
    if rows.x.shape[1] != like.x.shape[1]:
        raise InputError(
            f"{rows.origin}: {rows.x.shape[1]} features per record, but {like.origin} has {like.x.shape[1]}"
        )
    return rows
