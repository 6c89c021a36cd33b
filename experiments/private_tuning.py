"""What tuning buys at its price: the recipe untuned, tuned privately, and tuned by a search that nobody counts.

    python experiments/private_tuning.py [seeds]

Same records, same total epsilon; test accuracy. Writes docs/results/private-tuning/.
"""

import csv
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedsofim as fs
from fedsofim.core.budget import Budget
from fedsofim.experiments.grid_file import read_experiment, read_toml
from fedsofim.experiments.private_tuning import planned_search, search_privately
from fedsofim.experiments.tuning import Search, Trials, Tuning, best, held_out

HERE = Path(__file__).resolve().parent
FILE, OUT = HERE / "private-tuning.toml", HERE.parent / "docs" / "results" / "private-tuning"
EPSILONS = (2.0, 5.0)


def main(seeds: int) -> None:
    described, rows = read_experiment(FILE), []
    grid = read_toml(FILE)["methods"]["DP-FedSOFIM"]["search"]
    split = described.partitions[0].deal(fs.load("digits"))
    for epsilon in EPSILONS:
        experiment = replace(described, epsilons=(epsilon,))
        for seed in range(seeds):
            rows += [(epsilon, seed, *row) for row in _ways(experiment, split, grid, epsilon, seed)]
            print(*rows[-3:], sep="\n", flush=True)
    _write(rows)


def _ways(experiment, split, grid, epsilon, seed):
    search, (entry,) = Search("grid", 40, seed, 0.1), experiment.entries
    untuned = fs.train(split, budget=Budget(epsilon), seed=seed)
    yield "untuned", untuned.final_accuracy, "", ""
    scratch = Path(tempfile.mkdtemp()) / "trials.jsonl"
    winner = best(Tuning(experiment, search, held_out(split, search), Trials(scratch)), entry, epsilon, grid)
    chosen = fs.make("fedsofim", {**dict(untuned.chosen.settings), **winner.settings})
    run = fs.train(split, chosen, Budget(epsilon), seed=seed)
    yield "plain tune, its search not counted", run.final_accuracy, winner.settings, ""
    job = planned_search(experiment, search, {entry.label: grid}, None)
    found = search_privately(job, search, HERE)
    yield "private tune", found.model.facts["result"]["final_accuracy"], found.settings, str(job.way)


def _write(rows) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["epsilon", "seed", "way", "test accuracy", "settings", "search"])
        writer.writerows([*row[:3], f"{row[3]:.4f}", *row[4:]] for row in rows)
    ways = list(dict.fromkeys(row[2] for row in rows))
    lines = ["| ε of everything | " + " | ".join(ways) + " |", "|---|" + "--:|" * len(ways)]
    for epsilon in EPSILONS:
        cells = []
        for way in ways:
            found = [row[3] for row in rows if row[0] == epsilon and row[2] == way]
            cells.append(f"{np.mean(found):.2f} ± {np.std(found, ddof=1):.2f}")
        lines.append(f"| {epsilon:g} | " + " | ".join(cells) + " |")
    (OUT / "table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
