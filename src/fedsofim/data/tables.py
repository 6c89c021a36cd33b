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
from fedsofim.data.columns import encode, is_gap, plain_text, strangers, texts
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Column, Schema, numbers_only
from fedsofim.data.targets import Label, answers_of, label_column, label_names, with_labels, with_task
from fedsofim.errors import DataWarning, InputError
from fedsofim.tasks import LABELS, Task

EMPTY = ("", "nan", "null", "na", "n/a", "none")  #: how a missing label is written
MANY = 100  # classes of a table; with more, a label is a quantity
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
    return _described(cells, with_task(without(schema, drop, cells.origin), task))


# --- with a schema ------------------------------------------------------------------------------------------


def check_person(schema: Schema, person: str | None) -> None:
    """A column of persons that was named beside a schema must be the schema's."""
    said = None if schema.person is None else schema.person.name
    if person is not None and person != said:
        says = "has no column of kind person" if said is None else f"says that column '{said}' is the person"
        raise InputError(
            f"'{person}' was named as the column of persons, and the schema {says}; say kind = 'person' of "
            f"'{person}' there, or leave --person-column out"
        )


def without(schema: Schema, drop: Sequence[str], origin: str) -> Schema:
    if strange := [name for name in drop if name not in {c.name for c in schema.columns}]:
        raise InputError(f"{origin}: no column '{strange[0]}' to drop in the schema")
    columns = tuple(Column(name=c.name, kind="drop") if c.name in drop else c for c in schema.columns)
    return replace(schema, columns=columns)


def _described(cells: Cells, schema: Schema) -> Rows:
    if (column := schema.label) is None:
        raise InputError(f"{cells.origin}: the schema has no column of kind label, which training needs")
    for found in schema.of_kind("label"):
        if found.name not in cells.columns:
            raise InputError(
                f"{cells.origin}: no column '{found.name}', the schema's label; columns: {listed(cells.header)}"
            )
    if unknown := strangers(schema, cells):
        raise InputError(
            f"{cells.origin}: the schema says nothing of column {listed([repr(u) for u in unknown])}; "
            "describe each, or say kind = 'drop'"
        )
    y = _labels(cells, schema, column) if schema.task.by_class else answers_of(cells, schema)
    encoded = encode(schema, cells)
    for remark in encoded.remarks:
        warnings.warn(f"{cells.origin}: {remark}", DataWarning, stacklevel=2)
    return Rows(
        encoded.x,
        y,
        cells.origin,
        encoded.names,
        schema=schema,
        person=_persons(cells, schema),
        groups={c.name: groups_of(schema, c, cells) for c in schema.inputs if c.group},
        task=schema.task,
    )


def _persons(cells: Cells, schema: Schema) -> np.ndarray | None:
    """Whose record each is. An empty id is refused: as one person it would tie strangers' records together, and as a
    person each it could tear one's apart; only who made the table knows which."""
    if schema.person is None or schema.person.name not in cells.columns:
        return None
    name, empty = schema.person.name, is_gap(schema)
    raise_all(
        cells.origin,
        [
            f"{cells.place(row)}, column '{name}' names no person; give each person an id of their own, also those who "
            "are not known, or leave the column out (kind = 'drop')"
            for row, cell in enumerate(cells.columns[name])
            if empty(cell)
        ],
    )
    return texts(cells, name)


def groups_of(schema: Schema, column: Column, cells: Cells) -> np.ndarray:
    """The group of each record, in words; what the schema does not list is one group."""
    empty = is_gap(schema)
    known = set(column.categories)

    def word(cell: Any) -> str:
        if empty(cell):
            return "(missing)"
        text = plain_text(cell)
        return text if not known or text in known else "(unknown)"

    return np.array([word(cell) for cell in cells.columns[column.name]], dtype=str)


def _labels(cells: Cells, schema: Schema, column: Column) -> np.ndarray:
    """Labels as their class's number, by the schema's classes; where it lists none, as they are written."""
    found = [plain_text(cell) for cell in cells.columns[column.name]]
    empty = is_gap(schema)
    problems = [_no_label(cells, i, column.name) for i, text in enumerate(found) if empty(text)]
    if not column.classes:
        raise_all(cells.origin, problems)
        values = _whole_numbers(np.array(found))
        check_classes(cells.origin, column.name, np.unique(values))
        return Rows.of(np.zeros((len(values), 1)), values, cells.origin, place=cells.place).y
    number = {plain_text(value): i for i, value in enumerate(column.classes)}
    strange = [i for i, text in enumerate(found) if text not in number and not empty(text)]
    problems += [
        f"{cells.place(i)}, column '{column.name}' has label '{found[i]}'; expected one of {listed(column.classes)}"
        for i in strange
    ]
    raise_all(cells.origin, problems)
    return np.array([number[text] for text in found], np.int64)


def _no_label(cells: Cells, row: int, column: str) -> str:
    return f"{cells.place(row)} has no label (column '{column}'); fill it or remove the line"


# --- without ------------------------------------------------------------------------------------------------


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
    y = _classes(cells, chosen[0]) if task.by_class else answers_of(cells, schema)
    x = _numbers(cells, columns)
    _check_ids(cells, columns, x)
    read = Rows.of(x, y, cells.origin, columns, cells.place, task)
    return replace(read, schema=schema, person=_persons(cells, schema))


def _classes(cells: Cells, chosen: str) -> np.ndarray:
    labels = np.array([plain_text(cell) for cell in cells.columns[chosen]])
    problems = [_no_label(cells, int(i), chosen) for i in np.flatnonzero(np.isin(np.char.lower(labels), EMPTY))]
    raise_all(cells.origin, problems)
    y = _whole_numbers(labels)
    check_classes(cells.origin, chosen, np.unique(y))
    return y


def check_classes(origin: str, label: str, classes: Sequence[Any] | np.ndarray) -> None:
    """A table's label with very many values is a quantity, or an id."""
    if len(classes) > MANY:
        raise InputError(
            f"{origin}: column '{label}' has {len(classes)} different values, so it is a quantity or an id and no "
            f"class; expected at most {MANY} classes. Choose another label (--label NAME), learn it as a number within "
            "a public range (--task numbers --target-range 0,100), or put its values into a few ranges first"
        )


def _label_column(cells: Cells, chosen: str) -> str:
    if chosen not in cells.columns:
        near = get_close_matches(chosen, cells.header, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise InputError(
            f"{cells.origin}: no column '{chosen}'{hint} Say which column holds the labels with label=NAME "
            f"(--label NAME); columns: {listed(cells.header)}"
        )
    return chosen


def _features(cells: Cells, labels: Sequence[str], drop: Sequence[str]) -> tuple[str, ...]:
    strange = [name for name in drop if name not in cells.columns]
    if strange:
        raise InputError(f"{cells.origin}: no column '{strange[0]}' to drop; columns: {listed(cells.header)}")
    columns = tuple(name for name in cells.header if name not in labels and name not in drop)
    if not columns:
        raise InputError(
            f"{cells.origin}: no column of features beside the label {listed([repr(name) for name in labels])}"
        )
    return columns


def _numbers(cells: Cells, columns: Sequence[str]) -> np.ndarray:
    """The features, float32's range checked; else everything that is no number, in one error."""
    x, problems = np.zeros((len(cells), len(columns))), []
    for j, name in enumerate(columns):
        for i, cell in enumerate(cells.columns[name]):
            try:
                x[i, j] = float(cell)
            except (TypeError, ValueError):
                problems.append(f"{cells.place(i)}, column '{name}' {_found(cell)}{_way_out(name)}")
                continue
            if not abs(x[i, j]) < 3.4e38:
                value = x[i, j] if math.isnan(x[i, j]) else math.copysign(math.inf, x[i, j])
                problems.append(f"{cells.place(i)}, column '{name}' is {value}; remove or fill it")
    if problems:
        problems.append(
            "text, categories, dates and gaps need a schema: fedsofim schema TABLE > schema.toml, completed by you, "
            "then schema='schema.toml' (--schema schema.toml)"
        )
    raise_all(cells.origin, problems)
    return x


def _found(cell: Any) -> str:
    if cell is None:
        return "is empty; expected a number"
    return f"holds text '{cell}'; expected a number" if str(cell).strip() else "holds an empty cell; expected a number"


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


def _whole_numbers(labels: np.ndarray) -> np.ndarray:
    """Text that spells whole numbers throughout becomes numbers, so that 10 sorts after 9."""
    try:
        return labels.astype(np.float64)
    except ValueError:
        return labels
