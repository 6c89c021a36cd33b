"""Rows of one file, or of one file per client -> a checked `Dataset`."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from fedsofim.data.apart import hold_out, noted
from fedsofim.data.cells import listed
from fedsofim.data.dataset import Dataset
from fedsofim.data.labels import encode
from fedsofim.data.rows import Rows, joined
from fedsofim.data.schema import Schema
from fedsofim.data.targets import coded
from fedsofim.errors import DataWarning, InputError

MANY, FEW = 100, 20  # classes, and records of each, beyond and below which labels are taken for a quantity


def assemble(
    name: str, clients: dict[str, dict[str, Rows]], test: Rows | None, holdout: float, notes: dict[str, Any]
) -> Dataset:
    """Join the clients (one: yet to be split), number the labels, find or hold out a test set."""
    rows = _joined_parts(name, clients, test)
    task = rows["train"].task
    codes, table, schema = _coded(name, rows) if task.by_class else _answered(name, rows)
    _say_leaks(name, schema)
    sizes = [len(parts["train"].x) for parts in clients.values()]
    owner = np.repeat(np.arange(len(clients)), sizes)
    arrays = {f"x_{part}": part_rows.x for part, part_rows in rows.items()} | {f"y_{p}": y for p, y in codes.items()}
    notes = notes | ({"labels": table} if table and task.by_class else {})
    person, groups = rows["train"].person, (rows["test"] if "test" in rows else rows["train"]).groups
    if "test" not in rows:
        held = hold_out(name, owner, holdout, person)
        notes |= {"test": noted(holdout, person)}
        groups = {key: values[held] for key, values in groups.items()}
        if len(clients) > 1:  # whose records are tested on is known: accuracy is told for each
            groups["client"] = np.array(list(clients))[owner[held]]
        person = None if person is None else person[~held]
        arrays |= {"x_test": arrays["x_train"][held], "y_test": arrays["y_train"][held]}
        arrays |= {"x_train": arrays["x_train"][~held], "y_train": arrays["y_train"][~held]}
        owner = owner[~held]
        _check_left(name, arrays["y_train"])
    more: dict[str, Any] = {"labels": tuple(table.values()), "person": person, "groups": groups}
    if task.by_class:  # of all records: a class with few of them may be tested on only
        more |= {"classes": int(codes["train"].max()) + 1}
    more |= {"columns": rows["train"].columns, "schema": schema}
    if len(clients) > 1:
        more |= {"owner": owner.astype(np.int32)}
        notes = notes | {"clients": list(clients)}
    return Dataset.of(name, **arrays, notes=notes, task=task, **more)


def _check_left(name: str, y: np.ndarray) -> None:
    """By place, all that have the one label of two may be held out."""
    if len(np.unique(y)) < 2:
        raise InputError(
            f"{name}: all records that are left to train on have the same label, after a part is held out by place; "
            "give a test file with test=FILE (--test FILE)"
        )


def _joined_parts(name: str, clients: dict[str, dict[str, Rows]], test: Rows | None) -> dict[str, Rows]:
    with_test = [parts["test"].origin for parts in clients.values() if "test" in parts]
    if test is not None and with_test:
        raise InputError(f"{name}: a test file was given, but {with_test[0]} holds a test part too; give one of them")
    train = [parts["train"] for parts in clients.values()]
    lists = {"train": train} | {
        part: [parts[part] for parts in clients.values() if part in parts] for part in ("val", "test")
    }
    if test is not None:
        lists["test"] = [test]
    # Every part is joined behind the first training file: columns in its order, widths checked against it.
    return {part: _behind(train[0], parts) for part, parts in lists.items() if parts}


def _behind(first: Rows, parts: list[Rows]) -> Rows:
    if parts[0] is first:
        return joined(parts)
    together = joined([first, *parts])
    after = slice(len(first.x), None)
    return replace(
        parts[0],
        x=together.x[after],
        y=together.y[after],
        columns=first.columns,
        person=None if together.person is None else together.person[after],
        groups={name: values[after] for name, values in together.groups.items()},
    )


Coded = tuple[dict[str, np.ndarray], dict[int, Any], Schema | None]


def _coded(name: str, rows: dict[str, Rows]) -> Coded:
    """Labels by number, which label each number is, and the schema with that in it.

    A schema's classes have the numbers of their order. Labels that already count from 0 stay; all others are numbered
    in sorted order.
    """
    schema, labels = rows["train"].schema, {part: of_part.y for part, of_part in rows.items()}
    if schema is not None and schema.label is not None and schema.label.classes:
        return labels, dict(enumerate(schema.label.classes)), schema
    codes, table = _numbered(name, labels)
    classes = tuple(table.values()) or tuple(range(int(labels["train"].max()) + 1))
    return codes, table, None if schema is None else _with_classes(schema, classes)


def _answered(name: str, rows: dict[str, Rows]) -> Coded:
    """The same of a task that has no classes: y by the public range, and what the answers are called."""
    task, schema = rows["train"].task, rows["train"].schema
    named = () if schema is None else tuple(c.name for c in schema.of_kind("label"))
    return coded(name, task, {part: of_part.y for part, of_part in rows.items()}), dict(enumerate(named)), schema


def _with_classes(schema: Schema, classes: tuple[Any, ...]) -> Schema:
    found = [replace(c, classes=classes, from_records=("classes",)) if c.kind == "label" else c for c in schema.columns]
    return replace(schema, columns=tuple(found))


def _say_leaks(name: str, schema: Schema | None) -> None:
    """Ranges and categories that were read off the records are told by whoever has the schema; said once, in words."""
    told = {} if schema is None else {c: tuple(w for w in what if w != "classes") for c, what in schema.leaks.items()}
    said = [f"{' and '.join(what)} of '{column}'" for column, what in told.items() if what]
    if said:
        warnings.warn(
            f"{name}: the schema's {listed(said)} were read off the private records, which epsilon does not cover; "
            "replace them by public knowledge and delete from_records",
            DataWarning,
            stacklevel=2,
        )


def _numbered(name: str, labels: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[int, Any]]:
    train = labels["train"]
    known = np.unique(train)
    _check_classes(name, train, known)
    if len(known) < 2:
        raise InputError(f"{name}: one class only; a classifier needs two or more")
    numbers = all(part.dtype.kind == "i" for part in labels.values())
    if numbers and known[0] == 0 and known[-1] < 2 * len(known):
        return labels, {}
    return encode(name, labels)


def _check_classes(name: str, labels: np.ndarray, known: np.ndarray) -> None:
    """Hundreds of labels with a handful of records each are a quantity, or an id."""
    if len(known) > MANY and len(labels) < FEW * len(known):
        raise InputError(
            f"{name}: {len(known)} different labels on {len(labels)} records: a quantity or an id, and no classes. "
            "Learn it as a number within a public range (task numbers), or put them into a few ranges first"
        )
