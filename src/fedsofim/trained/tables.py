"""Predictions for a file: records in, a table of labels and probabilities out."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.cells import TABLES, Cells, read_cells
from fedsofim.data.columns import is_gap, plain_text, strangers
from fedsofim.data.npz import read_arrays
from fedsofim.errors import InputError
from fedsofim.files import write_text
from fedsofim.trained.model import Trained


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What was predicted for each record of a file; `person` where the file names them."""

    labels: np.ndarray
    probabilities: np.ndarray
    classes: tuple[Any, ...]
    person: tuple[str, tuple[str, ...]] | None = None  # the column's name, and its cells
    accuracy: float | None = None  # where the file has labels too
    remarks: tuple[str, ...] = ()


def predict_file(model: Trained, path: Path) -> Predictions:
    """Predictions for a table, or for an `.npz` file with an array x."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix.lower() in TABLES:
        return _of_table(model, read_cells(path))
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: cannot read files of kind '{path.suffix}'; expected .npz, {', '.join(TABLES)}")
    arrays = read_arrays(path)
    name = next((key for key in ("x", "x_test") if key in arrays), None)
    if name is None:
        raise InputError(f"{path}: no array x; found {', '.join(arrays) or 'nothing'}")
    probabilities = model.predict_proba(arrays[name])
    return _predictions(model, probabilities)


def _of_table(model: Trained, cells: Cells) -> Predictions:
    encoded = model.encoded(cells)
    schema = model.schema
    assert schema is not None
    ignored = strangers(schema, cells)
    remarks = [*cells.remarks, *encoded.remarks]
    remarks += [f"columns that the model does not know are ignored: {', '.join(ignored)}"] if ignored else []
    person = schema.person
    known = person is not None and person.name in cells.columns
    found = _predictions(model, model.predict_proba(cells))
    return Predictions(
        labels=found.labels,
        probabilities=found.probabilities,
        classes=found.classes,
        person=(person.name, tuple(map(plain_text, cells.columns[person.name]))) if known and person else None,
        accuracy=_agreement(model, cells, found.labels),
        remarks=tuple(remarks),
    )


def _predictions(model: Trained, probabilities: np.ndarray) -> Predictions:
    labels = np.array(model.labels)[probabilities.argmax(axis=1)]
    return Predictions(labels=labels, probabilities=probabilities, classes=model.labels)


def _agreement(model: Trained, cells: Cells, predicted: np.ndarray) -> float | None:
    """How many labels of the file are as predicted; None where it has none, or some are empty."""
    column = None if model.schema is None else model.schema.label
    if column is None or model.schema is None or column.name not in cells.columns:
        return None
    empty = is_gap(model.schema)
    truth = [plain_text(cell) for cell in cells.columns[column.name]]
    if any(map(empty, truth)):
        return None
    return 100 * float(np.mean([plain_text(p) == t for p, t in zip(predicted.tolist(), truth, strict=True)]))


def write_predictions(found: Predictions, path: Path) -> None:
    """As CSV: the record's number from 1, its person if known, the label, and the probability of each class."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    name, persons = found.person or ("", ())
    writer.writerow(["record", *([name] if found.person else []), "predicted", *(f"p({c})" for c in found.classes)])
    for i, (label, row) in enumerate(zip(found.labels.tolist(), found.probabilities, strict=True)):
        writer.writerow([i + 1, *([persons[i]] if found.person else []), label, *(f"{p:.6f}" for p in row)])
    write_text(path, text.getvalue())
