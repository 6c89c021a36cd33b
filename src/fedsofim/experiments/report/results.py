"""Finished runs as frozen data, and the groupings every table starts from."""

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.core.budget import epsilon_stated, in_words
from fedsofim.errors import InputError, one_of
from fedsofim.experiments.journal import GRID, from_text, read_runs
from fedsofim.experiments.record_digests import is_public
from fedsofim.files import write_text
from fedsofim.formats import RUNS as FORMAT
from fedsofim.formats import check_format
from fedsofim.simulation.simulator import Trace
from fedsofim.tasks import Task, task_of


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished run."""

    dataset: str
    partition: str
    method: str  # its label
    epsilon: float  # of the budget; what was spent is in `privacy`
    seed: int
    settings: dict[str, Any]
    factory: str
    trace: Trace
    predictions: np.ndarray | None  # classes by number; None where records have none
    privacy: dict[str, Any]
    finite: bool
    seconds: float
    environment: dict[str, Any]
    used: dict[str, Any]  # the settings as they were used, the recipe's among them
    code: dict[str, str]  # digests of the code that made it; empty: from before that was written down
    metrics: dict[str, Any]  # every measure, recall, groups; empty: from before, or the run overflowed

    @property
    def final(self) -> float:
        """The task's one number after the last round."""
        return float(self.trace.score[-1])

    @property
    def spent(self) -> float:
        """The ledger's epsilon."""
        return epsilon_stated(self.privacy["epsilon"])

    @property
    def spent_by_each(self) -> list[float]:
        """The same of every client, smallest first, where budgets are unequal; else empty."""
        return sorted(c["epsilon"] for c in self.privacy.get("each_client", []))

    @property
    def spent_in_words(self) -> str:
        """What was spent, of all clients or from the least to the most of any."""
        each = self.spent_by_each
        return f"{in_words(each[0])} to {in_words(each[-1])}" if each else in_words(self.spent)

    @property
    def note(self) -> str:
        return str(self.privacy.get("note", ""))

    def at(self, round_: int) -> float | None:
        """Return the task's one number after a round; None where it was not measured, or the run had ended."""
        where = np.flatnonzero(self.trace.rounds == round_)
        return float(self.trace.score[where[0]]) if len(where) else None


@dataclass(frozen=True)
class Results:
    """A folder of runs: only those its experiment lists, in the experiment's order."""

    name: str
    about: str
    runs: tuple[Result, ...]
    grid: dict[str, Any]
    focus: tuple[str, ...] = ()  # methods to compare with all others; empty: the best one of each budget

    @property
    def methods(self) -> list[str]:
        return distinct(r.method for r in self.runs)

    @property
    def epsilons(self) -> list[float]:
        return sorted({r.epsilon for r in self.runs})

    @property
    def places(self) -> list[tuple[str, str]]:
        """(dataset, partition) pairs."""
        return distinct((r.dataset, r.partition) for r in self.runs)

    @property
    def rounds(self) -> int:
        """Of the longest run: a recipe may have its own number."""
        return max(int(r.trace.rounds[-1]) for r in self.runs)

    @property
    def same_length(self) -> bool:
        """Did all runs train for the same number of rounds?"""
        return len({int(r.trace.rounds[-1]) for r in self.runs}) == 1

    @property
    def counted(self) -> list[dict[str, Any]]:
        """The partitions whose counts by class may be told: of public records. Version 1 has those of one's own too."""
        older = self.grid.get("format", 1) == 1
        public = {name for name in self.grid["experiment"]["datasets"] if is_public(name)}
        return [d for d in self.grid["partitions"] if "counts" in d and (not older or d["dataset"] in public)]

    @property
    def missing(self) -> int:
        return len(self.grid["ids"]) - len(self.runs)

    @property
    def unfinished(self) -> list[str]:
        """Which runs are missing, in words: a method under a budget, and which of its seeds."""
        done = {(r.dataset, r.partition, r.method, r.epsilon, r.seed) for r in self.runs}
        found: dict[str, list[int]] = {}
        for p in self.grid.get("points", []):
            epsilon = epsilon_stated(p["epsilon"])
            if (p["dataset"], p["partition"], p["label"], epsilon, p["seed"]) not in done:
                where = f"{p['label']} at ε = {in_words(epsilon)} on {p['dataset']}, {p['partition']}"
                found.setdefault(where, []).append(p["seed"])
        return [f"{where} (seeds {', '.join(map(str, seeds))})" for where, seeds in found.items()]

    @property
    def versions(self) -> list[str]:
        """The different versions of code that made these runs."""
        return distinct(json.dumps(r.code, sort_keys=True) for r in self.runs if r.code)

    @property
    def notes(self) -> dict[str, str]:
        """What a reader must know about a method, by label."""
        return {r.method: r.note for r in self.runs if r.note}

    def select(self, place: tuple[str, str], method: str | None = None, epsilon: float | None = None) -> list[Result]:
        return [
            r
            for r in self.runs
            if (r.dataset, r.partition) == place and method in (None, r.method) and epsilon in (None, r.epsilon)
        ]

    def task(self, dataset: str) -> Task:
        """Older grids are of classes."""
        return task_of(self.grid.get("tasks", {}).get(dataset))

    def tested(self, dataset: str) -> int:
        """How many test records there are."""
        found = self.grid.get("tested", {}).get(dataset)
        return len(self.labels(dataset)) if found is None else int(found)

    def labels(self, dataset: str) -> np.ndarray:
        return from_text(self.grid["labels"][dataset])

    def classes(self, dataset: str) -> list[str]:
        """What the classes are called; older grids know their numbers only."""
        named = self.grid.get("classes", {}).get(dataset)
        return named or [str(c) for c in range(int(self.labels(dataset).max()) + 1)]

    def groups(self, dataset: str) -> dict[str, np.ndarray]:
        """The public groups of the test records, by column."""
        found = self.grid.get("groups", {}).get(dataset, {})
        return {c: np.array(g["values"])[from_text(g["codes"])] for c, g in found.items()}

    def baseline(self, dataset: str) -> float:
        """The task's one number of a constant answer: the commonest class, or the mean, of the test records."""
        task = self.task(dataset)
        known = self.grid.get("baselines", {}).get(dataset, {})
        return self.majority(dataset) if task.by_class else float(known[task.metric])

    def baselines(self, dataset: str) -> dict[str, float | None]:
        """Every measure of a constant answer; empty of older grids."""
        return self.grid.get("baselines", {}).get(dataset, {})

    def majority(self, dataset: str) -> float:
        """Accuracy in percent of whoever always says the commonest class: of public training records, else of tests."""
        counts = [np.sum(d["counts"], axis=0) for d in self.counted if d["dataset"] == dataset]
        labels = self.labels(dataset)
        return 100 * float(np.mean(labels == int(np.argmax(counts[0] if counts else np.bincount(labels)))))


@dataclass(frozen=True)
class Scale:
    """How a dataset's numbers are told: accuracy in percent, or an RMSE, of which less is better."""

    metric: str
    higher: bool
    digits: int
    baseline: float

    @staticmethod
    def of(results: Results, dataset: str) -> "Scale":
        task, base = results.task(dataset), results.baseline(dataset)
        digits = 2 if task.metric == "accuracy" else max(2, 3 - math.floor(math.log10(max(base, 1e-9))))
        return Scale(task.metric, task.higher, digits, base)

    @property
    def name(self) -> str:
        return "accuracy" if self.metric == "accuracy" else "RMSE"

    @property
    def axis(self) -> str:
        """As an axis is labelled."""
        return "test accuracy" if self.metric == "accuracy" else "test RMSE"

    @property
    def unit(self) -> str:
        return " %" if self.metric == "accuracy" else ""

    @property
    def sign(self) -> int:
        """Times a difference, so that more is better."""
        return 1 if self.higher else -1

    def said(self, value: float) -> str:
        return f"{value:.{self.digits}f}{self.unit}"

    @property
    def alone(self) -> str:
        """The constant answer, in a sentence."""
        if self.metric == "accuracy":
            return f"Whoever always says the commonest class is right for {self.baseline:.2f} %."
        return f"Whoever always says the test records' mean has an RMSE of {self.said(self.baseline)}."


def read_results(folder: Path, focus: Sequence[str] = ()) -> Results:
    """Read the runs of a folder.

    Args:
        folder: A folder written by `fedsofim compare`.
        focus: Labels of the methods to compare with all others.

    Returns:
        The runs that the folder's experiment lists.

    Raises:
        InputError: If the folder holds no finished run, is damaged, or has no method of a label in focus.
    """
    if not (folder / GRID).exists():
        raise InputError(f"{folder}: holds no {GRID}; expected a folder written by fedsofim compare")
    grid = _grid(folder / GRID)
    found = {run["id"]: run for run in read_runs(folder)}
    runs = tuple(_result(found[i]) for i in grid["ids"] if i in found)
    if not runs:
        raise InputError(f"{folder}: no run is finished yet; let fedsofim compare go on first")
    results = Results(grid["experiment"]["name"], grid["experiment"]["about"], runs, grid, tuple(focus))
    for label in focus:
        one_of("method in these runs", label, results.methods)
    return results


#: What every grid.json has, whatever its version.
_KEYS = ("experiment", "ids", "partitions", "labels")


def _grid(path: Path) -> dict[str, Any]:
    again = "run the same fedsofim compare again, which writes it anew and keeps finished runs"
    try:
        grid = json.loads(path.read_text())
    except ValueError as problem:
        raise InputError(f"{path}: is damaged ({problem}); {again}") from None
    if not isinstance(grid, dict) or not all(isinstance(grid.get(key), dict | list) for key in _KEYS):
        raise InputError(f"{path}: is damaged (it must state {', '.join(_KEYS)}); {again}")
    check_format(FORMAT, grid, path)
    return grid


def _result(run: dict[str, Any]) -> Result:
    score = np.array([np.nan if v is None else v for v in run[run.get("metric", "accuracy")]], float)
    loss = np.array([np.nan if v is None else v for v in run["loss"]], float)
    trace = Trace(np.arange(1, len(score) + 1), score, loss)
    same = ("dataset", "partition", "seed", "settings", "privacy", "finite", "seconds", "environment")
    return Result(
        **{key: run[key] for key in same},
        method=run["label"],
        factory=run["method"],
        epsilon=epsilon_stated(run["epsilon"]),
        trace=trace,
        predictions=None if run["predictions"] is None else from_text(run["predictions"]),
        metrics=run.get("metrics") or {},
        used=run.get("used", run["settings"]),
        code=run.get("code", {}),
    )


def write_rows(results: Results, path: Path) -> None:
    """Every measured round as CSV, for other tools."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kinds = {results.task(dataset).metric for dataset, _ in results.places}
    score = kinds.pop() if len(kinds) == 1 else "score"
    writer.writerow(["dataset", "partition", "method", "epsilon", "epsilon_spent", "seed", "round", score, "loss"])
    for r in results.runs:
        digits = Scale.of(results, r.dataset).digits
        for t, value, loss in zip(*r.trace, strict=True):
            writer.writerow(
                [
                    r.dataset,
                    r.partition,
                    r.method,
                    in_words(r.epsilon),
                    r.spent_in_words,
                    r.seed,
                    t,
                    f"{value:.{digits}f}",
                    f"{loss:.4f}",
                ]
            )
    write_text(path, text.getvalue())


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order of appearance.

    >>> distinct("abac")
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(values))
