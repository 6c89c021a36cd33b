"""What tuning buys at its price: a run untuned, tuned privately, and tuned by a search that nobody counts.

    python experiments/private_tuning.py runs/private-tuning.jsonl

Same records, same total epsilon; test accuracy. Where the recipe chooses the step itself, on two datasets, and where a
step was taken over from other data. One line a seed, flushed before the next begins; finished ones are not run again.
Writes docs/results/private-tuning/.
"""

import itertools
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pages import keep

import fedsofim as fs
from fedsofim.core.budget import Budget
from fedsofim.experiments.grid_file import read_experiment, read_toml
from fedsofim.experiments.journal import append, mend, read_lines
from fedsofim.experiments.private_tuning import planned_search, search_privately
from fedsofim.experiments.tuning import Search, Trials, Tuning, best, held_out
from fedsofim.progress import progress_bar
from fedsofim.recipes import settings_in

HERE = Path(__file__).resolve().parent
COLUMNS: tuple[str, ...] = ("case", "epsilon", "seed", "way", "test accuracy", "settings", "search")
EPSILONS, SEEDS = (2.0, 5.0), (0, 1, 2)
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


def main(journal: Path) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    mend(journal)
    lines = list(read_lines(journal)) if journal.exists() else []
    known = {tuple(line["run"]) for line in lines}
    with progress_bar("private tuning", len(CASES) * len(EPSILONS) * len(SEEDS)) as bar:
        for number, (case, epsilon, seed) in enumerate(itertools.product(CASES, EPSILONS, SEEDS), 1):
            if (case.name, epsilon, seed) not in known:
                lines.append(measured(case, epsilon, seed))
                append(journal, lines[-1])
            bar.at(number)
    _write([(*line["run"], *row) for line in lines for row in line["rows"]])


def measured(case: Case, epsilon: float, seed: int) -> dict[str, Any]:
    """A line of the journal: one seed, every way."""
    described = read_experiment(HERE / case.file)
    split = described.partitions[0].deal(fs.load(described.datasets[0]))
    rows = _ways(case, replace(described, epsilons=(epsilon,)), split, seed)
    told = [(way, float(accuracy), str(settings), search) for way, accuracy, settings, search in rows]
    return {"run": (case.name, epsilon, seed), "rows": told}


def _ways(case, experiment, split, seed):
    search, (entry,), (epsilon,) = Search("grid", 40, seed, 0.1), experiment.entries, experiment.epsilons
    grid = read_toml(HERE / case.file)["methods"][entry.label]["search"]
    same = {"budget": Budget(epsilon), "recipe": experiment.recipe, "seed": seed}
    untuned = fs.train(split, fs.make(entry.method, case.untuned) if case.untuned else None, **same)
    yield "untuned", untuned.accuracy, "", ""
    if case.untuned:
        yield AUTOMATIC, fs.train(split, fs.make(entry.method), **same).accuracy, "", ""
    scratch = Path(tempfile.mkdtemp()) / "trials.jsonl"
    winner = best(Tuning(experiment, search, held_out(split, search), Trials(scratch)), entry, epsilon, grid)
    chosen = fs.make(entry.method, settings_in(untuned.chosen, entry.method, winner.settings))
    run = fs.train(split, chosen, **same)
    yield "plain tune, its search not counted", run.accuracy, winner.settings, ""
    job = planned_search(experiment, search, {entry.label: grid}, None)
    found = search_privately(job, search, HERE)
    yield "private tune", found.model.facts["result"]["final_accuracy"], found.settings, str(job.way)


def _write(rows) -> None:
    kept = [dict(zip(COLUMNS, [*row[:4], f"{row[4]:.4f}", *row[5:]], strict=True)) for row in rows]
    keep("private-tuning", table([(*row[:4], round(row[4], 4)) for row in rows]), kept)


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
    main(Path(sys.argv[1]))
