"""The regret table and its picture, from the journals of regret.py.

    python experiments/recipe/regret_table.py runs/recipe/regret --out docs/results/recipe-regret

Regret is what the best rival has more than the recipe, in points of test accuracy. Two rivals: `best`, the best on the
*test* records of all tuned methods (an unfair one: chosen with knowledge of the answer, so some regret is luck), and
`picked`, the one that was best on the validation records it was tuned on, which is what tuning would have given.
"""

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from fedsofim.files import write_text

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [line for folder in args.folders for line in (folder / "cells.jsonl").read_text().splitlines()]
    rows = [row_of(json.loads(line)) for line in lines]
    write_text(args.out / "cells.csv", as_csv(rows))
    write_text(args.out / "searched.jsonl", "\n".join(searched(json.loads(line)) for line in lines) + "\n")
    write_text(args.out / "README.md", page(rows))
    draw(rows, args.out / "regret.png")


def row_of(cell: dict[str, Any]) -> Row:
    """One cell's numbers."""
    means = {name: float(np.mean(values)) for name, values in cell["accuracy"].items()}
    mine = cell["accuracy"]["recipe"]
    others = {name: mean for name, mean in means.items() if name != "recipe"}
    best = max(others, key=lambda name: others[name])
    picked = max(others, key=lambda name: cell["searched"][name]["accuracy"])
    by_seed = np.subtract(cell["accuracy"][best], mine)
    won, lost = (sum(p < 0.05 and sign * (a - b) > 0 for p, a, b in _tests(cell)) for sign in (1, -1))
    return {
        "dataset": cell["data"],
        "records": cell["records"],
        "features": cell["features"],
        "classes": cell["classes"],
        "clients": cell["clients"],
        "split": cell.get("kind", "dirichlet"),
        "trust": cell["trust"],
        "epsilon": cell["epsilon"],
        "majority": cell["majority"],
        "recipe": round(means["recipe"], 2),
        "recipe_std": round(float(np.std(mine, ddof=1)), 2),
        "seeds": len(mine),
        "best": best,
        "best_accuracy": round(others[best], 2),
        "regret": round(others[best] - means["recipe"], 2),
        "regret_error": round(float(by_seed.std(ddof=1) / np.sqrt(len(by_seed))), 2),
        "picked": picked,
        "picked_accuracy": round(others[picked], 2),
        "regret_picked": round(others[picked] - means["recipe"], 2),
        "best_of_paper": _best_in(others, "paper"),
        "mcnemar_won": won,
        "mcnemar_lost": lost,
    }


def _tests(cell: dict[str, Any]) -> list[tuple[float, int, int]]:
    found = cell["mcnemar"]
    return list(zip(found["p"], found["n10"], found["n01"], strict=True))


def _best_in(others: dict[str, float], protocol: str) -> float | str:
    """The best tuned accuracy in a protocol; '' if none came near the best on validation records."""
    values = [mean for name, mean in others.items() if name.endswith(f"({protocol})")]
    return round(max(values), 2) if values else ""


def searched(cell: dict[str, Any]) -> str:
    """What the search found in a cell, and what each reached in the end, as one line."""
    return json.dumps({k: cell[k] for k in ("cell", "searched", "accuracy", "mcnemar", "preparation", "rounds")})


def as_csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def page(rows: list[Row]) -> str:
    """The summary and the table, as Markdown."""
    lines = ["# Regret of the recipe", "", *(line.strip() for line in (__doc__ or "").splitlines()[4:]), ""]
    for name, key in (("best", "regret"), ("picked", "regret_picked")):
        values = np.array([row[key] for row in rows])
        lines.append(
            f"- against `{name}`: at most 1 point in {np.sum(values <= 1)} of {len(values)} cells, at most 3 in "
            f"{np.sum(values <= 3)}; median {np.median(values):.2f}, largest {values.max():.2f}, smallest "
            f"{values.min():.2f}"
        )
    lines += ["", "![regret by cell](regret.png)", "", _HEAD, "|---|---|---|--:|--:|--:|--:|--:|--:|---|"]
    return "\n".join(lines + [_line(row) for row in rows]) + "\n"


_HEAD = (
    "| dataset (records x features, classes) | clients, split, trust | ε | majority | recipe | best | regret | picked "
    "| regret | McNemar won/lost |"
)


def _line(r: Row) -> str:
    data = f"{r['dataset']} ({r['records']:,} x {r['features']}, {r['classes']})"
    return (
        f"| {data} | {r['clients']}, {r['split']}, {r['trust']} | {r['epsilon']:g} | {r['majority']:.1f} "
        f"| {r['recipe']:.2f} ± {r['recipe_std']:.2f} | {r['best_accuracy']:.2f} {r['best']} "
        f"| **{r['regret']:+.2f}** ± {r['regret_error']:.2f} | {r['picked_accuracy']:.2f} {r['picked']} "
        f"| {r['regret_picked']:+.2f} | {r['mcnemar_won']}/{r['mcnemar_lost']} of {r['seeds']} |"
    )


def draw(rows: list[Row], path: Path) -> None:
    """One dot for each cell: regret against the best on test records, with its error over seeds."""
    rows = sorted(rows, key=lambda r: r["regret"])
    fig, ax = plt.subplots(figsize=(8, 0.19 * len(rows) + 1.2))
    y = np.arange(len(rows))
    ax.axvspan(-100, 1, color="#e8f1e8", zorder=0)
    ax.axvline(0, color="#666", lw=0.8)
    ax.errorbar(
        [r["regret"] for r in rows], y, xerr=[r["regret_error"] for r in rows], fmt="o", ms=4, lw=0.8, color="#1f5a99"
    )
    labels = [f"{r['dataset']}, {r['clients']} {r['split']}, {r['trust']}, ε {r['epsilon']:g}" for r in rows]
    ax.set_yticks(y, labels, fontsize=7)
    ax.set_xlim(min(-4.0, min(r["regret"] for r in rows) - 0.5), max(4.0, max(r["regret"] for r in rows) + 1))
    ax.set_ylim(-0.8, len(rows) - 0.2)
    ax.set_xlabel("points by which the best tuned method is ahead (test)")
    fig.tight_layout()
    fig.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
