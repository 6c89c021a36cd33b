"""How well each task is learned: real records that come with scikit-learn, the recipe with nothing tuned.

    python experiments/tasks.py runs/tasks.jsonl

One line a run, flushed before the next begins; finished ones are not run again. At the end docs/results/tasks and
docs/tasks.md have the table: least and largest of the seeds.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # where the records are

import pages  # pyright: ignore[reportMissingImports]

import fedsofim as fs
from answers import dealt  # pyright: ignore[reportMissingImports]
from fedsofim.core.budget import WITHOUT
from fedsofim.experiments.journal import append, mend, read_lines
from fedsofim.progress import progress_bar

KINDS = {  # what stands in the table, and the measures that do
    "two-classes": ("breast cancer, `two-classes`", ("accuracy", "auc")),
    "labels": ("digits as ten `labels`", ("accuracy", "auc")),
    "numbers": ("diabetes, `numbers` from 0 to 400", ("rmse",)),
    "counts": ("one pixel of digits, `counts` to 16", ("rmse",)),
}
BUDGETS = (1.0, 5.0, WITHOUT)
SEEDS = (0, 1, 2)
NAMES = {"accuracy": "accuracy (%)", "auc": "AUC", "rmse": "RMSE"}


def measured(kind: str, epsilon: float | str, seed: int) -> list[dict[str, Any]]:
    """A row for each measure of one run."""
    split, budget = dealt(kind), fs.NO_PRIVACY if epsilon == WITHOUT else fs.Budget(float(epsilon), 1e-5)
    found = fs.train(split, budget=budget, seed=seed, every=1000).metrics
    facts = {"kind": kind, "records": len(split.dataset.y_train), "epsilon": epsilon, "seed": seed}
    pairs = {name: (found.values[name], found.baseline[name]) for name in KINDS[kind][1]}
    return [
        {**facts, "measure": name, "value": round(value, 4), "constant": round(constant, 4)}
        for name, (value, constant) in pairs.items()
        if value is not None and constant is not None
    ]


def main(journal: Path) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    mend(journal)
    lines = list(read_lines(journal)) if journal.exists() else []
    known = {tuple(line["run"]) for line in lines}
    todo = [run for run in itertools.product(KINDS, BUDGETS, SEEDS) if run not in known]
    with progress_bar("tasks", len(todo)) as bar:
        for number, run in enumerate(todo, 1):
            lines.append({"run": run, "rows": measured(*run)})
            append(journal, lines[-1])
            bar.at(number)
    rows = [row for line in lines for row in line["rows"]]
    pages.keep("tasks", markdown(rows), rows)


def markdown(rows: list[dict[str, Any]]) -> str:
    """A line for each task and measure, of rows as they are kept."""
    head = ["data", "records trained on", "measure", "ε = 1", "ε = 5", "without noise", "constant answer"]
    lines = []
    for kind, (words, measures) in KINDS.items():
        for name in measures:
            mine = [row for row in rows if row["kind"] == kind and row["measure"] == name]
            by_budget = {str(e): [float(r["value"]) for r in mine if str(r["epsilon"]) == str(e)] for e in BUDGETS}
            first = [words, f"{int(mine[0]['records']):,}"] if name == measures[0] else ["", ""]
            values = [spread(name, found) for found in by_budget.values()]
            lines.append([*first, NAMES[name], *values, spread(name, [float(mine[0]["constant"])])])
    return pages.markdown(head, lines)


def spread(name: str, values: list[float]) -> str:
    """Least and largest, to three digits or so; one number where they are equal.

    >>> spread("rmse", [72.63, 79.31]), spread("auc", [0.5])
    ('72.6 to 79.3', '0.500')
    """
    digits = 3 if name == "auc" else 1 if max(values) >= 10 else 2
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
