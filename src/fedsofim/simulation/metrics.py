"""Who a model is right for: by class, by client, by public group, and the gap between the best and the worst served.

Noise hurts the few more, so a mean alone says too little; and 87 % is nothing where 87 % are of one class, so every
measure stands beside that of a constant answer. Everything here is computed on test records, without noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.tasks import LABELS, Task
from fedsofim.trained.measures import all_measures, confusion, constant_answers, label_recalls, recalls

FEWEST = 10  # test records: a smaller group's accuracy is too uncertain to be called the worst


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """`values` and `baseline`: every measure of the task (trained/measures.py), the model's and a constant answer's.
    `groups`: for each public column, its values with the task's one number and how many records."""

    task: Task
    values: Mapping[str, float | None]
    baseline: Mapping[str, float | None]
    labels: tuple[Any, ...]
    groups: Mapping[str, Mapping[str, tuple[float, int]]]
    recall: Mapping[Any, float | None]  # by class, or by label, in percent; None: the test set has none of it
    confusion: np.ndarray | None = None  # (classes, classes): rows are the truth; of classes only
    clients: tuple[float, ...] = ()  # accuracy expected at each client, by its mix of classes; of classes only.
    # An exact function of training labels, which no epsilon covers: for who holds the records, and in no file

    @property
    def accuracy(self) -> float | None:
        return self.values.get("accuracy")

    @property
    def balanced(self) -> float | None:
        """Mean recall: every class counts alike."""
        return self.values.get("balanced_accuracy")

    @property
    def majority(self) -> float | None:
        """Accuracy of whoever always says the commonest class of the test records."""
        return self.baseline.get("accuracy")

    @property
    def gaps(self) -> dict[str, float]:
        """Best minus worst: over classes, and each public column."""
        known = [r for r in self.recall.values() if r is not None]
        out = {"label" if self.task.kind == LABELS else "class": max(known) - min(known)} if known else {}
        for column, values in self.groups.items():
            known = [score for score, count in values.values() if count >= FEWEST]
            out |= {column: max(known) - min(known)} if len(known) > 1 else {}
        return out

    def summary(self) -> dict[str, Any]:
        """As plain data, for printing and for files: nothing here was computed from training records but through the
        model. So `clients` is not in it: with the recalls beside it, it would tell each client's mix of labels."""
        by_class = self.confusion is not None
        return {
            "metric": self.task.metric,
            "measures": _rounded(self.values),
            "baseline": _rounded(self.baseline),
            **({"balanced_accuracy": _rounded(self.values)["balanced_accuracy"]} if by_class else {}),
            **({"majority_accuracy": _rounded(self.baseline)["accuracy"]} if by_class else {}),
            "recall": {str(k): None if v is None else round(v, 4) for k, v in self.recall.items()},
            **({"confusion": self.confusion.tolist()} if self.confusion is not None else {}),
            "groups": {c: {g: [round(a, 4), n] for g, (a, n) in values.items()} for c, values in self.groups.items()},
            "gaps": {k: round(v, 4) for k, v in self.gaps.items()},
        }


def _rounded(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if v is None else float(f"{v:.7g}") for name, v in values.items()}


def metrics_of(data: Dataset, z: np.ndarray, parts: Sequence[np.ndarray] = ()) -> Metrics:
    """Of a model's outputs for the test records; `parts` are the clients' rows."""
    task, said = data.task, data.task.decided(z)
    found = confusion(data.y_test, said, data.classes) if task.by_class else None
    recall = label_recalls(said, data.y_test) if task.kind == LABELS else [] if found is None else recalls(found)
    return Metrics(
        task=task,
        values=all_measures(task, task.answers(z), data.y_test),
        baseline=baseline_of(data),
        labels=data.class_names,
        groups={name: by_group(values, *judged(task, said, data.y_test)) for name, values in data.groups.items()},
        recall=dict(zip(data.class_names, recall, strict=False)),
        confusion=found,
        clients=_expected(found, data, parts) if found is not None and parts else (),
    )


def baseline_of(data: Dataset) -> dict[str, float | None]:
    """Every measure of whoever answers the test records' own shares, or mean, to all of them: the best constant answer,
    and none that training records are needed for."""
    constant = constant_answers(data.task, data.y_test, data.classes, len(data.y_test))
    return all_measures(data.task, constant, data.y_test)


def judged(task: Task, said: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, bool]:
    """How right each answer is: right or wrong (of several labels, the part that is right), or a squared error; and
    whether it is an error."""
    if task.metric == "accuracy":
        return (said == y if said.ndim == 1 else np.mean(said == y, axis=1)), False
    return (task.uncoded(said) - task.uncoded(y)) ** 2, True


def by_group(values: np.ndarray, right: np.ndarray, squared: bool = False) -> dict[str, tuple[float, int]]:
    """Accuracy, or RMSE of squared errors, and number of records of each value, in sorted order."""
    found = {str(v): right[values == v] for v in np.unique(values)}
    told = (lambda mine: float(np.sqrt(mine.mean()))) if squared else (lambda mine: 100 * float(mine.mean()))
    return {value: (told(mine), len(mine)) for value, mine in found.items()}


def _expected(found: np.ndarray, data: Dataset, parts: Sequence[np.ndarray]) -> tuple[float, ...]:
    """What each client can expect: recall of each class, weighted as it has the classes. All clients at once: there may
    be a hundred thousand."""
    by_class = np.array([np.nan if r is None else r for r in recalls(found)])
    known, clients = np.isfinite(by_class), len(parts)
    whose = np.repeat(np.arange(clients), [len(rows) for rows in parts])
    cells = whose * data.classes + data.y_train[np.concatenate(parts)]
    counts = np.bincount(cells, minlength=clients * data.classes).reshape(clients, -1)[:, known]
    return tuple((counts @ by_class[known] / np.maximum(counts.sum(axis=1), 1e-12)).tolist())
