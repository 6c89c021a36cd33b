"""Small tables of finished experiments, into docs/results and into the pages that show them.

    fedsofim compare experiments/turns/turns-local.toml --out runs/turns-local
    python experiments/tables.py runs turns-local

For each NAME, docs/results/NAME gets `rows.csv` (one line a run) and `table.md` (accuracy after the last round, mean ±
sample standard deviation over seeds, by budget). A page of docs has the table between `<!-- table NAME -->` and
`<!-- end -->`. Without names: every table whose journals are all in RUNS.
"""

import csv
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
COLUMNS = ("experiment", "dataset", "clients", "what", "epsilon", "seed", "rounds", "noise_std", "accuracy")


@dataclass(frozen=True)
class Table:
    """Which journals it is made of, what stands over its rows, and what a row is called where nothing was chosen."""

    journals: tuple[str, ...]
    heading: str = ""
    plain: str = ""


TABLES = {
    "units": Table(("units-clients", "units-persons-2", "units-persons-5", "units-persons-10"), "protects", "record"),
    "turns-local": Table(("turns-local",), "method, clients in a round"),
    "turns-secure-sum": Table(("turns-secure-sum",), "clients in a round", "all"),
    "turns-chance": Table(("turns-chance",), "who takes part", "all"),
    "turns-chance-clients": Table(("turns-chance-clients",), "who takes part", "all"),
    "turns-gaps": Table(("turns-gaps-all", "turns-gaps"), "noise, clients in a round", "all"),
    "turns-batches": Table(("turns-batches",), "which records", "all"),
    "curvature-fashion": Table(("curvature-fashion",)),
    "curvature-cifar10-local": Table(("curvature-cifar10-local",)),
    "curvature-cifar10-secure-sum": Table(("curvature-cifar10-secure-sum",)),
    "local-steps-fashion": Table(("local-steps-fashion",)),
}


def rows_of(runs: Path, table: Table) -> list[dict[str, Any]]:
    """What was asked and what came out, one line for each finished run; records that two files protect, once."""
    found: dict[tuple, dict[str, Any]] = {}
    for name in table.journals:
        clients = json.loads((runs / name / "grid.json").read_text())["experiment"]["partitions"][0]["clients"]
        for r in map(json.loads, (runs / name / "runs.jsonl").read_text().splitlines()):
            row = {
                "experiment": name, "dataset": r["dataset"], "clients": clients, "what": _what(r, table),
                "epsilon": r["epsilon"], "seed": r["seed"], "rounds": r["rounds"],
                "noise_std": f"{r['privacy']['noise_std']:.6g}", "accuracy": r["accuracy"][-1],
            }  # fmt: skip
            found.setdefault((clients, row["what"], r["epsilon"], r["seed"]), row)
    return list(found.values())


def _what(run: dict[str, Any], table: Table) -> str:
    """A label without its method's name, where all have the same one.

    >>> _what({"label": "DP-FedSOFIM, 5 a round", "method": "fedsofim"}, Table((), "clients", "all"))
    '5 a round'
    >>> _what({"label": "DP-FedSOFIM", "method": "fedsofim"}, Table((), "clients", "all"))
    'all'
    """
    label = run["label"]
    if table.plain and label.startswith("DP-FedSOFIM"):
        return label.removeprefix("DP-FedSOFIM").removeprefix(", ") or table.plain
    return label


def markdown(rows: list[dict[str, Any]], table: Table) -> str:
    """Accuracy by row and budget; the clients' number where it varies."""
    cells: dict[tuple, dict[float, list[float]]] = {}
    for r in rows:
        cells.setdefault((r["clients"], r["what"]), {}).setdefault(r["epsilon"], []).append(r["accuracy"])
    budgets, seeds = sorted({r["epsilon"] for r in rows}), len({r["seed"] for r in rows})
    counted = len({clients for clients, _ in cells}) > 1
    head = [*(["clients"] if counted else []), table.heading, *(f"ε = {e:g}" for e in budgets)]
    lines = [head, [*(["--:"] if counted else []), "---", *("--:" for _ in budgets)]]
    for clients, what in sorted(cells, key=lambda c: (c[0], c[1] != table.plain)):
        values = [cell(cells[clients, what].get(e, []), seeds) for e in budgets]
        lines.append([*([f"{clients:,}"] if counted else []), what, *values])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace(" --- ", "---").replace(" --: ", "--:")


def cell(values: list[float], seeds: int) -> str:
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    few = "" if len(values) == seeds else f" ({len(values)} of {seeds} seeds)"
    return f"{statistics.mean(values):.2f}{spread}{few}"


def shown(page: str, name: str, table: str) -> str:
    """A page with the table where it shows one of this name."""
    begin = f"<!-- table {name} -->\n"
    before, found, rest = page.partition(begin)
    return page if not found else f"{before}{begin}{table}<!-- end -->{rest.partition('<!-- end -->')[2]}"


def keep(name: str, columns: Sequence[str], rows: list[dict[str, Any]], table: str, docs: Path = DOCS) -> None:
    """Its folder, and the pages that show it."""
    out = docs / "results" / name
    out.mkdir(parents=True, exist_ok=True)
    with (out / "rows.csv").open("w", newline="") as file:
        writer: Any = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (out / "table.md").write_text(table)
    for page in docs.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if (new := shown(text, name, table)) != text:
            page.write_text(new, encoding="utf-8")


def main(runs: Path, names: list[str]) -> None:
    for name in names or [n for n, t in TABLES.items() if all((runs / j / "runs.jsonl").exists() for j in t.journals)]:
        rows = rows_of(runs, TABLES[name])
        table = markdown(rows, TABLES[name])
        keep(name, COLUMNS, rows, table)
        print(f"{name}\n{table}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
