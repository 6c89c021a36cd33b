"""How right answers are, by task: the measures of tests, tables and reports, and of whoever answers without looking.

    classes, two-classes   accuracy, balanced accuracy (mean recall), AUC, log loss, calibration error
    labels                 the same as means over labels, and all_right: records with every label right
    numbers                RMSE, MAE, R²
    counts                 the same, and Poisson's deviance

Accuracies are in percent, errors in the answer's units; AUC, calibration error and R² are parts of 1. The baseline of
every measure is the same measure of a constant answer: the test records' own shares of classes, or their mean, so that
no training record is needed for it.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import xlogy

from fedsofim.tasks import CLASSES, COUNTS, LABELS, NUMBERS, TWO, Task

BINS = 10  # of the calibration error, equally wide
_LEAST = float(np.finfo(np.float64).eps)  # of a probability in a logarithm

Measures = dict[str, float | None]

#: What a measure is called in sentences and tables, how many digits it has, and whether more of it is better.
SAID = {
    "accuracy": ("accuracy (%)", 2, True),
    "balanced_accuracy": ("balanced accuracy (%)", 2, True),
    "all_right": ("all labels right (%)", 2, True),
    "auc": ("AUC", 4, True),
    "log_loss": ("log loss", 4, False),
    "calibration_error": ("calibration error", 4, False),
    "rmse": ("RMSE", 4, False),
    "mae": ("MAE", 4, False),
    "r2": ("R²", 4, True),
    "deviance": ("Poisson deviance", 4, False),
}


def all_measures(task: Task, answers: np.ndarray, y: np.ndarray) -> Measures:
    """Every measure of answers (`Task.answers`) to records whose truth is y; None where the records do not tell.

    Answers that are not finite come from a model whose steps were too large: then every measure is None.
    """
    if not np.isfinite(answers).all():
        return dict.fromkeys(all_measures(task, np.full_like(answers, 0.5), y))
    if task.kind in (NUMBERS, COUNTS):
        return _of_numbers(task, np.asarray(answers, np.float64), task.uncoded(y).astype(np.float64))
    if task.kind == LABELS:
        return _of_labels(answers, y)
    return _of_classes(
        answers if task.kind == CLASSES else np.column_stack([1 - answers[:, 0], answers[:, 0]]), y, task
    )


def constant_answers(task: Task, known: np.ndarray, classes: int, records: int) -> np.ndarray:
    """What somebody answers who knows the shares, or mean, of these answers, and does not look at the record."""
    if task.kind == CLASSES:
        one = np.bincount(known, minlength=classes) / len(known)
    elif task.kind in (TWO, LABELS):
        one = np.atleast_1d(np.mean(known, axis=0, dtype=np.float64))
    else:
        return np.full(records, float(np.mean(task.uncoded(known))))
    return np.tile(one, (records, 1))


def _of_classes(p: np.ndarray, y: np.ndarray, task: Task) -> Measures:
    classes = p.shape[1]
    said = p.argmax(axis=1) if task.kind == CLASSES else (p[:, 1] > 0.5).astype(np.int64)
    by_class = [r for r in recalls(confusion(y, said, classes)) if r is not None]
    sure = p[np.arange(len(y)), said] if task.kind == CLASSES else p[:, 1]
    right = said == y if task.kind == CLASSES else y == 1
    areas = [auc(p[:, c], y == c) for c in range(classes)]
    return {
        "accuracy": 100 * float(np.mean(said == y)),
        "balanced_accuracy": float(np.mean(by_class)),
        "auc": _mean(areas) if classes > 2 else areas[-1],
        "log_loss": float(-np.mean(np.log(np.maximum(p[np.arange(len(y)), y], _LEAST)))),
        "calibration_error": calibration_error(sure, right),
    }


def _of_labels(p: np.ndarray, y: np.ndarray) -> Measures:
    said = p > 0.5
    right = said == (y == 1)
    balanced = [_mean(recalls(confusion(y[:, j], said[:, j].astype(np.int64), 2))) for j in range(y.shape[1])]
    told = np.maximum(np.where(y == 1, p, 1 - p), _LEAST)
    return {
        "accuracy": 100 * float(np.mean(right)),
        "balanced_accuracy": _mean(balanced),
        "all_right": 100 * float(np.mean(np.all(right, axis=1))),
        "auc": _mean([auc(p[:, j], y[:, j] == 1) for j in range(y.shape[1])]),
        "log_loss": float(-np.mean(np.log(told))),
        "calibration_error": calibration_error(p.ravel(), y.ravel() == 1),
    }


def _of_numbers(task: Task, answers: np.ndarray, truth: np.ndarray) -> Measures:
    error = answers - truth
    spread = float(np.mean((truth - truth.mean()) ** 2))
    found: Measures = {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "r2": 1 - float(np.mean(error**2)) / spread if spread > 0 else None,
    }
    if task.kind == COUNTS:
        mean = np.maximum(answers, _LEAST)
        found["deviance"] = float(2 * np.mean(xlogy(truth, truth / mean) - truth + mean))
    return found


def auc(score: np.ndarray, positive: np.ndarray) -> float | None:
    """The probability that a positive record scores higher than another, ties counting half; exact, by ranks.

    >>> auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, True, False, True]))
    0.875
    """
    yes = int(np.sum(positive))
    no = len(positive) - yes
    if yes == 0 or no == 0:
        return None
    return (float(np.sum(_ranks(score)[positive])) - yes * (yes + 1) / 2) / (yes * no)


def _ranks(score: np.ndarray) -> np.ndarray:
    """1 for the least; equal ones share the mean of theirs. (scipy.stats has it, and takes most of a second to import.)

    >>> _ranks(np.array([0.1, 0.4, 0.4, 0.8]))
    array([1. , 2.5, 2.5, 4. ])
    """
    _, place, equal = np.unique(score, return_inverse=True, return_counts=True)
    return (np.cumsum(equal) - (equal - 1) / 2)[place]


def calibration_error(probability: np.ndarray, happened: np.ndarray, bins: int = BINS) -> float:
    """Σ over bins of its part of the records · |mean probability - how often it happened|.

    >>> round(calibration_error(np.array([0.8, 0.8, 0.8, 0.8]), np.array([True, True, False, True])), 3)
    0.05
    """
    which = np.minimum((probability * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(which, probability - happened, minlength=bins)
    return float(np.sum(np.abs(gaps)) / len(probability))


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many of each class were taken for which.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    return np.bincount(truth.astype(np.int64) * classes + predicted, minlength=classes**2).reshape(classes, classes)


def recalls(found: np.ndarray) -> list[float | None]:
    """By class, in percent; None where there is no record of it."""
    return [100 * float(row[c]) / int(row.sum()) if row.sum() else None for c, row in enumerate(found)]


def label_recalls(said: np.ndarray, y: np.ndarray) -> list[float | None]:
    """By label, of the records that have it, the part that is recognised."""
    return [recalls(confusion(y[:, j], said[:, j], 2))[1] for j in range(y.shape[1])]


def in_words(name: str, value: float | None, unit: str = "") -> str:
    """A measure for people.

    >>> in_words("accuracy", 91.234), in_words("rmse", 12.3456), in_words("auc", None)
    ('91.23 %', '12.35', 'none')
    """
    if value is None:
        return "none"
    digits = SAID[name][1]
    if SAID[name][0].endswith("(%)"):
        return f"{value:.{digits}f} %"
    return f"{value:.4g}{' ' + unit if unit else ''}" if name in ("rmse", "mae") else f"{value:.{digits}f}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
