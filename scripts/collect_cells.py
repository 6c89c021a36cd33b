"""Add measured cells of the recipe to the table that `fedsofim plan` reads (src/fedsofim/theory/cells.csv).

    python scripts/collect_cells.py runs/recipe/cifar10-local --features 64 --source "docs/recipe.md"
    python scripts/collect_cells.py docs/results/recipe-regret/cells.jsonl

Takes folders that `fedsofim compare` filled (runs.jsonl and grid.json; only runs of recipe auto count, and
`--features` has to be said, since a journal does not hold it), and journals with one whole cell a line
(experiments/recipe/regret.py). What is measured again replaces what was.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.core.budget import epsilon_stated
from fedsofim.experiments.journal import GRID, read_runs
from fedsofim.theory.cells import Cell, read_cells, write_cells

TABLE = Path(__file__).resolve().parents[1] / "src" / "fedsofim" / "theory" / "cells.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("found", type=Path, nargs="+", help="folders of runs, or journals of cells")
    parser.add_argument("--features", action="append", default=[], help="of a record: 64, or NAME=80 for one dataset")
    parser.add_argument("--source", help="where a reader finds these numbers; else the path")
    parser.add_argument("--table", type=Path, default=TABLE)
    args = parser.parse_args()
    cells = list(read_cells(args.table)) if args.table.exists() else []
    for path in args.found:
        source = args.source or str(path)
        new = list(from_journal(path, source) if path.is_file() else from_runs(path, widths(args.features), source))
        print(f"{path}: {len(new)} cells")
        cells += new
    write_cells(args.table, cells)


def widths(given: list[str]) -> dict[str, int]:
    """Features by dataset; under "" those of all others."""
    pairs = (text.rpartition("=") for text in given)
    return {name: int(number) for name, _, number in pairs}


def from_journal(path: Path, source: str) -> Iterator[Cell]:
    """One whole cell a line, the recipe's accuracies under `accuracy.recipe`."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        shape = {name: row[name] for name in ("records", "features", "classes", "clients", "trust")}
        budget = {"epsilon": epsilon_stated(row["epsilon"]), "delta": row.get("delta", 1e-5)}
        yield Cell(dataset=row["data"], **shape, **budget, **_mean(row["accuracy"]["recipe"]), source=source)


def from_runs(folder: Path, features: dict[str, int], source: str) -> Iterator[Cell]:
    """The recipe's runs of a folder, seeds put together."""
    grid = json.loads((folder / GRID).read_text(encoding="utf-8"))
    held = {(p["dataset"], p["partition"]): p for p in grid["partitions"]}
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for run in read_runs(folder):
        if run["recipe"] == "auto" and run["finite"]:
            key = tuple(run[name] for name in ("dataset", "partition", "trust", "epsilon", "delta"))
            groups.setdefault(key, []).append(run)
    for (dataset, partition, trust, epsilon, delta), runs in groups.items():
        dealt, width = held[dataset, partition], features.get(dataset, features.get(""))
        if width is None:
            raise SystemExit(f"{folder}: say --features {dataset}=NUMBER; a folder of runs does not hold it")
        # folders of version 1 have the counts by class
        sizes = dealt["sizes"] if "sizes" in dealt else np.sum(dealt["counts"], axis=1)
        yield Cell(
            dataset=dataset,
            records=int(sum(sizes)),
            features=width,
            classes=np.shape(dealt["counts"])[1] if "counts" in dealt else len(grid["classes"][dataset]),
            clients=len(sizes),
            trust=trust,
            epsilon=epsilon_stated(epsilon),
            delta=delta,
            **_mean([run["accuracy"][-1] for run in runs]),
            source=source,
        )


def _mean(accuracies: list[float]) -> dict[str, Any]:
    spread = float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0
    return {"accuracy": float(np.mean(accuracies)), "spread": spread, "seeds": len(accuracies)}


if __name__ == "__main__":
    main()
