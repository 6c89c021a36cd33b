"""Published tables beside measured ones, with the difference; the tables are CSV files in a folder given by path."""

import csv
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedsofim.errors import InputError
from fedsofim.experiments.report.accuracy import REFERENCE, marked, slug
from fedsofim.experiments.report.results import Result, Results
from fedsofim.experiments.report.statistics import paired
from fedsofim.experiments.report.table import Cell, Table, number, spread, text

SLACK = 0.5  # percentage points that two means may differ by whatever their spread
WIDE = 2.0  # a difference above this is never called agreement, however wide the spread
_CLOSE = (
    "'yes': the means differ by at most 0.5 points, or by at most 2 and no more than a two-sided 95 % t interval of "
    "their difference (three seeds assumed behind the published spread); 'unclear': within it, but by more than 2."
)
Row = dict[str, str]


def published_tables(results: Results, folder: Path) -> list[Table]:
    """Every comparison for which the folder has a file and the runs have a counterpart."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected one with accuracy.csv and the like")
    makers: tuple[tuple[str, Callable[[Results, list[Row]], Iterable[Table]]], ...] = (
        ("accuracy.csv", _accuracy),
        ("ablation.csv", _ablation),
        ("rho_sensitivity.csv", _rho),
        ("mcnemar.csv", _mcnemar),
        ("runtime.csv", _runtime),
    )
    out = [table for name, make in makers if (folder / name).exists() for table in make(results, read(folder / name))]
    return out + list(_partitions(results, folder))


def read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def agreement(published: tuple[float, float], measured: list[float]) -> str:
    """'yes', 'no', or 'unclear' where the spread over seeds is too wide to tell.

    >>> agreement((64.1, 0.2), [64.2, 64.4, 64.3]), agreement((52.0, 0.2), [64.2, 64.4, 64.3])
    ('yes', 'no')
    >>> agreement((65.2, 0.2), [46.0, 62.0, 59.0])
    'unclear'
    """
    gap = abs(float(np.mean(measured)) - published[0])
    if gap <= SLACK:
        return "yes"
    if len(measured) < 2:
        return "no"
    error = math.sqrt((published[1] ** 2 + float(np.var(measured, ddof=1))) / len(measured))
    if gap > float(stats.t.ppf(0.975, 2 * len(measured) - 2)) * error:
        return "no"
    return "yes" if gap <= WIDE else "unclear"


def _accuracy(results: Results, rows: list[Row]) -> Iterable[Table]:
    for place in results.places:
        cells, where = [], ", ".join(place)
        for row in rows:
            if not _same_place(place, row) or int(row["round"]) > results.rounds:
                continue
            runs = results.select(place, row["method"], float(row["epsilon"]))
            values = [a for a in (r.at(int(row["round"])) for r in runs) if a is not None]
            if values and _plain(runs[0]):
                head = (text(marked(results, row["method"])), Cell(row["round"], float(row["round"])))
                cells.append(_beside(row, head, values))
        if cells:
            columns = ("ε", "method", "round", "published", "measured", "difference", "reproduces")
            last = [c for c in cells if c[2].text == str(results.rounds)]
            yield _table(f"published-final-{slug(place)}", f"Published and measured, last round: {where}",
                         columns, last)  # fmt: skip
            yield _table(f"published-{slug(place)}", f"Published and measured, every tenth round: {where}",
                         columns, cells)  # fmt: skip


def _ablation(results: Results, rows: list[Row]) -> Iterable[Table]:
    if len({r.settings.get("variant", "full") for r in results.runs}) < 2:
        return
    for place in results.places:
        cells, where = [], ", ".join(place)
        for row in (r for r in rows if place[0].startswith(r["dataset"])):
            runs = [r for r in results.select(place, epsilon=float(row["epsilon"]))
                    if r.settings.get("variant", "full") == row["variant"] and r.factory == "fedsofim"
                    and r.settings.get("direction", "momentum") == "momentum"]  # fmt: skip
            if runs:
                cells.append(_beside(row, (text(row["variant"]),), [r.final for r in runs]))
        columns = ("ε", "variant", "published", "measured", "difference", "reproduces")
        yield _table(f"published-ablation-{slug(place)}", f"Ablation, published and measured: {where}",
                     columns, cells)  # fmt: skip


def _rho(results: Results, rows: list[Row]) -> Iterable[Table]:
    if len({r.method for r in results.runs if " rho=" in r.method}) < 2:
        return
    for place in results.places:
        cells, where = [], ", ".join(place)
        for row in (r for r in rows if place[0].startswith(r["dataset"])):
            runs = [r for r in results.select(place, epsilon=float(row["epsilon"]))
                    if r.settings.get("rho") == float(row["rho"])]  # fmt: skip
            if runs:
                head = (Cell(row["rho"], float(row["rho"])),)
                cells.append(_beside(row, head, [r.final for r in runs]))
        columns = ("ε", "rho", "published", "measured", "difference", "reproduces")
        yield _table(f"published-rho-{slug(place)}", f"Sensitivity to rho, published and measured: {where}",
                     columns, cells)  # fmt: skip


def _mcnemar(results: Results, rows: list[Row]) -> Iterable[Table]:
    for place in results.places:
        if not place[1].startswith("dirichlet"):
            continue
        cells, where = [], ", ".join(place)
        for row in (r for r in rows if _features(place[0]) == f"{r['dataset']}_{r['backbone']}"):
            epsilon = float(row["epsilon"])
            ours = {r.seed: r for r in results.select(place, "DP-FedSOFIM", epsilon) if _plain(r)}
            others = {r.seed: r for r in results.select(place, row["baseline"], epsilon)}
            labels = results.labels(place[0])
            both = [(ours[s].predictions, others[s].predictions) for s in sorted(ours.keys() & others.keys())]
            tests = [paired(a, b, labels) for a, b in both if a is not None and b is not None]
            if tests:
                names = {"first": "sofim", "second": "baseline", "none": "none"}
                found = [names[t.direction()] for t in tests]
                cells.append((Cell(row["epsilon"], epsilon), text(marked(results, row["baseline"])),
                              text(f"{row['n10']} / {row['n01']}"), text(row["result"]),
                              text("; ".join(f"{t.n10} / {t.n01}" for t in tests)), text(", ".join(found)),
                              text("yes" if row["result"] in found else "no")))  # fmt: skip
        if cells:
            columns = ("ε", "against", "n10 / n01 published", "better, published", "n10 / n01 measured, by seed",
                       "better, measured", "published direction occurs")  # fmt: skip
            yield Table(f"published-mcnemar-{slug(place)}", f"McNemar, published and measured: {where}",
                        columns, tuple(cells), "At 5 %, without correction, as published.")  # fmt: skip


def _runtime(results: Results, rows: list[Row]) -> Iterable[Table]:
    """Ratios to DP-FedGD on both sides; the published seconds are of another machine."""
    cells = []
    for place in results.places:
        column = f"{_features(place[0])}_s"
        base = _fastest([r for r in results.select(place) if r.factory == REFERENCE])
        if (rows and column not in rows[0]) or base is None or not place[1].startswith("dirichlet"):
            continue
        reference = next(float(r[column]) for r in rows if r["method"] == "DP-FedGD")
        for row in rows:
            mine = _fastest([r for r in results.select(place, row["method"]) if _covers(row["epsilon"], r.epsilon)])
            if mine is not None:
                cells.append((text(place[0]), text(row["method"]), text(row["epsilon"]),
                              Cell(row["local_steps"], float(row["local_steps"])),
                              number(float(row[column]) / reference), number(mine / base)))  # fmt: skip
    if cells:
        columns = ("data", "method", "ε", "local steps", "published ratio", "measured ratio")
        yield Table("published-runtime", "Time per round over DP-FedGD's", columns, tuple(cells),
                    "Ratios within one machine and one experiment; fastest run of each method and budget.")  # fmt: skip


def _partitions(results: Results, folder: Path) -> Iterable[Table]:
    for dealt in results.counted:
        path = folder / f"partition_{_features(dealt['dataset']).split('_')[0]}.csv"
        if dealt["partition"] != "dirichlet(0.5)" or not path.exists():
            continue
        counts = np.array(dealt["counts"])
        stored = np.array([[int(v) for k, v in row.items() if k.startswith("class")] for row in read(path)])
        same = int(np.sum(counts == stored)) if counts.shape == stored.shape else 0
        row = (text(dealt["dataset"]), Cell(str(same), same), Cell(str(stored.size), stored.size))
        title = f"Partition, published and measured: {dealt['dataset']}"
        yield Table(f"published-partition-{slug((dealt['dataset'],))}", title, ("data", "equal cells", "cells"), (row,))


def _beside(row: Row, head: tuple[Cell, ...], values: list[float]) -> tuple[Cell, ...]:
    mean, std = float(row["mean"]), float(row["std"])
    found = float(np.mean(values))
    measured = spread(found, float(np.std(values, ddof=1)) if len(values) > 1 else None)
    return (Cell(row["epsilon"], float(row["epsilon"])), *head, spread(mean, std), measured,
            number(found - mean, signed=True), text(agreement((mean, std), values)))  # fmt: skip


def _table(name: str, title: str, columns: tuple[str, ...], cells: list[Any]) -> Table:
    good = sum(c[-1].text == "yes" for c in cells)
    return Table(name, title, columns, tuple(cells), f"{good} of {len(cells)} reproduce. {_CLOSE}")


def _same_place(place: tuple[str, str], row: Row) -> bool:
    return _features(place[0]) == f"{row['dataset']}_{row['backbone']}" and place[1].startswith(row["partition"])


def _features(dataset: str) -> str:
    """A dataset's name as the published tables spell it: experiments spell the same with a dash, older runs did not."""
    return dataset.replace("-", "_")


def _plain(run: Result) -> bool:
    """Is this run of the published form, rather than a variant under the same label?"""
    return run.settings.get("direction", "momentum") == "momentum"


def _covers(published: str, epsilon: float) -> bool:
    if published == "all":
        return True
    return epsilon >= float(published[2:]) if published.startswith(">=") else epsilon == float(published)


def _fastest(runs: list[Result]) -> float | None:
    return min((r.seconds / len(r.trace.rounds) for r in runs), default=None)
