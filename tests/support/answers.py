"""One dataset of each task, of real records that come with scikit-learn."""

import numpy as np
import pytest

import fedsofim as fs
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split

TASKS = {
    "classes": fs.Task(),
    "two-classes": fs.Task("two-classes"),
    "labels": fs.Task("labels"),
    "numbers": fs.Task("numbers", range=(0, 400)),
    "huber": fs.Task("numbers", range=(0, 400), huber=40.0),
    "counts": fs.Task("counts", range=(0, 16)),
}


def arrays(kind: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Features, answers in their own units, and the features' names."""
    found = pytest.importorskip("sklearn.datasets")
    if kind == "two-classes":  # of a lump: malignant or benign
        cancer = found.load_breast_cancer()
        return cancer.data, cancer.target, tuple(cancer.feature_names)
    if kind in ("numbers", "huber"):  # how far a disease went on in a year
        diabetes = found.load_diabetes(scaled=False)
        return diabetes.data, diabetes.target, tuple(diabetes.feature_names)
    digits = found.load_digits()
    names = tuple(digits.feature_names)
    if kind == "counts":  # how much ink is in one pixel, from the others
        return np.delete(digits.data, 20, axis=1), digits.data[:, 20], names[:20] + names[21:]
    return digits.data, np.eye(10, dtype=int)[digits.target] if kind == "labels" else digits.target, names


def dataset(kind: str) -> Dataset:
    x, y, names = arrays(kind)
    if not TASKS[kind].by_class:
        return Dataset.from_arrays(x, y, columns=names, name=kind, task=TASKS[kind])
    held = _of_each_class(y)
    return Dataset.from_arrays(
        x[~held], y[~held], x_test=x[held], y_test=y[held], columns=names, name=kind, task=TASKS[kind]
    )


def _of_each_class(y: np.ndarray) -> np.ndarray:
    """A fifth of every class, to test on. The library holds out by place, for labels are private; these are not."""
    order = np.random.default_rng(0).permutation(len(y))
    held = np.zeros(len(y), bool)
    for label in np.unique(y):
        same = order[y[order] == label]
        held[same[: len(same) // 5]] = True
    return held


def dealt(kind: str, clients: int = 3) -> Split:
    return split(dataset(kind), clients, iid=True)
