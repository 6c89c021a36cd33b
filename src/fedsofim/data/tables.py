"""Tables into rows: by a public schema, or, where nobody gave one, numbers in every column but the label's."""

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.cells import TABLES, Cells, listed, raise_all, read_cells
from fedsofim.data.described import check_person, persons_of, rows_by, without
from fedsofim.data.labels import check_classes, labels_of
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Column, Schema, numbers_only
from fedsofim.data.targets import Label, label_column, label_names, read_answers, with_labels, with_task
from fedsofim.errors import DataWarning, InputError
from fedsofim.tasks import LABELS, Task

EMPTY = ("", "nan", "null", "na", "n/a", "none")  #: how a missing label is written
_SCHEMA = (
    "text, categories, dates and gaps need a schema: fedsofim schema TABLE > schema.toml, completed by you, then "
    "schema='schema.toml' (--schema schema.toml)"
)
_COUNTS = re.compile(r"^$|^unnamed: \d+$|^index$|^rownames?$|^id$|^row(_?(id|nr|no|number))?$", re.IGNORECASE)
_ID = re.compile(r"(^|[ _.-])(id|uuid|mrn)$|[a-z]Id$|[a-z]ID$")


def read_table(
    path: Path,
    label: Label = None,
    drop: Sequence[str] = (),
    schema: Schema | None = None,
    task: Task | None = None,
    person: str | None = None,
) -> Rows:
    """The rows of a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "pets.csv").write_text("weight,label\\n4,cat\\n30,dog\\n")
    ...     rows = read_table(Path(folder) / "pets.csv")
    >>> rows.x.tolist(), rows.y.tolist()
    ([[4.0], [30.0]], ['cat', 'dog'])
    """
    return rows_of(read_cells(path), label, drop, schema, task, person)


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES


def rows_of(
    cells: Cells,
    label: Label = None,
    drop: Sequence[str] = (),
    schema: Schema | None = None,
    task: Task | None = None,
    person: str | None = None,
) -> Rows:
    """The rows of a table that was read. `task`: what is learned, `person`: the column of whose record it is, where no
    schema says it."""
    for remark in cells.remarks:
        warnings.warn(remark, DataWarning, stacklevel=2)
    labels = label_names(label)
    if schema is None:
        return _undescribed(cells, labels, drop, task or Task(), person)
    check_person(schema, person)
    if labels and tuple(c.name for c in schema.of_kind("label")) != labels:
        schema = with_labels(schema, labels)
    return rows_by(with_task(without(schema, drop, cells.origin), task), cells)


# --- without a schema ---------------------------------------------------------------------------------------


def _undescribed(cells: Cells, labels: tuple[str, ...], drop: Sequence[str], task: Task, person: str | None) -> Rows:
    chosen = [_label_column(cells, name) for name in labels or ("label",)]
    if len(chosen) > 1 and task.kind != LABELS:
        raise InputError(f"{cells.origin}: {len(chosen)} label columns; several labels at once are task='labels'")
    if person is not None and person in (*chosen, *drop):
        raise InputError(
            f"{cells.origin}: column '{person}' is to say whose a record is, and is a label or dropped too"
        )
    if person is not None and person not in cells.columns:
        raise InputError(f"{cells.origin}: no column '{person}', which was to say whose each record is")
    columns = _features(cells, tuple(chosen), drop if person is None else (*drop, person))
    whose = [] if person is None else [Column(name=person, kind="person")]
    schema = numbers_only(columns, [*(label_column(name, task) for name in chosen), *whose])
    y, mislabelled = _labels(cells, schema)
    x, misfits = _numbers(cells, columns)
    persons, nameless = persons_of(cells, schema)
    raise_all(cells.origin, mislabelled, *misfits, nameless, [_SCHEMA] if any(misfits) else [])
    if task.by_class:
        check_classes(cells.origin, chosen[0], np.unique(y))
    _check_ids(cells, columns, x)
    read = Rows.of(x, y, cells.origin, columns, cells.place, task)
    return replace(read, schema=schema, person=persons)


def _labels(cells: Cells, schema: Schema) -> tuple[np.ndarray, list[str]]:
    if not schema.task.by_class:
        return read_answers(cells, schema)
    return labels_of(cells, schema.of_kind("label")[0], lambda text: text.lower() in EMPTY)


def _label_column(cells: Cells, chosen: str) -> str:
    if chosen not in cells.columns:
        near = get_close_matches(chosen, cells.header, n=1) if cells.names_are_sure else []
        hint = f"; did you mean '{near[0]}'?" if near else "."
        raise InputError(
            f"{cells.origin}: no column '{chosen}'{hint} Say which column holds the labels with label=NAME "
            f"(--label NAME); {cells.names_in_words}"
        )
    return chosen


def _features(cells: Cells, labels: Sequence[str], drop: Sequence[str]) -> tuple[str, ...]:
    strange = [name for name in drop if name not in cells.columns]
    if strange:
        raise InputError(f"{cells.origin}: no column '{strange[0]}' to drop; {cells.names_in_words}")
    columns = tuple(name for name in cells.header if name not in labels and name not in drop)
    if not columns:
        raise InputError(
            f"{cells.origin}: no column of features beside the label {listed([repr(name) for name in labels])}"
        )
    return columns


def _numbers(cells: Cells, columns: Sequence[str]) -> tuple[np.ndarray, list[list[str]]]:
    """The features, and of each column what is no number within float32's range."""
    x = np.zeros((len(cells), len(columns)))
    misfits: list[list[str]] = [[] for _ in columns]
    for j, (name, problems) in enumerate(zip(columns, misfits, strict=True)):
        for i, cell in enumerate(cells.columns[name]):
            try:
                x[i, j] = float(cell)
            except (TypeError, ValueError):
                problems.append(f"{cells.place(i)}, column '{name}' {_found(cell)}{_way_out(name)}")
                continue
            if not abs(x[i, j]) < 3.4e38:
                value = x[i, j] if math.isnan(x[i, j]) else math.copysign(math.inf, x[i, j])
                problems.append(f"{cells.place(i)}, column '{name}' is {value}; remove or fill it")
    return x, misfits


def _found(cell: Any) -> str:
    if cell is None:
        return "is empty; expected a number"
    return "holds text; expected a number" if str(cell).strip() else "holds an empty cell; expected a number"


def _way_out(column: str) -> str:
    return f". Fix it, or leave the column out with drop=['{column}'] (--drop {column})"


def _check_ids(cells: Cells, columns: Sequence[str], x: np.ndarray) -> None:
    """A column that only counts the rows is no feature; one that is called an id and never repeats may be none."""
    for j, name in enumerate(columns):
        counts = len(x) > 2 and bool(np.all(np.diff(x[:, j]) == 1)) and x[0, j] in (0, 1)
        if counts and _COUNTS.search(name):
            raise InputError(
                f"{cells.origin}: column '{name}' only counts the rows, as a data frame's index does; leave it out "
                f"with drop=['{name}'] (--drop '{name}')"
            )
        if (_ID.search(name) or _COUNTS.search(name)) and len(np.unique(x[:, j])) == len(x) > 2:
            warnings.warn(
                f"{cells.origin}: column '{name}' looks like an id and became a feature; leave it out with "
                f"drop=['{name}'] (--drop '{name}')",
                DataWarning,
                stacklevel=2,
            )
