"""What tuning buys at its price: a run untuned, tuned privately, and tuned by a search that nobody counts.

    python experiments/private_tuning.py [seeds]

Same records, same total epsilon; test accuracy. Where the recipe chooses the step itself, on two datasets, and where a
step was taken over from other data. Writes docs/results/private-tuning/.
"""

import csv
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import fedsofim as fs
from fedsofim.core.budget import Budget
from fedsofim.experiments.grid_file import read_experiment, read_toml
from fedsofim.experiments.private_tuning import planned_search, search_privately
from fedsofim.experiments.tuning import Search, Trials, Tuning, best, held_out
from fedsofim.recipes import settings_in

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "docs" / "results" / "private-tuning"
EPSILONS = (2.0, 5.0)
AUTOMATIC = "automatic step"


@dataclass(frozen=True)
class Case:
    """An experiment's file, its name in the table, and what a run has that nobody tuned; nothing: automatic steps."""

    name: str
    file: str
    untuned: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case("digits, the recipe", "private-tuning.toml"),
    Case("Fashion-MNIST, the recipe", "private-tuning-fashion.toml"),
    Case("Fashion-MNIST, the paper's step", "private-tuning-fixed-step.toml", {"lr": 0.1}),
)


def main(seeds: int) -> None:
    rows = []
    for case in CASES:
        described = read_experiment(HERE / case.file)
        split = described.partitions[0].deal(fs.load(described.datasets[0]))
        for epsilon in EPSILONS:
            experiment = replace(described, epsilons=(epsilon,))
            for seed in range(seeds):
                rows += [(case.name, epsilon, seed, *row) for row in _ways(case, experiment, split, seed)]
                print(*rows[-4:], sep="\n", flush=True)
    _write(rows)


def _ways(case, experiment, split, seed):
    search, (entry,), (epsilon,) = Search("grid", 40, seed, 0.1), experiment.entries, experiment.epsilons
    grid = read_toml(HERE / case.file)["methods"][entry.label]["search"]
    same = {"budget": Budget(epsilon), "recipe": experiment.recipe, "seed": seed}
    untuned = fs.train(split, fs.make(entry.method, case.untuned) if case.untuned else None, **same)
    yield "untuned", untuned.final_accuracy, "", ""
    if case.untuned:
        yield AUTOMATIC, fs.train(split, fs.make(entry.method), **same).final_accuracy, "", ""
    scratch = Path(tempfile.mkdtemp()) / "trials.jsonl"
    winner = best(Tuning(experiment, search, held_out(split, search), Trials(scratch)), entry, epsilon, grid)
    chosen = fs.make(entry.method, settings_in(untuned.chosen, entry.method, winner.settings))
    run = fs.train(split, chosen, **same)
    yield "plain tune, its search not counted", run.final_accuracy, winner.settings, ""
    job = planned_search(experiment, search, {entry.label: grid}, None)
    found = search_privately(job, search, HERE)
    yield "private tune", found.model.facts["result"]["final_accuracy"], found.settings, str(job.way)


def _write(rows) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "epsilon", "seed", "way", "test accuracy", "settings", "search"])
        writer.writerows([*row[:4], f"{row[4]:.4f}", *row[5:]] for row in rows)
    (OUT / "table.md").write_text(table([(*row[:4], round(row[4], 4)) for row in rows]))


def table(rows) -> str:
    """Mean and sample deviation over seeds, of (case, epsilon, seed, way, accuracy)."""
    ways = [*dict.fromkeys(row[3] for row in rows if row[3] != AUTOMATIC), AUTOMATIC]
    lines = ["| | ε of everything | " + " | ".join(ways) + " |", "|---|--:|" + "--:|" * len(ways)]
    for name, epsilon in dict.fromkeys((row[0], row[1]) for row in rows):
        found = [[row[4] for row in rows if row[:2] == (name, epsilon) and row[3] == way] for way in ways]
        cells = [f"{np.mean(f):.2f} ± {np.std(f, ddof=1):.2f}" if f else "as untuned" for f in found]
        lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
