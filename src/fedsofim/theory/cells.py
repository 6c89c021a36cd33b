"""Measured cells of the recipe, and what they say about a run that has not been made.

A cell is a dataset, a federation and a budget with the accuracy that the recipe reached: `cells.csv`, which
`scripts/collect_cells.py` feeds. What noise costs depends on how loud it is, **loudness** = the length of the
noise on a head's gradient, in units of the clip, if one release had all of the budget: 2·a/mu·sqrt(d), a the
mean's noise gain. It is public, and cells of both trust modes and of all budgets lie on one curve of it for each
dataset. What accuracy is left depends on the dataset, which no plan knows; so a plan is told what the nearest
datasets lost to noise, between cells that were measured and never beyond them.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from fedsofim.core.budget import NO_PRIVACY, Budget, epsilon_stated, stated
from fedsofim.core.plan import Trust
from fedsofim.errors import InputError, one_of
from fedsofim.files import write_text
from fedsofim.recipes import Situation
from fedsofim.recipes.recipe import numbers, spread

NEAREST = 3  # datasets that a plan is told about
LOUDER = 1.5  # times a dataset's loudest cell: beyond, its cells say nothing


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What the recipe reached: mean test accuracy in percent over so many seeds, and their standard deviation."""

    dataset: str
    records: int
    features: int
    classes: int
    clients: int
    trust: str
    epsilon: float  # infinite: no privacy
    delta: float
    accuracy: float
    spread: float
    seeds: int
    source: str

    @property
    def situation(self) -> Situation:
        """As if all clients were alike: with every record counting alike, noise depends on their number only."""
        budget = Budget(self.epsilon, self.delta) if math.isfinite(self.epsilon) else NO_PRIVACY
        even = tuple(len(part) for part in np.array_split(np.zeros(self.records), self.clients))
        return Situation(
            budget=budget, sizes=even, shape=(self.features,), classes=self.classes, trust=cast(Trust, self.trust)
        )


def loudness(situation: Situation) -> float:
    """The length of the noise on a gradient, in units of the clip, if one release had all of the budget."""
    return spread(situation.noise, numbers(situation.shape[0], situation.classes))


def measured_cells() -> tuple[Cell, ...]:
    """Those that come with the package."""
    return read_cells(Path(str(files("fedsofim.theory") / "cells.csv")))


def read_cells(path: Path) -> tuple[Cell, ...]:
    """Cells from a table with one column for each field."""
    names = [f.name for f in fields(Cell)]
    expected = f"{path}: expected a CSV table of cells with the columns {', '.join(names)}"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(expected) from None
    if not rows or set(rows[0]) != set(names):
        raise InputError(expected)
    return tuple(_cell(path, row) for row in rows)


def _cell(path: Path, row: dict[str, str]) -> Cell:
    kinds: dict[str, Any] = {"records": int, "features": int, "classes": int, "clients": int, "seeds": int}
    kinds |= {"epsilon": epsilon_stated, "delta": float, "accuracy": float, "spread": float}
    try:
        cell = Cell(**{name: kinds.get(name, str)(value) for name, value in row.items()})
        one_of("trust", cell.trust, get_args(Trust))
        loudness(cell.situation)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{path}: a row is {row}; expected a cell: {error}") from None
    return cell


def write_cells(path: Path, cells: Iterable[Cell]) -> None:
    """A table of cells, sorted, one line each; what is measured again replaces what was."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Cell)], lineterminator="\n")
    writer.writeheader()
    for cell in sorted({_key(c): c for c in cells}.values(), key=_key):
        rounded = {"accuracy": round(cell.accuracy, 3), "spread": round(cell.spread, 3)}
        writer.writerow(asdict(cell) | rounded | {"epsilon": stated(cell.epsilon)})
    write_text(path, text.getvalue())


def _key(cell: Cell) -> tuple:
    return cell.dataset, cell.clients, cell.trust, cell.epsilon, cell.delta


# --- what they say ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What one dataset's cells say at a loudness."""

    dataset: str
    accuracy: float
    spread: float
    lost: float | None  # to noise, against the same recipe without any; None where that was not measured
    measured: bool  # False: quieter than any cell, or a little louder, so the end of the curve is given
    distance: float  # of shapes, and of loudness beyond what was measured, in factors of e


def expectations(situation: Situation, cells: Sequence[Cell], nearest: int = NEAREST) -> list[Expectation]:
    """What the datasets of the nearest shapes reach at this loudness, nearest first."""
    loud = loudness(situation)
    by_name: dict[str, list[Cell]] = {}
    for cell in cells:
        by_name.setdefault(cell.dataset, []).append(cell)
    found = [_expected(name, some, situation, loud) for name, some in by_name.items()]
    return sorted((e for e in found if e is not None), key=lambda e: e.distance)[:nearest]


def _expected(name: str, cells: Sequence[Cell], situation: Situation, loud: float) -> Expectation | None:
    private = sorted((c for c in cells if math.isfinite(c.epsilon)), key=lambda c: loudness(c.situation))
    bare = [c.accuracy for c in cells if not math.isfinite(c.epsilon)]
    if not private:
        return None
    at = np.log([loudness(c.situation) for c in private])
    here = math.log(loud) if loud > 0 else -math.inf
    if here - at[-1] > math.log(LOUDER):
        return None
    accuracy = float(np.interp(here, at, [c.accuracy for c in private]))
    return Expectation(
        dataset=name,
        accuracy=accuracy,
        spread=float(np.interp(here, at, [c.spread for c in private])),
        lost=max(bare) - accuracy if bare else None,
        measured=bool(at[0] - 1e-9 <= here <= at[-1] + 1e-9),
        distance=_distance(private[0], situation) + max(at[0] - here, here - at[-1], 0.0),
    )


def _distance(cell: Cell, situation: Situation) -> float:
    """How far apart two shapes are: logarithms of features, of classes, and half of that of records."""
    pairs = ((cell.features, situation.shape[0]), (cell.classes, situation.classes))
    shape = sum(abs(math.log(one / other)) for one, other in pairs)
    return shape + abs(math.log(cell.records / sum(situation.sizes))) / 2
