"""A labelled dataset in memory: checked once here, so that nothing later meets NaN or a wild label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsofim.data.affine import Affine
from fedsofim.data.schema import Schema
from fedsofim.errors import InputError, expect_whole, shown
from fedsofim.tasks import CLASSES, COUNTS, LABELS, NUMBERS, TWO, Task, task_of


def check_name(name: Any) -> None:
    """Messages begin with a dataset's name, so it must be one."""
    if not isinstance(name, str) or not name.isprintable():
        raise InputError(f"the dataset's name is {shown(name)}; expected text of one line")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Features (float32, records x p) and labels (int32, 0..classes-1; of other tasks as tasks.py has them) of a train
    and a test set.

    >>> d = Dataset.of("toy", x_train=[[0.0], [1.0]], y_train=[0, 1], x_test=[[0.5]], y_test=[1])
    >>> d.classes, d.features
    (2, 1)
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int  # of several labels: how many; of numbers and counts 1
    x_val: np.ndarray | None = None
    y_val: np.ndarray | None = None
    #: For a real federation's layout: which client owns each training record (None: split it yourself).
    owner: np.ndarray | None = None
    #: Where it came from and what was done to it; copied into results.
    notes: dict[str, Any] = field(default_factory=dict)
    #: The classes as the user writes them, by number; empty: they are numbers already.
    labels: tuple[Any, ...] = ()
    #: The features' names, where they have any, and the schema of the table they were made of.
    columns: tuple[str, ...] = ()
    schema: Schema | None = None
    #: Whose each training record is, where the table says so: never a feature.
    person: np.ndarray | None = None
    #: Of each test record, the public groups that accuracy is told for.
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)
    #: What was done to the features by public numbers; a model does it to new ones.
    standardised: Affine | None = None
    #: What is learned of a record.
    task: Task = Task()

    def __post_init__(self) -> None:
        check_name(self.name)
        expect_whole("the number of classes", self.classes, 1)

    @property
    def outputs(self) -> int:
        """How many numbers a model of this data answers with."""
        return self.task.outputs(self.classes)

    @property
    def features(self) -> int:
        return self.x_train.shape[1]

    @property
    def class_names(self) -> tuple[Any, ...]:
        """What a prediction is called: a class, a label, or the quantity."""
        return self.labels or (tuple(range(self.classes)) if self.task.metric == "accuracy" else ("value",))

    @staticmethod
    def from_arrays(
        x: Any, y: Any, *, x_test: Any = None, y_test: Any = None, columns: Sequence[str] = (), name: str = "arrays",
        holdout: float = 0.2, task: Any = None,
    ) -> "Dataset":  # fmt: skip
        """Features (records x p) and labels (numbers or text); without a test set a part of the records is held out.
        Of another task (a fs.Task, or its kind) y is what tasks.py says, numbers and counts in their own units.

        >>> Dataset.from_arrays([[0.0], [1.0]] * 10, ["no", "yes"] * 10).labels
        ('no', 'yes')
        """
        from fedsofim.data.in_memory import dataset_of_arrays  # it makes datasets, so it needs this file

        check_name(name)
        return dataset_of_arrays(name, (x, y), (x_test, y_test), tuple(map(str, columns)), holdout, task_of(task))

    @staticmethod
    def from_frame(
        frame: Any, label: str | Sequence[str] | None = None, *, drop: Sequence[str] = (), schema: Any = None,
        test: Any = None, name: str = "frame", holdout: float = 0.2, task: Any = None, person: str | None = None,
    ) -> "Dataset":  # fmt: skip
        """A data frame of pandas or polars, one record a row, read like a table in a file. `person`: the column that
        says whose each record is."""
        from fedsofim.data.in_memory import dataset_of_frame

        check_name(name)
        asked = None if task is None else task_of(task)
        return dataset_of_frame(name, frame, test, label, drop, schema, holdout, asked, person)

    def __repr__(self) -> str:
        """Sizes and names, never a record."""
        return f"<{self}>"

    def __str__(self) -> str:
        named = f" ({', '.join(map(str, self.labels[:6]))}{', ...' * (len(self.labels) > 6)})" if self.labels else ""
        return (
            f"Dataset {self.name}: {len(self.x_train)} training and {len(self.x_test)} test records, "
            f"{self.features} features, {self._answers(named)}"
        )

    def _answers(self, named: str) -> str:
        kind = self.task.kind
        return f"{self.classes} {kind}{named}" if kind in (CLASSES, LABELS) else f"{self.task}{named}"

    def _repr_html_(self) -> str:
        from fedsofim.data.html import card

        facts = {
            "training records": f"{len(self.x_train):,}",
            "test records": f"{len(self.x_test):,}",
            "features": f"{self.features}" + (f": {', '.join(self.columns[:8])}" if self.columns else ""),
            str(self.task): ", ".join(map(str, self.class_names[:12])),
            **{key: str(self.notes[key]) for key in ("source", "test", "standardised") if key in self.notes},
        }
        return card(f"Dataset {self.name}", facts)

    @staticmethod
    def of(
        name: str,
        *,
        x_train: Any,
        y_train: Any,
        x_test: Any,
        y_test: Any,
        x_val: Any = None,
        y_val: Any = None,
        owner: Any = None,
        notes: dict[str, Any] | None = None,
        labels: Sequence[Any] = (),
        task: Task = Task(),
        classes: int = 0,
        **more: Any,
    ) -> "Dataset":
        """Check the arrays of every part against each other and build the dataset. y is coded as the task has it.

        classes: how many there are at least, where not every one has training records.
        """
        check_name(name)
        train = _part(name, "train", x_train, y_train, None, task)
        width = train[0].shape[1]
        test = _part(name, "test", x_test, y_test, width, task)
        val = (None, None) if x_val is None else _part(name, "val", x_val, y_val, width, task)
        classes = _classes(name, task, train[1], max(classes, len(labels)))
        for part, found in (("test", test[1]), ("val", val[1])):
            if found is not None:
                _check_known(name, part, task, found, classes)
        return Dataset(
            name=name,
            x_train=train[0],
            y_train=train[1],
            x_test=test[0],
            y_test=test[1],
            classes=classes,
            x_val=val[0],
            y_val=val[1],
            owner=None if owner is None else np.asarray(owner),
            notes=notes or {},
            labels=tuple(labels),
            task=task,
            **more,
        )


def _classes(name: str, task: Task, y: np.ndarray, known: int) -> int:
    """How many classes, or labels, the training records have, or are known; of numbers and counts 1."""
    if len(np.unique(y)) < 2:
        what = "one class only" if task.by_class else "the same value everywhere"
        raise InputError(f"{name}: y_train holds {what}; a {_LEARNER.get(task.kind, 'model')} needs two or more")
    if not task.by_class:
        return y.shape[1] if task.kind == LABELS else 1
    found = max(int(y.max()) + 1, known)
    if task.kind == TWO and found != 2:
        raise InputError(f"{name}: {found} classes; the task {TWO} has two, 0 and 1. For more of them use task classes")
    return found


_LEARNER = {CLASSES: "classifier", TWO: "classifier"}


def _check_known(name: str, part: str, task: Task, y: np.ndarray, classes: int) -> None:
    if task.by_class and y.max() >= classes:
        raise InputError(
            f"{name}: y_{part} has labels beyond 0..{classes - 1}, the ones of y_train; labels out of range cannot be "
            "predicted"
        )
    if task.kind == LABELS and y.shape[1] != classes:
        raise InputError(f"{name}: y_{part} has {y.shape[1]} labels for each record, y_train {classes}")


def _part(name: str, part: str, x: Any, y: Any, width: int | None, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """One part's features and labels, checked and in the library's types."""
    x, y = np.asarray(x), np.asarray(y)
    several = task.kind == LABELS
    if y.ndim == 2 and y.shape[1] == 1 and not several:  # MedMNIST stores labels as a column
        y = y[:, 0]
    if x.ndim != 2 or y.ndim != 1 + several or len(x) != len(y) or len(x) == 0:
        raise InputError(
            f"{name}: x_{part} has shape {x.shape} and y_{part} {y.shape}; expected (records, features) and "
            f"({'records, labels' if several else 'records,'}) with at least one record"
        )
    if width is not None and x.shape[1] != width:
        raise InputError(f"{name}: x_{part} has {x.shape[1]} features but x_train has {width}")
    if not np.issubdtype(x.dtype, np.number):
        raise InputError(f"{name}: x_{part} holds {x.dtype} values; expected numbers")
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"{name}: x_{part} is {x[row, column]} at row {row}, column {column} ({len(bad)} such values); "
            "remove or fill them first"
        )
    return np.ascontiguousarray(x, np.float32), _answers(name, part, y, task)


def _answers(name: str, part: str, y: np.ndarray, task: Task) -> np.ndarray:
    """One part's y, coded as the task has it and checked."""
    if task.kind == NUMBERS:
        if y.dtype.kind not in "fiub" or not np.all(np.isfinite(y)) or np.abs(y).max() > 1:
            raise InputError(f"{name}: y_{part} is not coded; expected numbers from -1 to 1, the ends of {task}")
        return y.astype(np.float32)
    whole = np.issubdtype(y.dtype, np.floating) and bool(np.all(np.isfinite(y) & (y == np.floor(y))))
    if not np.issubdtype(y.dtype, np.integer) and y.dtype.kind != "b" and not whole:
        raise InputError(f"{name}: y_{part} holds {y.dtype} values; expected whole numbers 0, 1, 2, ...")
    if y.min() < 0:
        raise InputError(f"{name}: y_{part} has a negative label at row {int(y.argmin())}; labels start at 0")
    if (most := {LABELS: 1, COUNTS: task.ends[1]}.get(task.kind)) is not None and y.max() > most:
        raise InputError(f"{name}: y_{part} holds larger ones; expected at most {most:g} for {task}")
    return y.astype(np.int32)
