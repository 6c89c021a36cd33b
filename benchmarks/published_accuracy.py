"""Rerun the paper's ResNet-20 tables: every method, preset and budget, 3 seeds, at round 70.

    python benchmarks/published_accuracy.py --features FEATURES --published PUBLISHED --out runs/a.csv

Neither the features ({cifar10,pathmnist}_resnet20.npz) nor the paper's accuracy.csv are part of the project. Rows
already in the output file are kept, so an interrupted run goes on where it stopped. At the end docs/results and
docs/methods.md have the table.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.core.budget import WITHOUT, Budget, in_words
from fedsofim.core.plan import Plan
from fedsofim.data.loading import load
from fedsofim.data.partition import Split, split
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

import pages  # pyright: ignore[reportMissingImports]

EPSILONS = (0.5, 1.0, 5.0, 10.0)
NAMES = {
    "fedgd": "DP-FedGD",
    "fedavg": "DP-FedAvg",
    "fedfc": "DP-FedFC",
    "scaffold": "DP-SCAFFOLD",
    "fedadam": "DP-FedAdam",
    "fedyogi": "DP-FedYogi",
    "ftrl": "DP-FTRL",
    "adafedprox": "DP-AdaFedProx",
    "fedsofim": "DP-FedSOFIM",
}
Case = tuple[str, str, dict[str, Any]]  # method, label of the variant, settings
CASES: list[Case] = [
    *((m, "true cost", {"preset": "paper-resnet20"}) for m in NAMES),
    ("fedsofim", "true cost, direction=gradient", {"preset": "paper-resnet20", "direction": "gradient"}),
    *((m, "as published", {"preset": "as_published"}) for m in ("ftrl", "scaffold", "fedfc")),
]
FIELDS = [
    "dataset",
    "method",
    "variant",
    "epsilon_claimed",
    "epsilon_spent",
    "releases",
    "multiplier",
    "sigma_g",
    "mean",
    "std",
    "seeds",
    "published_mean",
    "published_std",
]


def published(folder: Path) -> dict[tuple[str, str, float], tuple[str, str]]:
    """The paper's ResNet-20 non-IID accuracies at round 70."""
    with (folder / "accuracy.csv").open() as file:
        rows = list(csv.DictReader(file))
    wanted = {"backbone": "resnet20", "partition": "dirichlet", "round": "70"}
    rows = [r for r in rows if all(r[k] == v for k, v in wanted.items())]
    return {(r["dataset"], r["method"], float(r["epsilon"])): (r["mean"], r["std"]) for r in rows}


def measure(data: Split, plan: Plan, seeds: Iterable[int]) -> np.ndarray:
    """Test accuracy after the last round, per seed; a run that overflowed counts with what it predicts."""
    return np.array([simulate(plan, data, seed, every=plan.rounds)[1].accuracy[-1] for seed in seeds])


def row(data: Split, dataset: str, case: Case, epsilon: float, seeds: int, known: dict) -> dict:
    name, variant, settings = case
    plan = plan_for(data, make(name, settings, epsilon), Budget(epsilon, 1e-5), rounds=70)
    accuracy = measure(data, plan, range(seeds))
    main = plan.program.charges[0]
    mean, std = known[dataset, NAMES[name], epsilon]
    return dict(
        zip(
            FIELDS,
            [
                dataset,
                NAMES[name],
                variant,
                epsilon,
                in_words(float(f"{plan.epsilon:.4g}")),
                plan.releases,
                f"{plan.multipliers[main.site]:.4g}",
                f"{plan.sigma_g:.5g}",
                f"{accuracy.mean():.2f}",
                f"{accuracy.std():.2f}",
                seeds,
                mean,
                std,
            ],
            strict=True,
        )
    )


def save(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown(rows: list[dict]) -> str:
    """One line per dataset, method and variant: published → measured at each budget."""
    groups: dict[tuple[str, str, str], dict[float, dict]] = {}
    for r in rows:
        groups.setdefault((r["dataset"], r["method"], r["variant"]), {})[float(r["epsilon_claimed"])] = r
    lines = [(*key, *(cell(mine[e]) if e in mine else "" for e in EPSILONS)) for key, mine in groups.items()]
    head = ["dataset", "method", "variant", *(f"ε = {e:g}" for e in EPSILONS)]
    return pages.markdown(head, lines, left=len(head))


def cell(r: dict) -> str:
    eps = r["epsilon_spent"] if r["epsilon_spent"] == WITHOUT else f"eps {r['epsilon_spent']}"
    spent = "" if r["variant"] != "as published" else f" ({eps})"
    return f"{r['published_mean']} → {r['mean']} ± {r['std']}{spent}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", choices=["cifar10", "pathmnist"], action="append")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    known, rows = published(args.published), pages.rows_in(args.out) if args.out.exists() else []
    args.out.parent.mkdir(parents=True, exist_ok=True)
    have = {(r["dataset"], r["method"], r["variant"], float(r["epsilon_claimed"])) for r in rows}
    for dataset in args.dataset or ["cifar10", "pathmnist"]:
        data = split(load(args.features / f"{dataset}_resnet20.npz"), clients=20, alpha=0.5, seed=42)
        for case in CASES:
            for epsilon in EPSILONS:
                if (dataset, NAMES[case[0]], case[1], epsilon) not in have:
                    rows.append(row(data, dataset, case, epsilon, args.seeds, known))
                    save(args.out, rows)
    pages.keep("published-accuracy", markdown(rows), rows)


if __name__ == "__main__":
    main()
