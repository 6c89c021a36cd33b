"""Every measure of the trained models beside a constant answer's: 87 % says nothing where 87 % are of one class."""

from collections.abc import Sequence

import numpy as np

from fedsofim.experiments.report.accuracy import marked, slug
from fedsofim.experiments.report.results import Result, Results
from fedsofim.experiments.report.table import Cell, Table, budget_cell, number, text
from fedsofim.trained.measures import SAID

Place = tuple[str, str]


def measures_table(results: Results, place: Place) -> Table | None:
    """Means over seeds; the last row is of whoever answers the test records' shares, or mean, to all."""
    base = results.baselines(place[0])
    rows = []
    for epsilon in results.epsilons:
        for method in results.methods:
            runs = [r for r in results.select(place, method, epsilon) if r.metrics]
            if runs:
                rows.append((budget_cell(epsilon), text(marked(results, method)), *_cells(runs, base)))
    if not rows or not base:
        return None
    shown = [_shown(name, value) for name, value in base.items()]
    rows.append((Cell("none", 0.0), text("constant answer"), *shown))
    columns = ("ε", "method", *(_head(name) for name in base))
    note = (
        "On the test records, mean over seeds. Constant answer: the test records' own shares of the classes, or their "
        "mean, whatever the record. AUC of several classes is the mean of each against the rest."
    )
    return Table(f"measures-{slug(place)}", f"Measures: {place[0]}, {place[1]}", columns, tuple(rows), note)


def _cells(runs: Sequence[Result], names: Sequence[str] | dict) -> list[Cell]:
    found = [[r.metrics["measures"].get(name) for r in runs] for name in names]
    return [_shown(n, None if None in v else float(np.mean(v))) for n, v in zip(names, found, strict=True)]


def _shown(name: str, value: float | None) -> Cell:
    if value is None or name not in ("rmse", "mae"):
        return number(value, SAID[name][1])
    return Cell(f"{value:.4g}", value)


def _head(name: str) -> str:
    said, _, higher = SAID[name]
    return said if higher else f"{said}, less is better"
