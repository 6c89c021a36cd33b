"""The tables of equally tuned methods in docs/results/README.md, from the accuracies that are kept of their grids.

fedsofim compare experiments/tuned-cifar10.toml --out runs/tuned-cifar10
fedsofim report runs/tuned-cifar10
python experiments/collect.py runs/tuned-cifar10
python experiments/tuned_tables.py tuned-cifar10
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pages  # pyright: ignore[reportMissingImports]

NAMES = ("tuned-cifar10", "tuned-pathmnist")
LAST, OURS = "round 70", "DP-FedSOFIM (momentum)"


def accuracies(folder: Path) -> str:
    """Accuracy after the last round by method and budget, mean ± sample standard deviation over seeds; each budget's
    highest mean is bold."""
    rows = kept(folder, "accuracy")
    best = {e: max(mean(row) for row in rows if row["ε"] == e) for e in epsilons(rows)}
    return by_budget(LAST, rows, "method", lambda row: bold(row[LAST], mean(row) == best[row["ε"]]))


def differences(folder: Path) -> str:
    """What DP-FedSOFIM has more than each of the others, in points, paired by seed; bold where the 95 % interval leaves
    out 0."""
    rows = [row for row in kept(folder, "differences") if row["method"] == OURS]
    clear = {"ahead", "behind"}
    return by_budget(f"{OURS} less", rows, "against", lambda row: bold(row["difference"], row["verdict"] in clear))


def kept(folder: Path, table: str) -> list[dict[str, str]]:
    (path,) = (folder / "tables").glob(f"{table}-*.csv")
    return pages.rows_in(path)


def by_budget(words: str, rows: list[dict[str, str]], name: str, cell: Callable[[dict[str, str]], str]) -> str:
    """A line for each name, a column for each budget."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        lines.setdefault(row[name], [row[name]]).append(cell(row))
    return pages.markdown([words, *(f"ε = {e}" for e in epsilons(rows))], lines.values())


def epsilons(rows: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(row["ε"] for row in rows))


def bold(text: str, really: bool) -> str:
    return f"**{text}**" if really else text


def mean(row: dict[str, str]) -> float:
    """
    >>> mean({"round 70": "59.27 ± 0.77"})
    59.27
    """
    return float(row[LAST].split(" ± ")[0])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        pages.keep(name, accuracies(pages.path_of(name).parent))
        pages.keep(f"{name}/differences", differences(pages.path_of(name).parent))
