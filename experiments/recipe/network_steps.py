"""How near the recipe's step is to the best one for an MLP, on validation records: docs/results/network-steps.

    python experiments/recipe/network_steps.py runs/network-steps.jsonl

Every step of a run is multiplied by a factor, all else is the recipe's. Training records are held out to score on; the
test records are not read. One line a run, flushed before the next begins; finished ones are not run again.
"""

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ablation import stretched  # pyright: ignore[reportMissingImports]
from pages import keep, markdown  # pyright: ignore[reportMissingImports]
from tables import cell  # pyright: ignore[reportMissingImports]

import fedsofim as fs
from fedsofim import methods
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split
from fedsofim.experiments.journal import append, mend, read_lines
from fedsofim.progress import progress_bar
from fedsofim.simulation.training import choices_for

CELLS = (  # dataset, training records, validation records, clients, hidden units, epsilon
    ("digits", 1_137, 300, 4, 32, 5.0),
    ("fashion", 12_000, 10_000, 20, 64, 2.0),
    ("fashion", 25_000, 10_000, 20, 64, 5.0),
    ("fashion", 50_000, 10_000, 20, 64, 5.0),
)
FACTORS = (0.25, 1.0, 2.0)
SEEDS = (0, 1, 2)


def parts(data: Dataset, training: int, validation: int, clients: int) -> Split:
    """So many training records dealt out evenly, to be scored on others of them."""
    order = np.random.default_rng(0).permutation(len(data.y_train))
    train, held = np.sort(order[:training]), np.sort(order[training : training + validation])
    some = replace(
        data, x_train=data.x_train[train], y_train=data.y_train[train], x_test=data.x_train[held],
        y_test=data.y_train[held],
    )  # fmt: skip
    return fs.split(some, clients=clients, iid=True)


def measured(place: int, factor: float, seed: int) -> dict[str, Any]:
    name, training, validation, clients, hidden, epsilon = CELLS[place]
    split, model = parts(fs.load(name), training, validation, clients), fs.mlp((hidden,))
    budget, how = fs.Budget(epsilon, 1e-5), {"model": model, "trust": "secure-sum"}
    chosen = choices_for(split, budget, recipe="auto", **how)
    method = stretched(methods.make(chosen.method, dict(chosen.settings), epsilon), factor)
    run = fs.train(split, method, budget, seed=seed, every=1000, **how)
    numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(run.params))
    return {
        "dataset": name, "training": training, "hidden": hidden, "epsilon": epsilon, "rounds": chosen.rounds,
        "noise": f"{run.plan.noise_std * numbers**0.5 / chosen.clip:.2g}", "factor": factor, "seed": seed,
        "accuracy": round(run.accuracy, 2),
    }  # fmt: skip


def main(journal: Path) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    mend(journal)
    rows = list(read_lines(journal)) if journal.exists() else []
    known = {(row["dataset"], row["training"], row["factor"], row["seed"]) for row in rows}
    asked = ((place, f, s) for place in range(len(CELLS)) for f, s in itertools.product(FACTORS, SEEDS))
    todo = [(place, f, s) for place, f, s in asked if (*CELLS[place][:2], f, s) not in known]
    with progress_bar("network steps", len(todo)) as bar:
        for number, run in enumerate(todo, 1):
            rows.append(measured(*run))
            append(journal, rows[-1])
            bar.at(number)
    keep("network-steps", table(rows), rows)


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracy on validation records by cell and factor; of rows as they are kept."""
    head = ["training records", "ε", "rounds", "a round's noise / clip", *(f"steps x {f:g}" for f in FACTORS)]
    lines = []
    for name, training, _, _, hidden, epsilon in CELLS:
        mine = [r for r in rows if r["dataset"] == name and int(r["training"]) == training]
        if not mine:
            continue  # a stopped run has not come to it
        found = [[float(r["accuracy"]) for r in mine if float(r["factor"]) == f] for f in FACTORS]
        facts = [f"{training:,} of {name}, {hidden} hidden units", f"{epsilon:g}", str(mine[0]["rounds"])]
        lines.append([*facts, str(mine[0]["noise"]), *(cell(values, len(SEEDS)) for values in found)])
    return markdown(head, lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
