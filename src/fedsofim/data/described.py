"""Rows of a table by its public schema: everything that is wrong with labels, features and persons in one error."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedsofim.data.cells import Cells, listed, raise_all
from fedsofim.data.columns import absent, features_of, is_gap, plain_text, strangers, texts
from fedsofim.data.labels import check_classes, labels_of
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Column, Schema
from fedsofim.data.targets import read_answers
from fedsofim.errors import DataWarning, InputError


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
    """The schema with some columns left out."""
    if strange := [name for name in drop if name not in {c.name for c in schema.columns}]:
        raise InputError(f"{origin}: no column '{strange[0]}' to drop in the schema")
    columns = tuple(Column(name=c.name, kind="drop") if c.name in drop else c for c in schema.columns)
    return replace(schema, columns=columns)


def rows_by(schema: Schema, cells: Cells) -> Rows:
    """The rows of a table. First its columns must be the schema's; then all its cells are read, and told together."""
    raise_all(cells.origin, _misfits(schema, cells))
    y, mislabelled = _labels(schema, cells)
    encoded, problems = features_of(schema, cells)
    person, nameless = persons_of(cells, schema)
    for remark in encoded.remarks:  # said even if the table is then refused: who mends it mends all at once
        said = DataWarning(f"{cells.origin}: {remark.text}", f"{cells.origin}: {remark.details}")
        warnings.warn(said, stacklevel=2)
    raise_all(cells.origin, mislabelled, *problems, nameless)
    return Rows(
        encoded.x,
        _checked(schema, cells, y),
        cells.origin,
        encoded.names,
        schema=schema,
        person=person,
        groups={c.name: groups_of(schema, c, cells) for c in schema.inputs if c.group},
        task=schema.task,
    )


def _misfits(schema: Schema, cells: Cells) -> list[str]:
    """What is wrong with a table's columns themselves."""
    labels = schema.of_kind("label")
    if not labels:
        return ["the schema has no column of kind label, which training needs"]
    problems = [
        f"no column '{c.name}', the schema's label; {cells.names_in_words}"
        for c in labels
        if c.name not in cells.columns
    ]
    problems += absent(schema, cells)
    if unknown := strangers(schema, cells):
        named = listed([repr(u) for u in unknown])
        problems.append(f"the schema says nothing of column {named}; describe each, or say kind = 'drop'")
    return problems


def _labels(schema: Schema, cells: Cells) -> tuple[np.ndarray, list[str]]:
    if not schema.task.by_class:
        return read_answers(cells, schema)
    return labels_of(cells, schema.of_kind("label")[0], is_gap(schema))


def _checked(schema: Schema, cells: Cells, y: np.ndarray) -> np.ndarray:
    """Classes that no schema lists must be classes at all."""
    column = schema.of_kind("label")[0]
    if column.classes or not schema.task.by_class:
        return y
    check_classes(cells.origin, column.name, np.unique(y))
    return Rows.of(np.zeros((len(y), 1)), y, cells.origin, place=cells.place).y


def persons_of(cells: Cells, schema: Schema) -> tuple[np.ndarray | None, list[str]]:
    """Whose record each is. An empty id is refused: as one person it would tie strangers' records together, and as a
    person each it could tear one's apart; only who made the table knows which."""
    if schema.person is None or schema.person.name not in cells.columns:
        return None, []
    name, empty = schema.person.name, is_gap(schema)
    return texts(cells, name), [
        f"{cells.place(row)}, column '{name}' names no person; give each person an id of their own, also those who "
        "are not known, or leave the column out (kind = 'drop')"
        for row, cell in enumerate(cells.columns[name])
        if empty(cell)
    ]


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
