"""Answers out of tables and arrays, for tasks other than classes: read, checked, and coded by the public range.

A number is read as a feature is; of several labels each column says yes or no, in any of the words of schema.py.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedsofim.data.cells import Cells, listed, raise_all
from fedsofim.data.columns import READERS, Wrong, is_gap
from fedsofim.data.schema import Column, Schema
from fedsofim.errors import DataWarning, InputError
from fedsofim.tasks import CLASSES, COUNTS, LABELS, Task

Label = str | Sequence[str] | None  # the column of the labels, or several


def label_names(label: Label) -> tuple[str, ...]:
    """Columns as people give them: one, several, or none."""
    return () if label is None else (label,) if isinstance(label, str) else tuple(label)


def with_labels(schema: Schema, labels: Sequence[str]) -> Schema:
    """The same with other labels; what was a label is left out."""
    plain = dict.fromkeys(("classes", "range", "words", "from_records"), ()) | {"task": "", "huber": None}
    columns = [replace(c, kind="drop", **plain) if c.kind == "label" else c for c in schema.columns]
    if strange := [name for name in labels if name not in {c.name for c in columns}]:
        raise InputError(f"the schema has no column '{strange[0]}'; its columns: {listed([c.name for c in columns])}")
    return replace(schema, columns=tuple(Column(name=c.name, kind="label") if c.name in labels else c for c in columns))


def with_task(schema: Schema, task: Task | None) -> Schema:
    """The same with a task that was given beside it, which must be the schema's where that has one."""
    if task is None or task == schema.task:
        return schema
    if schema.task.kind not in (CLASSES, LABELS) or (schema.task.kind == LABELS and task.kind != LABELS):
        raise InputError(
            f"the schema's labels are of the task {schema.task}, and {task} was asked for; give one of them"
        )
    of_task = {"task": task.kind, "range": task.range or (), "huber": task.huber}
    of_task |= {} if task.by_class else {"classes": ()}
    columns = tuple(replace(c, **of_task) if c.kind == "label" else c for c in schema.columns)
    return replace(schema, columns=columns)


def label_column(name: str, task: Task) -> Column:
    """The column of a label that nobody described, for a task."""
    if task.kind in (CLASSES, LABELS):
        return Column(name=name, kind="label", task="" if task.kind == CLASSES else LABELS)
    return Column(name=name, kind="label", task=task.kind, range=task.range or (), huber=task.huber)


def answers_of(cells: Cells, schema: Schema) -> np.ndarray:
    """What the label columns hold, in their own units: (records,), or (records, labels). All problems in one error."""
    found, problems = read_answers(cells, schema)
    raise_all(cells.origin, problems)
    return found


def read_answers(cells: Cells, schema: Schema) -> tuple[np.ndarray, list[str]]:
    """The same, and what is wrong with it."""
    columns, empty = schema.of_kind("label"), is_gap(schema)
    found, problems = np.zeros((len(cells), len(columns))), []
    for j, column in enumerate(columns):
        read = READERS["boolean" if schema.task.kind == LABELS else "number"](column)
        for i, cell in enumerate(cells.columns[column.name]):
            try:
                found[i, j] = _answer(cell, read, empty, schema.task)
            except Wrong as wrong:
                problems.append(f"{cells.place(i)}, column '{column.name}' {wrong}")
    return found if schema.task.kind == LABELS else found[:, 0], problems


def _answer(cell: Any, read: Callable[[Any], Any], empty: Callable[[Any], bool], task: Task) -> float:
    if empty(cell):
        raise Wrong("is empty, and it is what is predicted; fill it or remove the line")
    value = float(read(cell))
    if task.kind == COUNTS and (value < 0 or value != int(value)):
        raise Wrong("holds no count; expected 0, 1, 2, ...")
    return value


def truth_of(cells: Cells, schema: Schema, task: Task) -> np.ndarray:
    """The same, coded."""
    return task.coded(answers_of(cells, schema))


def checked_answers(y: np.ndarray, origin: str, place: Callable[[int], str], task: Task) -> np.ndarray:
    """Answers out of an array, in their own units."""
    if y.dtype.kind not in "fiub":
        raise InputError(f"{origin}: {task.kind} are {y.dtype}; expected numbers")
    y = y.astype(np.float64)
    wrong, expected = ~np.isfinite(y), "a finite number"
    if task.kind == COUNTS:
        wrong, expected = wrong | (y < 0) | (y != np.floor(y)), "a count: 0, 1, 2, ..."
    if task.kind == LABELS:
        wrong, expected = ~np.isin(y, (0, 1)), "0 or 1 for each label"
    if len(bad := np.argwhere(wrong)):
        raise InputError(f"{origin}: {place(int(bad[0][0]))} has another label; expected {expected}")
    return y


def coded(name: str, task: Task, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Answers of every part as y. What lies outside the public range is said: it counts as the nearer end."""
    for part, values in parts.items():
        if outside := task.outside(values):
            warnings.warn(
                f"{name}: {outside} of the {len(values)} {task.kind} of the {part} part lie outside the public range "
                f"{task.ends[0]:g} to {task.ends[1]:g} and count as its ends",
                DataWarning,
                stacklevel=2,
            )
    return {part: task.coded(values) for part, values in parts.items()}
