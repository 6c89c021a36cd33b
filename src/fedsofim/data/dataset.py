"""A labelled dataset in memory: checked once here, so that nothing later meets NaN or a wild label."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

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

    @property
    def features(self) -> int:
        return self.x_train.shape[1]

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
    ) -> "Dataset":
        """Check the arrays of every part against each other and build the dataset."""
        train = _part(name, "train", x_train, y_train, None)
        width = train[0].shape[1]
        test = _part(name, "test", x_test, y_test, width)
        val = (None, None) if x_val is None else _part(name, "val", x_val, y_val, width)
        classes = int(train[1].max()) + 1
        if len(np.unique(train[1])) < 2:
            raise InputError(f"{name}: y_train holds one class only ({classes - 1}); a classifier needs two or more")
        for part, labels in (("test", test[1]), ("val", val[1])):
            if labels is not None and labels.max() >= classes:
                raise InputError(
                    f"{name}: y_{part} has label {labels.max()} but y_train only 0..{classes - 1}; "
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
