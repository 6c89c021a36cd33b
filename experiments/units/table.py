"""The rows of the experiments on units of protection as one small table.

for f in experiments/units/*.toml; do fedsofim compare $f --out runs/$(basename $f .toml); done
python experiments/units/table.py runs docs/results/units
"""

import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

COLUMNS = ("experiment", "dataset", "clients", "protects", "epsilon", "seed", "rounds", "noise_std", "accuracy")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """What was asked and what came out, one line for each finished run."""
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    return [
        {
            "experiment": folder.name, "dataset": r["dataset"], "protects": _whom(r), "epsilon": r["epsilon"],
            "clients": 1000 if folder.name == "units-clients" else 20, "seed": r["seed"], "rounds": r["rounds"],
            "noise_std": f"{r['privacy']['noise_std']:.6g}", "accuracy": r["accuracy"][-1],
        }
        for r in lines
    ]  # fmt: skip


def _whom(row: dict[str, Any]) -> str:
    whom = row["whom"]
    return whom["unit"] if whom["records_per_person"] is None else f"{whom['unit']} of {whom['records_per_person']}"


def markdown(rows: list[dict[str, Any]]) -> str:
    """Accuracy by whom and budget: mean ± sample standard deviation over seeds, and how many there are."""
    cells: dict[tuple, dict[float, list[float]]] = {}
    for r in rows:
        cells.setdefault((r["clients"], r["protects"]), {}).setdefault(r["epsilon"], []).append(r["accuracy"])
    budgets = sorted({r["epsilon"] for r in rows})
    head = [
        f"| clients | protects | {' | '.join(f'ε = {e:g}' for e in budgets)} |",
        "|--:|---|" + "--:|" * len(budgets),
    ]
    order = sorted(cells, key=lambda cell: (cell[0], _size(cell[1])))
    body = [f"| {c:,} | {who} | {' | '.join(_cell(cells[c, who].get(e, [])) for e in budgets)} |" for c, who in order]
    return "\n".join([*head, *body]) + "\n"


def _size(who: str) -> int:
    """Of a unit, in records."""
    return int(who.rpartition(" ")[2]) if " " in who else 1


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    few = "" if len(values) == 3 else f" ({len(values)} seeds)"
    return f"{statistics.mean(values):.2f}{spread}{few}"


if __name__ == "__main__":
    runs, out = Path(sys.argv[1]), Path(sys.argv[2])
    found = [row for folder in sorted(runs.glob("units-*")) for row in rows_of(folder)]
    out.mkdir(parents=True, exist_ok=True)
    with (out / "rows.csv").open("w", newline="") as file:
        writer: Any = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    (out / "table.md").write_text(markdown(found))
    print(markdown(found))
