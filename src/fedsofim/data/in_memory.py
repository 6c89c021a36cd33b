"""Data that is in memory already: arrays, and data frames of pandas or polars."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.assembly import assemble
from fedsofim.data.cells import cells_of_frame, is_frame
from fedsofim.data.dataset import Dataset
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Schema, read_schema, schema_of
from fedsofim.data.tables import rows_of
from fedsofim.data.targets import Label
from fedsofim.errors import InputError
from fedsofim.tasks import Task


def dataset_of_arrays(
    name: str, train: tuple[Any, Any], test: tuple[Any, Any], columns: tuple[str, ...], holdout: float, task: Task
) -> Dataset:
    """Arrays, checked; those for testing are held out where there are none."""
    if (test[0] is None) != (test[1] is None):
        raise InputError(f"{name}: x_test and y_test go together; give both or none")
    if any(is_frame(x) for x, _ in (train, test)):
        raise InputError(
            f"{name}: x is a data frame; use Dataset.from_frame(frame, label=...), which keeps its columns"
        )
    rows = {"train": _rows(name, "train", train, columns, task)}
    rows |= {} if test[0] is None else {"test": _rows(name, "test", test, columns, task)}
    return assemble(name, {"": rows}, None, holdout, {"source": "arrays in memory"})


def _rows(name: str, part: str, pair: tuple[Any, Any], columns: tuple[str, ...], task: Task) -> Rows:
    x, y = np.asarray(pair[0]), np.asarray(pair[1])
    y = y.astype(str) if y.dtype.kind == "O" and all(isinstance(v, str) for v in y.ravel()) else y
    if columns and (x.ndim != 2 or x.shape[1] != len(columns)):
        raise InputError(f"{name}: {len(columns)} names of columns for an array of shape {x.shape}")
    return Rows.of(x, y, f"{name} (x_{part}, y_{part})", columns, task=task)


def dataset_of_frame(
    name: str,
    frame: Any,
    test: Any,
    label: Label,
    drop: Sequence[str],
    schema: Any,
    holdout: float,
    task: Task | None,
    person: str | None = None,
) -> Dataset:
    """A data frame, and perhaps another one for testing."""
    for given in (frame, *(() if test is None else (test,))):
        if not is_frame(given):
            raise InputError(f"{name}: got a {type(given).__name__}; expected a data frame of pandas or polars")
    found = as_schema(schema)
    how = label, drop, found, task, person
    rows = rows_of(cells_of_frame(frame, name), *how)
    check_has_persons(rows, person)
    tested = None if test is None else rows_of(cells_of_frame(test, f"{name} (test)"), *how)
    return assemble(
        name, {"": {"train": rows}}, tested, holdout, {"source": f"a {type(frame).__module__.partition('.')[0]} frame"}
    )


def check_has_persons(rows: Rows, person: str | None) -> None:
    """Training records must say whose they are, where a column was named for that; test records need not."""
    if person is not None and rows.person is None:
        raise InputError(f"{rows.origin}: no column '{person}', which was to say whose each record is")


def as_schema(given: Any) -> Schema | None:
    """A schema as people give it: itself, its file, plain data, or none."""
    if given is None or isinstance(given, Schema):
        return given
    return read_schema(given) if isinstance(given, str | Path) else schema_of(given)
