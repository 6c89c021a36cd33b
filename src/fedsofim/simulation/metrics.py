"""Who a model is right for: by class, by client, by public group, and the gap between the best and the worst served.

Noise hurts the few more, so a mean alone says too little. Everything here is computed on test records, without noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsofim.data.dataset import Dataset

FEWEST = 10  # test records: a smaller group's accuracy is too uncertain to be called the worst


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Percent throughout. `groups`: for each public column, its values with accuracy and number of records."""

    confusion: np.ndarray  # (classes, classes): rows are the truth
    labels: tuple[Any, ...]
    groups: Mapping[str, Mapping[str, tuple[float, int]]]
    clients: tuple[float, ...]  # expected at each client, by its mix of classes
    majority: float  # of whoever always says the commonest class of training

    @property
    def accuracy(self) -> float:
        return 100 * float(np.trace(self.confusion)) / max(int(self.confusion.sum()), 1)

    @property
    def recall(self) -> dict[Any, float | None]:
        """Of each class, the part that is recognised; None where the test set has none of it."""
        return dict(zip(self.labels, recalls(self.confusion), strict=True))

    @property
    def balanced(self) -> float:
        """Mean recall: every class counts alike."""
        return float(np.mean([r for r in recalls(self.confusion) if r is not None]))

    @property
    def gaps(self) -> dict[str, float]:
        """Best minus worst, in percentage points: over classes, clients, and each public column."""
        by_class = [r for r in recalls(self.confusion) if r is not None]
        out = {"class": max(by_class) - min(by_class)}
        out |= {"client": max(self.clients) - min(self.clients)} if len(self.clients) > 1 else {}
        for column, values in self.groups.items():
            known = [accuracy for accuracy, count in values.values() if count >= FEWEST]
            out |= {column: max(known) - min(known)} if len(known) > 1 else {}
        return out

    def summary(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "balanced_accuracy": round(self.balanced, 4),
            "majority_accuracy": round(self.majority, 4),
            "recall": {str(k): None if v is None else round(v, 4) for k, v in self.recall.items()},
            "confusion": self.confusion.tolist(),
            "client_accuracy": [round(a, 4) for a in self.clients],
            "groups": {c: {g: [round(a, 4), n] for g, (a, n) in values.items()} for c, values in self.groups.items()},
            "gaps": {k: round(v, 4) for k, v in self.gaps.items()},
        }


def metrics_of(data: Dataset, predicted: np.ndarray, parts: Sequence[np.ndarray] = ()) -> Metrics:
    """Of predicted classes, by number, of the test records; `parts` are the clients' rows."""
    found = confusion(data.y_test, predicted, data.classes)
    right = predicted == data.y_test
    return Metrics(
        confusion=found,
        labels=data.class_names,
        groups={name: by_group(values, right) for name, values in data.groups.items()},
        clients=tuple(_expected(found, data.y_train[rows], data.classes) for rows in parts),
        majority=100 * float(np.mean(data.y_test == np.bincount(data.y_train).argmax())),
    )


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many of each class were taken for which.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    return np.bincount(truth.astype(np.int64) * classes + predicted, minlength=classes**2).reshape(classes, classes)


def recalls(found: np.ndarray) -> list[float | None]:
    """By class, in percent."""
    return [100 * float(row[c]) / int(row.sum()) if row.sum() else None for c, row in enumerate(found)]


def by_group(values: np.ndarray, right: np.ndarray) -> dict[str, tuple[float, int]]:
    """Accuracy and number of records of each value, in sorted order."""
    found = {str(v): right[values == v] for v in np.unique(values)}
    return {value: (100 * float(mine.mean()), len(mine)) for value, mine in found.items()}


def _expected(found: np.ndarray, labels: np.ndarray, classes: int) -> float:
    """What a client can expect: recall of each class, weighted as it has the classes."""
    share = np.bincount(labels, minlength=classes) / max(len(labels), 1)
    by_class = np.array([np.nan if r is None else r for r in recalls(found)])
    known = np.isfinite(by_class)
    return float(np.sum(share[known] * by_class[known]) / max(float(share[known].sum()), 1e-12))
