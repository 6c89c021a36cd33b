"""What strict clients cost the others: docs/results/unequal-budgets/table.md, from the rows that are kept there.

    fedsofim compare experiments/unequal-budgets.toml --out runs/unequal-budgets
    fedsofim report runs/unequal-budgets
    python experiments/collect.py runs/unequal-budgets
    python experiments/unequal_budgets.py

A label is "5 at 0.1, quiet": the first five clients have epsilon 0.1, the average's weights are quiet.
"""

import statistics
from pathlib import Path

import pages  # pyright: ignore[reportMissingImports]

NAME = "unequal-budgets"
HEAD = ("strict clients", "their part of the records")


def markdown(folder: Path) -> str:
    """Accuracy after the last round, mean ± sample standard deviation over seeds, by strict clients and weights."""
    (partition,) = (folder / "tables").glob("partition-*.csv")
    sizes = [int(row["total"]) for row in pages.rows_in(partition) if row["client"].isdigit()]
    rows = pages.rows_in(folder / "rows.csv")
    last = {(row["method"], row["seed"]): float(row["accuracy"]) for row in rows}  # rounds are in their order
    found: dict[str, dict[str, list[float]]] = {}
    for (label, _), accuracy in last.items():
        strict, weights = label.split(", ")
        found.setdefault(strict, {}).setdefault(weights, []).append(accuracy)
    names = list(next(iter(found.values())))
    lines = [
        [strict, part(strict, sizes), *(f"{statistics.mean(v):.2f} ± {statistics.stdev(v):.2f}" for v in by.values())]
        for strict, by in found.items()
    ]
    return pages.markdown([*HEAD, *(f"`{name}`" for name in names)], lines)


def part(strict: str, sizes: list[int]) -> str:
    """What the first so many clients hold of all records; nothing where all have one budget.

    >>> part("2 at 0.1", [10, 10, 60]), part("all at 5", [10, 10, 60])
    ('25.0 %', '')
    """
    many = strict.split()[0]
    return f"{100 * sum(sizes[: int(many)]) / sum(sizes):.1f} %" if many.isdigit() else ""


if __name__ == "__main__":
    pages.keep(NAME, markdown(pages.path_of(NAME).parent))
