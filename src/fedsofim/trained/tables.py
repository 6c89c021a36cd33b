"""Predictions for a file: records in, a table of labels and probabilities out, or of numbers in their units."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.cells import TABLES, Cells, read_cells
from fedsofim.data.columns import is_gap, plain_text, strangers
from fedsofim.data.npz import read_arrays
from fedsofim.data.schema import numbers_only
from fedsofim.data.targets import truth_of
from fedsofim.errors import InputError
from fedsofim.files import write_text
from fedsofim.tasks import LABELS, TWO, Task
from fedsofim.trained.measures import Measures, all_measures
from fedsofim.trained.model import Trained


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What was predicted for each record of a file; `person` where the file names them."""

    labels: np.ndarray  # of several labels 0 or 1 (records x labels); of numbers and counts those
    answers: np.ndarray  # probabilities, or the numbers again (Task.answers)
    classes: tuple[Any, ...]
    task: Task = Task()
    person: tuple[str, tuple[str, ...]] | None = None  # the column's name, and its cells
    measured: Measures | None = None  # where the file has the truth too
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
    return _predictions(model, model.answers(arrays[name]))


def _of_table(model: Trained, cells: Cells) -> Predictions:
    encoded = model.encoded(cells)
    schema = numbers_only(model.columns) if model.schema is None else model.schema
    ignored = strangers(schema, cells)
    remarks = [*cells.remarks, *(remark.details for remark in encoded.remarks)]  # told to who has the table
    remarks += [f"columns that the model does not know are ignored: {', '.join(ignored)}"] if ignored else []
    person = schema.person
    known = person is not None and person.name in cells.columns
    found = _predictions(model, model.answers(cells))
    return replace(
        found,
        person=(person.name, tuple(map(plain_text, cells.columns[person.name]))) if known and person else None,
        measured=_measured(model, cells, found),
        remarks=tuple(remarks),
    )


def _predictions(model: Trained, answers: np.ndarray) -> Predictions:
    return Predictions(labels=model.decided(answers), answers=answers, classes=model.labels, task=model.task)


def _measured(model: Trained, cells: Cells, found: Predictions) -> Measures | None:
    """How right the predictions are, where the file has the truth; None where it has none, or some is empty."""
    columns = () if model.schema is None else model.schema.of_kind("label")
    if model.schema is None or not columns or any(c.name not in cells.columns for c in columns):
        return None
    empty = is_gap(model.schema)
    if any(empty(cell) for c in columns for cell in cells.columns[c.name]):
        return None
    if not model.task.by_class:
        return all_measures(model.task, found.answers, truth_of(cells, model.schema, model.task))
    truth = [plain_text(cell) for cell in cells.columns[columns[0].name]]
    said = map(plain_text, found.labels.tolist())
    return {"accuracy": 100 * float(np.mean([p == t for p, t in zip(said, truth, strict=True)]))}


def write_predictions(found: Predictions, path: Path) -> None:
    """As CSV: the record's number from 1, its person if known, what is predicted, and the probability of each class;
    of several labels, for each whether it is said and its probability."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    name, persons = found.person or ("", ())
    writer.writerow(["record", *([name] if found.person else []), *_header(found)])
    for i, row in enumerate(_rows(found)):
        writer.writerow([i + 1, *([persons[i]] if found.person else []), *row])
    write_text(path, text.getvalue())


def _header(found: Predictions) -> list[str]:
    if found.task.kind == LABELS:
        return [word for c in found.classes for word in (str(c), f"p({c})")]
    return ["predicted", *(f"p({c})" for c in found.classes if found.task.by_class)]


def _rows(found: Predictions) -> Iterator[list[Any]]:
    for said, answer in zip(found.labels.tolist(), found.answers.tolist(), strict=True):
        if found.task.kind == LABELS:
            yield [word for one, p in zip(said, answer, strict=True) for word in (one, f"{p:.6f}")]
        elif found.task.by_class:
            odds = (1 - answer[0], answer[0]) if found.task.kind == TWO else answer
            yield [said, *(f"{p:.6f}" for p in odds)]
        else:
            yield [f"{answer:.6g}"]
