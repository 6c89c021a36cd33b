"""The recipe against the best that tuning could have found, cell by cell: docs/results/recipe-regret.

    python experiments/recipe/regret.py --data ../shared/data --data runs/tables --out runs/recipe/regret

In each cell of cells.toml the nine methods are tuned on a tenth of the training records (`tuned_search.py`), in the
recipe's preparation and in the paper's protocol (there the best four only, with more than 10,000 records). Those within
a point or two of the best are run on all training records with five seeds (20 with at most 10,000 records), beside the
recipe, and scored on the test records. A cell is one line of OUT/cells.jsonl; a stopped run goes on where it was.
"""

import argparse
import json
import signal
import sys
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np
from tuned_search import FEWER, STEPS, Found, best_of, forms

from fedsofim.core.models import HEAD
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split
from fedsofim.experiments.grid import Partition, Point, budget_at
from fedsofim.experiments.journal import append, from_text, mend
from fedsofim.experiments.reading import digest, read_dataset
from fedsofim.experiments.report.statistics import paired
from fedsofim.experiments.runner import run_point
from fedsofim.experiments.tuning import Search, held_out
from fedsofim.progress import progress_bar

HERE = Path(__file__).resolve().parent
NEAR = (1.0, 2.0)  # points below the best on held-out records, of many or of few: what is further down is not run on
# test records
PREPARED = 5.0  # the length of the recipe's records
TOLD = ("fedgd", "fedadam", "fedfc", "fedsofim")  # of the nine, the best on large data in the paper's protocol, or
# within 0.3 points of it, at every budget of docs/results/tuned-cifar10 and tuned-pathmnist: there only they are tried
MANY = 10_000  # training records; with fewer, results vary: more seeds and more steps


def main() -> None:
    args = arguments()
    table = tomllib.loads((HERE / "cells.toml").read_text())
    cells = [c | {"epsilon": e} for c in table["cells"] for e in c["epsilons"] if args.only in (None, c["data"])]
    args.out.mkdir(parents=True, exist_ok=True)
    journal = args.out / "cells.jsonl"
    mend(journal)
    done = [json.loads(line)["cell"] for line in journal.read_text().splitlines()] if journal.exists() else []
    todo = [cell for cell in cells if named(cell) not in done]
    signal.signal(signal.SIGTERM, stop)
    work = partial(measured_apart, folders=tuple(args.data), table=table)
    # Each cell in a process of its own: what XLA compiles for some dozens of them is more than one process may map.
    pool = ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1)
    with progress_bar("regret", len(cells)) as progress, pool:
        for i, found in enumerate(pool.map(work, todo), start=len(cells) - len(todo) + 1):
            append(journal, found)
            progress.at(i)


def stop(*_: object) -> None:
    for process in active_children():
        process.terminate()
    sys.exit("stopped")


def measured_apart(cell: dict[str, Any], folders: tuple[Path, ...], table: dict[str, Any]) -> dict[str, Any]:
    """A cell in a process of its own, beside others."""
    return measure(cell, read(cell["data"], folders), table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="a folder of NAME.npz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="one dataset's cells")
    parser.add_argument("--jobs", type=int, default=2, help="cells side by side")
    return parser.parse_args()


@lru_cache(maxsize=1)  # one at a time in memory
def read(name: str, folders: tuple[Path, ...]) -> Dataset:
    """A dataset by its own name, or a file in one of the folders."""
    found = [folder / f"{name}.npz" for folder in folders if (folder / f"{name}.npz").exists()]
    return read_dataset(str(found[0].resolve()) if found else name)


def named(cell: dict[str, Any]) -> str:
    """A cell's name in tables and in the journal."""
    kind = cell.get("kind", "dirichlet")
    return f"{cell['data']}, {cell['clients']} clients, {kind}, {cell['trust']}, epsilon {cell['epsilon']:g}"


def measure(cell: dict[str, Any], data: Dataset, table: dict[str, Any]) -> dict[str, Any]:
    """Everything about one cell."""
    began = time.perf_counter()
    partition = Partition(cell.get("kind", "dirichlet"), cell["clients"])
    split = partition.deal(data)
    found = {protocol: searched(protocol, cell, split, table["delta"]) for protocol in ("paper", "auto")}
    best = max(f.accuracy for some in found.values() for f in some)
    runs = {"recipe": finals("auto", "fedsofim", {}, cell, partition, split, table)}
    for protocol, some in found.items():
        for f in some:
            if f.accuracy >= best - NEAR[len(data.y_train) <= MANY]:
                runs[f"{f.method} ({protocol})"] = finals(protocol, f.method, f.settings, cell, partition, split, table)
    return {
        "cell": named(cell),
        **cell,
        "records": len(data.y_train),
        "features": data.x_train.shape[1],
        "classes": data.classes,
        "test_records": len(data.y_test),
        "majority": round(100 * float(np.bincount(data.y_test).max()) / len(data.y_test), 2),
        "searched": {f"{f.method} ({p})": f._asdict() for p, some in found.items() for f in some},
        "accuracy": {name: [round(r["accuracy"][-1], 3) for r in rows] for name, rows in runs.items()},
        "mcnemar": against(runs, data),
        "preparation": runs["recipe"][0]["preparation"],
        "rounds": runs["recipe"][0]["rounds"],
        "round20": [round(r["accuracy"][19], 3) for r in runs["recipe"]],
        "seconds": round(time.perf_counter() - began, 1),
    }


def searched(protocol: str, cell: dict[str, Any], split: Split, delta: float) -> list[Found]:
    """The nine methods' best settings in a protocol, on a tenth of the training records."""
    held = held_out(split, Search())
    x = split.dataset.x_train
    length = PREPARED if protocol == "auto" else float(np.median(np.linalg.norm(x.astype(np.float64), axis=1)))
    how = {"recipe": protocol, "trust": cell["trust"], "rounds": None}
    seeds, steps = ((0,), FEWER) if len(x) > MANY else ((0, 1, 2), STEPS)
    budget, some = budget_at(cell["epsilon"], delta), forms(protocol, length)
    names = dict.fromkeys(form.method for form in some)
    names = [n for n in names if n in TOLD or protocol == "auto" or len(x) <= MANY]
    return [best_of([f for f in some if f.method == name], steps, held, budget, seeds, how) for name in names]


def finals(
    recipe: str,
    method: str,
    settings: dict[str, Any],
    cell: dict[str, Any],
    partition: Partition,
    split: Split,
    table: dict[str, Any],
) -> list[dict[str, Any]]:
    """Five runs or twenty on all training records, scored on the test records."""
    point = Point(
        dataset=cell["data"],
        digest=digest(split.dataset),
        partition=partition,
        label=method,
        method=method,
        settings=settings,
        epsilon=cell["epsilon"],
        delta=table["delta"],
        seed=0,
        recipe=recipe,
        rounds=None,
        clip=None,
        trust=cell["trust"],
        weights=None,
        model=HEAD,
    )
    seeds = table["seeds"] if len(split.dataset.y_train) > MANY else range(4 * len(table["seeds"]))
    return [run_point(replace(point, seed=seed), split) for seed in seeds]


def against(runs: dict[str, list[dict[str, Any]]], data: Dataset) -> dict[str, Any]:
    """McNemar's test of the recipe against the best of the others by test accuracy, seed by seed."""
    others = {name: np.mean([r["accuracy"][-1] for r in rows]) for name, rows in runs.items() if name != "recipe"}
    rival = max(others, key=lambda name: others[name])
    tests = [
        paired(from_text(mine["predictions"]), from_text(theirs["predictions"]), data.y_test)
        for mine, theirs in zip(runs["recipe"], runs[rival], strict=True)
    ]
    return {"rival": rival, "n10": [t.n10 for t in tests], "n01": [t.n01 for t in tests], "p": [t.p for t in tests]}


if __name__ == "__main__":
    main()
