"""What each part of the recipe buys, and how near its steps are to the best: docs/results/recipe-ablation.

    python experiments/recipe/ablation.py --data FEATURES --data runs/tables --runs runs/ablation

One part at a time is left out or exchanged, all else stays; test accuracy, five seeds, differences paired by seed. For
the steps, every step of a run is multiplied by a factor. Nothing is chosen here: the recipe's constants were fixed on
validation records before (docs/recipe.md). A cell that is in RUNS is not measured again.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from regret import read

import fedsofim as fs
from fedsofim import methods
from fedsofim.core.method import Method
from fedsofim.core.models import softmax_head
from fedsofim.core.preparation import Centred, ColumnScales, Step, UnitNorm, Whitened
from fedsofim.data.partition import Split
from fedsofim.files import write_text
from fedsofim.progress import progress_bar
from fedsofim.recipes import Choices
from fedsofim.simulation.training import choices_for

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(5)
FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)
CELLS = (  # dataset, clients, trust, epsilon
    ("cifar10_resnet20", 20, "local", 0.5),
    ("cifar10_resnet20", 20, "local", 10.0),
    ("cifar10_resnet20", 20, "secure-sum", 10.0),
    ("pathmnist_resnet20", 20, "local", 1.0),
    ("fashion", 20, "local", 0.5),
    ("fashion", 20, "local", 5.0),
    ("letter", 10, "local", 5.0),
    ("spam", 10, "secure-sum", 1.0),
    ("shuttle", 20, "local", 5.0),
    ("digits", 5, "local", 5.0),
)


def variants(chosen: Choices) -> dict[str, dict[str, Any]]:
    """Arguments of `train` for each part that is left out; a part that the recipe did not take is not listed."""
    steps = chosen.preparation

    def make(name: str, **settings: Any) -> Method:
        return methods.make(name, settings, 1.0)

    out: dict[str, dict[str, Any]] = {"recipe": {}}
    if isinstance(steps[0], ColumnScales):
        out["columns in their own units"] = {"preparation": steps[1:]}
    unit = next(s for s in steps if isinstance(s, UnitNorm))
    other = replace(unit, lift=not unit.lift)
    out["without square roots" if unit.lift else "with square roots"] = {"preparation": _exchanged(steps, unit, other)}
    if unit.constant:
        short = replace(unit, constant=False)
        out["length of records forgotten"] = {"preparation": _exchanged(steps, unit, short)}
    last = steps[-1]
    if isinstance(last, Whitened):
        out["centred, not whitened"] = {"preparation": _exchanged(steps, last, Centred(0.01))}
    out["unit norm, not centred (clip 1)"] = {"preparation": steps[:-1], "clip": 1.0}
    out["records as they come (clip 10)"] = {"preparation": (), "clip": 10.0}
    out["uniform weights"] = {"weights": "uniform"}
    out["random start"] = {"model": softmax_head(0.5)}
    out["20 rounds"] = {"rounds": 20}
    other_rounds = 70 if chosen.rounds == 40 else 40
    out[f"{other_rounds} rounds"] = {"rounds": other_rounds}
    out["DP-FedGD"] = {"method": make("fedgd")}
    out["DP-FedAdam"] = {"method": make("fedadam")}
    out["momentum alone"] = {"method": make("fedsofim", **{**chosen.settings, "variant": "ema-only"})}
    out["the paper's protocol (DP-FedSOFIM)"] = {"recipe": "paper"}
    return out


def _exchanged(steps: tuple[Step, ...], old: Step, new: Step) -> tuple[Step, ...]:
    return tuple(new if s is old else s for s in steps)


def stretched(method: Method, factor: float) -> Method:
    """A method whose every step is `factor` times as long; its state takes the same course on the same releases."""

    def server(mean: Any, state: Any, params: Any, facts: Any) -> tuple[Any, Any]:
        moved, state = method.server(mean, state, params, facts)
        return jax.tree.map(lambda a, b: a + factor * (b - a), params, moved), state

    return method._replace(server=server)


def measured(split: Split, budget: fs.Budget, trust: Any, **how: Any) -> list[float]:
    """Test accuracies of five seeds."""
    runs = (fs.train(split, budget=budget, trust=trust, seed=seed, every=1000, **how) for seed in SEEDS)
    return [round(run.accuracy, 3) for run in runs]


def cell(split: Split, budget: fs.Budget, trust: Any) -> dict[str, Any]:
    """Both tables' rows of one cell."""
    chosen = choices_for(split, budget, recipe="auto", trust=trust)
    parts = {name: measured(split, budget, trust, **how) for name, how in variants(chosen).items()}
    own = methods.make(chosen.method, dict(chosen.settings), budget.epsilon)
    steps = {f"{f:g}": measured(split, budget, trust, method=stretched(own, f)) for f in FACTORS if f != 1}
    return {"parts": parts, "steps": steps | {"1": parts["recipe"]}}


def main() -> None:
    args = arguments()
    for folder in (args.runs, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    kept = args.runs / "accuracies.json"
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    with progress_bar("ablation", len(CELLS)) as progress:
        for i, (name, clients, trust, epsilon) in enumerate(CELLS, start=1):
            label = f"{name}, {clients} clients, {trust}, epsilon {epsilon:g}"
            if label not in found:
                split = fs.split(read(name, tuple(args.data)), clients=clients)
                found[label] = cell(split, fs.Budget(epsilon), trust)
                write_text(kept, json.dumps(found, indent=1))
            progress.at(i)
    write_text(args.out / "accuracies.json", json.dumps(found, indent=1))
    write_text(args.out / "parts.md", parts_table(found))
    write_text(args.out / "steps.md", steps_table(found))


def parts_table(found: dict[str, Any]) -> str:
    """A row for each part, a column for each cell: points lost without it."""
    names = list(dict.fromkeys(name for cell in found.values() for name in cell["parts"] if name != "recipe"))
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "--:|" * len(found)]
    recipe = [
        f"{np.mean(c['parts']['recipe']):.2f} ± {np.std(c['parts']['recipe'], ddof=1):.2f}" for c in found.values()
    ]
    lines.append("| the recipe | " + " | ".join(recipe) + " |")
    for name in names:
        lines.append(f"| {name} | " + " | ".join(_difference(cell["parts"], name) for cell in found.values()) + " |")
    return "\n".join(lines) + "\n"


def _difference(parts: dict[str, list[float]], name: str) -> str:
    if name not in parts:
        return ""
    by_seed = np.subtract(parts[name], parts["recipe"])
    return f"{by_seed.mean():+.2f} ± {by_seed.std(ddof=1):.2f}"


def steps_table(found: dict[str, Any]) -> str:
    """A row for each cell: accuracy with every step multiplied by a factor, and the best factor."""
    names = [f"{f:g}" for f in FACTORS]
    lines = ["| steps times | " + " | ".join(names) + " | best | lost at 1 |", "|---|" + "--:|" * (len(names) + 2)]
    for label, cell in found.items():
        means = {name: float(np.mean(cell["steps"][name])) for name in names}
        best = max(means, key=lambda name: means[name])
        row = [f"{means[name]:.2f}" for name in names] + [best, f"{means[best] - means['1']:.2f}"]
        lines.append(f"| {label} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="a folder of NAME.npz")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "recipe-ablation")
    return parser.parse_args()


if __name__ == "__main__":
    main()
