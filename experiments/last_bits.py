"""Which of the paper's runs say something to their digits: docs/results/last-bits.

    python experiments/last_bits.py runs/last-bits --source FEATURES

The paper's grids on CIFAR-10, and the tuned one on PathMNIST, are run twice, the second time with a clip that is larger
by a millionth of itself: next to the noise that is nothing, and about what machines and libraries differ by. What
converges forgets it. Where accuracies move by points, a run's last digits are those of its roundings.
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pages  # pyright: ignore[reportMissingImports]

from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.report.results import read_results
from fedsofim.experiments.runner import Conduct, run_experiment

NAME = "last-bits"
HERE = Path(__file__).resolve().parent
FILES = (*(f"paper-cifar10-{what}" for what in ("noniid", "ablation", "rho")), "tuned-pathmnist")
CLIP, LARGER = 10.0, 1 + 1e-6  # the paper's
ROUNDS = (1, 10, 20, 40, 70)
COLUMNS = ("experiment", "method", "round", "runs", "largest")


def measured(out: Path, source: Path | None) -> list[dict[str, Any]]:
    return [row for file in FILES for row in differences(file, accuracies(file, 1.0, out, source),
                                                         accuracies(file, LARGER, out, source))]  # fmt: skip


def accuracies(file: str, larger: float, out: Path, source: Path | None) -> dict[tuple[str, float, int], list[float]]:
    """Of every run of a grid, after ROUNDS."""
    experiment = read_experiment(HERE / f"{file}.toml")
    folder = out / f"{file}-{'as-it-is' if larger == 1 else 'larger'}"
    run_experiment(replace(experiment, clip=CLIP * larger), folder, HERE, Conduct(source, again=True))
    runs = read_results(folder).runs
    return {(r.method, r.epsilon, r.seed): [float(r.trace.score[t - 1]) for t in ROUNDS] for r in runs}


def differences(file: str, first: dict, second: dict) -> list[dict[str, Any]]:
    """The largest of any budget and seed, by method and round.

    >>> one = {("DP-FedGD", 1.0, seed): [10.0 + seed] * 5 for seed in (0, 1)}
    >>> differences("grid", one, {key: [11.0] * 5 for key in one})[0]
    {'experiment': 'grid', 'method': 'DP-FedGD', 'round': 1, 'runs': 2, 'largest': 1.0}
    """
    rows = []
    for method in dict.fromkeys(method for method, *_ in first):
        mine = [key for key in first if key[0] == method]
        for i, t in enumerate(ROUNDS):
            largest = max(abs(first[key][i] - second[key][i]) for key in mine)
            rows.append(dict(zip(COLUMNS, (file, method, t, len(mine), round(largest, 4)), strict=True)))
    return rows


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        at = (str(row["method"]), f"`{row['experiment']}`", str(row["runs"]))
        found.setdefault(at, {})[int(row["round"])] = float(row["largest"])
    lines = [[*at, *(f"{by[t]:.2f}" for t in ROUNDS)] for at, by in found.items()]
    return pages.markdown(["method", "grid", "runs", *(f"round {t}" for t in ROUNDS)], lines, left=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the runs are kept")
    parser.add_argument("--source", type=Path, default=None, help="a folder of features")
    given = parser.parse_args()
    rows = measured(given.out, given.source)
    pages.keep(NAME, markdown(rows), rows)
