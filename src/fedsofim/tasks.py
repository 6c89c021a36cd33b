"""What is learned of a record: the kind of its answer, how it is coded, and which number says how well it went.

    kind         an answer                        y                               outputs z  what is told
    classes      one of C names                   int32 (N,), 0..C-1              C          softmax(z)
    two-classes  one of two names                 int32 (N,), 0 or 1              1          1/(1 + e^-z)
    labels       yes or no to L questions         int32 (N, L), 0 or 1            L          1/(1 + e^-z) of each
    numbers      a number of a public range       float32 (N,), range as [-1, 1]  1          z, in the range's units
    counts       0, 1, 2, ... to a public most    int32 (N,)                      1          scale·e^z: the mean count

Ranges are public, said by people: what lies outside counts as the nearer end. The losses are in core/losses.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsofim.errors import InputError, is_number, one_of, shown

CLASSES, TWO, LABELS, NUMBERS, COUNTS = KINDS = ("classes", "two-classes", "labels", "numbers", "counts")


@dataclass(frozen=True)
class Task:
    """One of KINDS. `range`: of numbers, and of counts from 0 up. `huber`: of numbers, in their units, the error from
    which on the loss is a straight line; None: it is squared throughout.

    >>> Task("numbers", range=(0, 100)).coded(np.array([0.0, 75.0, 1000.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    kind: str = CLASSES
    range: tuple[float, float] | None = None
    huber: float | None = None

    def __post_init__(self) -> None:
        one_of("task", self.kind, KINDS)
        if self.range is not None:
            object.__setattr__(self, "range", _checked_range(self.kind, self.range))
        if self.range is None and self.kind in (NUMBERS, COUNTS):
            example = "(0, 100)" if self.kind == NUMBERS else "(0, 20)"
            raise InputError(
                f"{self.kind} need a public range, said by people and not read off the records: "
                f"fs.Task('{self.kind}', range={example}) (--target-range {example[1:-1].replace(' ', '')})"
            )
        if self.huber is not None and (self.kind != NUMBERS or not is_number(self.huber) or not 0 < self.huber < 1e30):
            raise InputError(
                f"huber is {shown(self.huber)} for {self.kind}; expected a number above 0, and only of numbers"
            )

    # --- how answers are coded ------------------------------------------------------------------------------

    def outputs(self, classes: int) -> int:
        """How many numbers a model answers with, where there are so many classes, or labels."""
        return {CLASSES: classes, LABELS: classes}.get(self.kind, 1)

    def target(self, outputs: int) -> tuple[tuple[int, ...], str]:
        """Shape and type of one record's y."""
        return ((outputs,) if self.kind == LABELS else ()), "float32" if self.kind == NUMBERS else "int32"

    @property
    def ends(self) -> tuple[float, float]:
        return self.range or (0.0, 0.0)

    @property
    def half(self) -> float:
        """Of numbers: one unit of y, in theirs."""
        return (self.ends[1] - self.ends[0]) / 2

    @property
    def scale(self) -> float:
        """Of counts: the mean that z = 0 stands for, in the middle of 1 and the most."""
        return float(np.sqrt(self.ends[1]))

    def outside(self, values: np.ndarray) -> int:
        """How many values lie outside the public range."""
        return 0 if self.range is None else int(np.sum((values < self.range[0]) | (values > self.range[1])))

    def coded(self, values: np.ndarray) -> np.ndarray:
        """Answers in their own units as y."""
        if self.kind == NUMBERS:
            inside = np.clip(np.asarray(values, np.float64), *self.ends)
            return np.clip((inside - self.ends[0]) / self.half - 1, -1, 1).astype(np.float32)
        found = np.clip(values, *self.ends) if self.kind == COUNTS else values
        return np.asarray(found).astype(np.int32)

    def uncoded(self, y: np.ndarray) -> np.ndarray:
        """y in its own units."""
        return (np.asarray(y, np.float64) + 1) * self.half + self.ends[0] if self.kind == NUMBERS else np.asarray(y)

    def answers(self, z: np.ndarray) -> np.ndarray:
        """A model's outputs (N, outputs) as they are told: probabilities (N, outputs), or numbers (N,) in their units.

        >>> Task("two-classes").answers(np.array([[0.0]])).tolist()
        [[0.5]]
        """
        z = np.asarray(z, np.float64)
        if self.kind == CLASSES:
            with np.errstate(invalid="ignore"):  # outputs that overflowed give NaN, which whoever asked looks for
                powers = np.exp(z - z.max(axis=1, keepdims=True))
                return powers / powers.sum(axis=1, keepdims=True)
        if self.kind == NUMBERS:
            return np.clip(self.uncoded(z[:, 0]), *self.ends)
        if self.kind == COUNTS:
            return self.scale * np.exp(np.minimum(z[:, 0], np.log(self.ends[1] / self.scale)))
        return 0.5 * (1 + np.tanh(z / 2))

    def decided(self, z: np.ndarray) -> np.ndarray:
        """The most likely y by a model's outputs: as y is coded, but for counts, of which it is the mean."""
        if self.kind == CLASSES:
            return np.asarray(z).argmax(axis=-1)
        if self.kind == TWO:
            return (np.asarray(z)[:, 0] > 0).astype(np.int32)
        if self.kind == LABELS:
            return (np.asarray(z) > 0).astype(np.int32)
        return np.clip(np.asarray(z)[:, 0], -1, 1) if self.kind == NUMBERS else self.answers(z)

    # --- how well it went -----------------------------------------------------------------------------------

    @property
    def metric(self) -> str:
        """The one number of a run: accuracy in percent, or the root of the mean squared error."""
        return "rmse" if self.kind in (NUMBERS, COUNTS) else "accuracy"

    @property
    def higher(self) -> bool:
        """Is more of it better?"""
        return self.metric == "accuracy"

    @property
    def by_class(self) -> bool:
        """Has every record one class: may it be dealt, or told apart, by it?"""
        return self.kind in (CLASSES, TWO)

    # --- as words and as plain data -------------------------------------------------------------------------

    def __str__(self) -> str:
        of_range = "" if self.range is None else f" from {self.range[0]:g} to {self.range[1]:g}"
        return f"{self.kind}{of_range}" + ("" if self.huber is None else f", Huber's loss beyond {self.huber:g}")

    def plain(self) -> dict[str, Any]:
        """As JSON and TOML hold it; `task_of` reads it."""
        found = {"kind": self.kind, "range": None if self.range is None else list(self.range), "huber": self.huber}
        return {key: value for key, value in found.items() if value is not None}


def task_of(given: Any) -> Task:
    """A task as people give it: itself, its kind, plain data, or none, which means classes.

    >>> task_of("two-classes").kind, task_of({"kind": "numbers", "range": [0, 9]}).range, task_of(None).kind
    ('two-classes', (0.0, 9.0), 'classes')
    """
    if isinstance(given, Task):
        return given
    if given is None or isinstance(given, str):
        return Task(given or CLASSES)
    if isinstance(given, Mapping) and set(given) <= {"kind", "range", "huber"}:
        ends = given.get("range")
        return Task(given.get("kind", CLASSES), None if ends is None else tuple(ends), given.get("huber"))
    raise InputError(f"the task is {shown(given)}; expected fs.Task(kind), or one of {', '.join(KINDS)}")


def refuse_other_than_classes(what: str, task: Task) -> None:
    """For what is about the softmax head and nothing else."""
    if task.kind != CLASSES:
        raise InputError(f"{what} is about classes and the softmax head; the task here is {task}")


def _checked_range(kind: str, given: Any) -> tuple[float, float]:
    if kind not in (NUMBERS, COUNTS):
        raise InputError(f"a range goes with numbers and counts; the task is {kind}")
    ends: tuple[Any, ...] = tuple(given) if isinstance(given, tuple | list) else ()
    fits = len(ends) == 2 and all(map(is_number, ends)) and -1e30 < ends[0] < ends[1] < 1e30
    if not fits or (kind == COUNTS and (ends[0] != 0 or ends[1] < 1)):
        wanted = "the lower end and the higher one" if kind == NUMBERS else "0 and the largest count, at least 1"
        raise InputError(f"the range of {kind} is {shown(given)}; expected {wanted}")
    return float(ends[0]), float(ends[1])
