"""A clip that finds itself beside fixed ones, on records held out of Fashion-MNIST's training records.

    python experiments/recipe/found_clips.py runs/found-clips.jsonl

One line a run, flushed before the next begins; finished ones are not run again. Steps are automatic. The test records
are not read. docs/results/found-clips gets the table, as do the pages that show it.
"""

import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pages  # pyright: ignore[reportMissingImports]
from tables import cell  # pyright: ignore[reportMissingImports]

import fedsofim as fs
from fedsofim.data.partition import Split
from fedsofim.experiments.tuning import Search, held_out
from fedsofim.progress import progress_bar

QUANTILES = (None, 0.5)
EPSILONS = (1.0, 10.0)
SEEDS = (0, 1, 2)
COLUMNS = ("cell", "epsilon", "quantile", "seed", "accuracy")


@dataclass(frozen=True)
class Cell:
    """A protocol and the clip it begins with; None: the recipe's own."""

    recipe: str
    clip: float | None
    hidden: int = 0  # units of a network; 0: the head

    @property
    def label(self) -> str:
        model = f"mlp of {self.hidden}" if self.hidden else "head"
        return f"{self.recipe}, {model}, clip {self.clip or 'of the recipe'}"


CELLS = (
    Cell("auto", None),
    Cell("paper", 1.0),
    Cell("paper", 100.0),
    Cell("paper", 10.0),
    Cell("auto", 0.3),
    Cell("auto", 30.0),
    Cell("auto", None, hidden=32),
)


def accuracy(split: Split, cell: Cell, epsilon: float, quantile: float | None, seed: int) -> float:
    settings: dict[str, Any] = {} if quantile is None else {"clip_quantile": quantile}
    how: dict[str, Any] = {"recipe": cell.recipe, "clip": cell.clip, "every": 40, "seed": seed}
    if cell.hidden:
        how["model"] = fs.mlp((cell.hidden,))
    if cell.recipe == "auto":
        settings |= {"rho": 0.09, "beta": 0.8, "bias_correction": True, "weight_decay": 0.0}  # as the recipe has it
    return fs.train(split, fs.fedsofim(**settings), fs.Budget(epsilon, 1e-5), 40, **how).accuracy


def main(out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {tuple(d[key] for key in COLUMNS[:-1]) for d in done}
    split = held_out(fs.split(fs.load("fashion"), clients=20, alpha=0.5), Search())
    todo = [a for a in itertools.product(CELLS, EPSILONS, QUANTILES, SEEDS) if (a[0].label, *a[1:]) not in known]
    with progress_bar("runs", len(todo)) as bar:
        for number, (cell, epsilon, quantile, seed) in enumerate(todo, 1):
            found = round(accuracy(split, cell, epsilon, quantile, seed), 2)
            done.append(dict(zip(COLUMNS, (cell.label, epsilon, quantile, seed, found), strict=True)))
            with out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            bar.at(number)
    pages.keep("found-clips", markdown(done), done)


def markdown(rows: list[dict[str, Any]]) -> str:
    """Held-out accuracy by where the clip begins, the budget, and whether it finds itself."""
    found: dict[tuple, list[float]] = {}
    for r in rows:
        found.setdefault((r["cell"], r["epsilon"], r["quantile"]), []).append(r["accuracy"])
    columns = list(itertools.product(EPSILONS, QUANTILES))
    names = [f"ε = {e:g}, {'fixed' if q is None else 'found'}" for e, q in columns]
    head = f"| recipe, model, clip | {' | '.join(names)} |\n|---|{'--:|' * len(names)}\n"
    lines = [(c.label, *(cell(found.get((c.label, *at), []), len(SEEDS)) for at in columns)) for c in CELLS]
    return head + "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
