"""Who a model is right for: recall by class, accuracy by public group, and the gap from best to worst at each budget.

Noise hurts the few more: a method may win on average and lose those who are rare.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedsofim.experiments.report.accuracy import marked, slug
from fedsofim.experiments.report.results import Result, Results, Scale
from fedsofim.experiments.report.table import Cell, Table, budget_cell, number, text
from fedsofim.simulation.metrics import FEWEST, by_group
from fedsofim.trained.measures import confusion, recalls

Place = tuple[str, str]


def recall_table(results: Results, place: Place) -> Table | None:
    """Of each class, or label, the part that is recognised: mean over seeds."""
    if results.task(place[0]).metric != "accuracy":
        return None
    names = results.classes(place[0])
    rows = []
    for epsilon, method, runs in _cells(results, place):
        found = mean_recall(results, place, runs)
        known = [r for r in found if r is not None]
        if not known:
            continue
        worst = min(known)
        cells = [number(r, 1) if r != worst else Cell(f"{r:.1f} (worst)", r) for r in found]
        mean, gap = number(float(np.mean(known)), 1), number(max(known) - worst, 1)
        rows.append((budget_cell(epsilon), text(method), mean, gap, *cells))
    columns = ("ε", "method", "mean of classes", "gap", *names)
    note = "Percent of each class's test records that are recognised, mean over seeds; gap: best class minus worst."
    return Table(f"recall-{slug(place)}", f"By class: {place[0]}, {place[1]}", columns, tuple(rows), note)


def group_tables(results: Results, place: Place) -> Iterator[Table]:
    """The same for each public group column."""
    scale = Scale.of(results, place[0])
    digits = 1 if scale.higher else scale.digits
    for column, values in results.groups(place[0]).items():
        sizes = {str(v): int(np.sum(values == v)) for v in np.unique(values)}
        rows = []
        for epsilon, method, runs in _cells(results, place):
            found = mean_by_group(results, place, runs, column, values)
            if not found:
                continue
            known = [a for v, a in found.items() if sizes[v] >= FEWEST]
            gap = max(known) - min(known) if len(known) > 1 else None
            cells = [number(v, digits) for v in (gap, *(found[v] for v in sizes))]
            rows.append((budget_cell(epsilon), text(method), *cells))
        columns = ("ε", "method", "gap", *(f"{v} ({n} records)" for v, n in sizes.items()))
        what = "Accuracy in percent" if scale.higher else "RMSE"
        note = f"{what}, mean over seeds; the gap leaves out groups of fewer than {FEWEST} test records."
        title = f"By {column}: {place[0]}, {place[1]}"
        yield Table(f"group-{slug((*place, column))}", title, columns, tuple(rows), note)


def mean_recall(results: Results, place: Place, runs: list[Result]) -> list[float | None]:
    """By class, mean over runs; None where the test set has none of it."""
    if results.task(place[0]).by_class:
        truth, classes = results.labels(place[0]), len(results.classes(place[0]))
        found = [recalls(confusion(truth, r.predictions, classes)) for r in runs if r.predictions is not None]
    else:
        found = [list(r.metrics["recall"].values()) for r in runs if r.metrics]
    if not found:
        return []
    means = np.mean([[np.nan if v is None else v for v in one] for one in found], axis=0)
    return [None if np.isnan(v) else float(v) for v in means]


def mean_by_group(
    results: Results, place: Place, runs: list[Result], column: str, values: np.ndarray
) -> dict[str, float]:
    """By value of a public column, the task's one number, mean over runs."""
    if results.task(place[0]).by_class:
        truth = results.labels(place[0])
        found: list[Any] = [by_group(values, r.predictions == truth) for r in runs]
    else:
        found = [r.metrics["groups"][column] for r in runs if r.metrics]
    return {v: float(np.mean([f[v][0] for f in found])) for v in found[0]} if found else {}


def _cells(results: Results, place: Place) -> Iterator[tuple[float, str, list[Result]]]:
    for epsilon in results.epsilons:
        for method in results.methods:
            if runs := results.select(place, method, epsilon):
                yield epsilon, marked(results, method), runs
