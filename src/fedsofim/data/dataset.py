"""A labelled dataset in memory: checked once here, so that nothing later meets NaN or a wild label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsofim.data.affine import Affine
from fedsofim.data.schema import Schema
from fedsofim.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Features (float32, records x p) and labels (int32, 0..classes-1) of a train and a test set.

    >>> d = Dataset.of("toy", x_train=[[0.0], [1.0]], y_train=[0, 1], x_test=[[0.5]], y_test=[1])
    >>> d.classes, d.features
    (2, 1)
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
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

    @property
    def features(self) -> int:
        return self.x_train.shape[1]

    @property
    def class_names(self) -> tuple[Any, ...]:
        """What a prediction is called."""
        return self.labels or tuple(range(self.classes))

    @staticmethod
    def from_arrays(
        x: Any, y: Any, *, x_test: Any = None, y_test: Any = None, columns: Sequence[str] = (), name: str = "arrays",
        holdout: float = 0.2,
    ) -> "Dataset":  # fmt: skip
        """Features (records x p) and labels (numbers or text); without a test set a part of each label is held out.

        >>> Dataset.from_arrays([[0.0], [1.0]] * 10, ["no", "yes"] * 10).labels
        ('no', 'yes')
        """
        from fedsofim.data.in_memory import dataset_of_arrays  # it makes datasets, so it needs this file

        return dataset_of_arrays(name, (x, y), (x_test, y_test), tuple(map(str, columns)), holdout)

    @staticmethod
    def from_frame(
        frame: Any, label: str | None = None, *, drop: Sequence[str] = (), schema: Any = None, test: Any = None,
        name: str = "frame", holdout: float = 0.2,
    ) -> "Dataset":  # fmt: skip
        """A data frame of pandas or polars, one record a row, read like a table in a file."""
        from fedsofim.data.in_memory import dataset_of_frame

        return dataset_of_frame(name, frame, test, label, drop, schema, holdout)

    def __repr__(self) -> str:
        """Sizes and names, never a record."""
        return f"<{self}>"

    def __str__(self) -> str:
        named = f" ({', '.join(map(str, self.labels[:6]))}{', ...' * (len(self.labels) > 6)})" if self.labels else ""
        return (
            f"Dataset {self.name}: {len(self.x_train)} training and {len(self.x_test)} test records, "
            f"{self.features} features, {self.classes} classes{named}"
        )

    def _repr_html_(self) -> str:
        from fedsofim.data.html import card

        facts = {
            "training records": f"{len(self.x_train):,}",
            "test records": f"{len(self.x_test):,}",
            "features": f"{self.features}" + (f": {', '.join(self.columns[:8])}" if self.columns else ""),
            "classes": ", ".join(map(str, self.class_names[:12])),
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
        **more: Any,
    ) -> "Dataset":
        """Check the arrays of every part against each other and build the dataset."""
        train = _part(name, "train", x_train, y_train, None)
        width = train[0].shape[1]
        test = _part(name, "test", x_test, y_test, width)
        val = (None, None) if x_val is None else _part(name, "val", x_val, y_val, width)
        classes = max(int(train[1].max()) + 1, len(labels))
        if len(np.unique(train[1])) < 2:
            raise InputError(f"{name}: y_train holds one class only ({classes - 1}); a classifier needs two or more")
        for part, found in (("test", test[1]), ("val", val[1])):
            if found is not None and found.max() >= classes:
                raise InputError(
                    f"{name}: y_{part} has label {found.max()} but y_train only 0..{classes - 1}; "
                    "labels out of range cannot be predicted"
                )
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
            **more,
        )


def _part(name: str, part: str, x: Any, y: Any, width: int | None) -> tuple[np.ndarray, np.ndarray]:
    """One part's features and labels, checked and in the library's types."""
    x, y = np.asarray(x), np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:  # MedMNIST stores labels as a column
        y = y[:, 0]
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or len(x) == 0:
        raise InputError(
            f"{name}: x_{part} has shape {x.shape} and y_{part} {y.shape}; expected (records, features) and "
            "(records,) with at least one record"
        )
    if width is not None and x.shape[1] != width:
        raise InputError(f"{name}: x_{part} has {x.shape[1]} features but x_train has {width}")
    if not np.issubdtype(x.dtype, np.number):
        raise InputError(f"{name}: x_{part} holds {x.dtype} values; expected numbers")
    whole = np.issubdtype(y.dtype, np.floating) and bool(np.all(np.isfinite(y) & (y == np.floor(y))))
    if not np.issubdtype(y.dtype, np.integer) and not whole:
        raise InputError(f"{name}: y_{part} holds {y.dtype} values; expected whole numbers 0, 1, 2, ...")
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"{name}: x_{part} is {x[row, column]} at row {row}, column {column} ({len(bad)} such values); "
            "remove or fill them first"
        )
    if y.min() < 0:
        raise InputError(f"{name}: y_{part} has label {y.min()} at row {int(y.argmin())}; labels start at 0")
    return np.ascontiguousarray(x, np.float32), y.astype(np.int32)
