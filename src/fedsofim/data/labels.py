"""Labels as the user wrote them -> 0, 1, 2, ... and the table that says which is which."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedsofim.data.cells import Cells, listed
from fedsofim.data.columns import plain_text
from fedsofim.data.schema import Column
from fedsofim.errors import InputError

MANY = 100  # classes of a table; with more, a label is a quantity


def labels_of(cells: Cells, column: Column, empty: Callable[[Any], bool]) -> tuple[np.ndarray, list[str]]:
    """A column of classes as their numbers, or where it lists none as they are written; and what is wrong with it."""
    found = [plain_text(cell) for cell in cells.columns[column.name]]
    number = {plain_text(value): i for i, value in enumerate(column.classes)}
    problems = []
    for row, text in enumerate(found):
        if empty(text):
            problems.append(f"{cells.place(row)} has no label (column '{column.name}'); fill it or remove the line")
        elif number and text not in number:
            problems.append(
                f"{cells.place(row)}, column '{column.name}' has a label that the schema does not list; expected one "
                f"of {listed(column.classes)}"
            )
    if number:
        return np.array([number.get(text, -1) for text in found], np.int64), problems
    return _whole_numbers(np.array(found)), problems


def check_classes(origin: str, label: str, classes: Sequence[Any] | np.ndarray) -> None:
    """A table's label with very many values is a quantity, or an id."""
    if len(classes) > MANY:
        raise InputError(
            f"{origin}: column '{label}' has {len(classes)} different values, so it is a quantity or an id and no "
            f"class; expected at most {MANY} classes. Choose another label (--label NAME), learn it as a number within "
            "a public range (--task numbers --target-range 0,100), or put its values into a few ranges first"
        )


def _whole_numbers(labels: np.ndarray) -> np.ndarray:
    """Text that spells whole numbers throughout becomes numbers, so that 10 sorts after 9."""
    try:
        return labels.astype(np.float64)
    except ValueError:
        return labels


def encode(name: str, parts: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[int, Any]]:
    """Number the labels of `parts["train"]` in sorted order and apply that to every part.

    >>> codes, table = encode("pets", {"train": np.array(["dog", "cat", "dog"]), "test": np.array(["cat"])})
    >>> codes["train"].tolist(), codes["test"].tolist(), table
    ([1, 0, 1], [0], {0: 'cat', 1: 'dog'})
    """
    known = np.unique(parts["train"])
    codes = {part: _look_up(name, part, labels, known) for part, labels in parts.items()}
    return codes, {number: label.item() for number, label in enumerate(known)}


def _look_up(name: str, part: str, labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    if labels.dtype.kind in "US" and known.dtype.kind not in "US":
        labels = _numbers(name, part, labels)
    if known.dtype.kind in "US" and labels.dtype.kind not in "US":
        labels = labels.astype(str)
    strange = np.flatnonzero(~np.isin(labels, known))
    if len(strange):
        raise InputError(
            f"{name}: the label in record {strange[0]} of the {part} part never occurs in training, which has "
            f"{len(known)} labels; look at that record, or keep such records out of the {part} part"
        )
    return np.searchsorted(known, labels).astype(np.int32)


def _numbers(name: str, part: str, labels: np.ndarray) -> np.ndarray:
    try:
        return labels.astype(float)
    except ValueError:
        raise InputError(f"{name}: the {part} part has text labels but training has numbers; use one kind") from None
