"""A clip that finds itself beside fixed ones, on records held out of Fashion-MNIST's training records.

    python experiments/recipe/found_clips.py runs/found-clips.jsonl [CELLS]

One line a run, flushed before the next begins; finished ones are not run again. CELLS: how many of the cells below, in
their order. Steps are automatic. The test records are not read.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedsofim as fs
from fedsofim.data.partition import Split
from fedsofim.experiments.tuning import Search, held_out

QUANTILES = (None, 0.5)
EPSILONS = (1.0, 10.0)


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


def accuracy(split: Split, cell: Cell, epsilon: float, quantile: float | None) -> float:
    settings: dict[str, Any] = {} if quantile is None else {"clip_quantile": quantile}
    how: dict[str, Any] = {"recipe": cell.recipe, "clip": cell.clip, "every": 40}
    if cell.hidden:
        how["model"] = fs.mlp((cell.hidden,))
    if cell.recipe == "auto":
        settings |= {"rho": 0.09, "beta": 0.8, "bias_correction": True, "weight_decay": 0.0}  # as the recipe has it
    return fs.train(split, fs.fedsofim(**settings), fs.Budget(epsilon, 1e-5), 40, **how).final_accuracy


def main(out: Path, cells: int = len(CELLS)) -> None:
    data = fs.load("fashion")
    split = held_out(fs.split(data, clients=20, alpha=0.5), Search())
    out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(d["cell"], d["epsilon"], d["quantile"]) for d in done}
    for cell in CELLS[:cells]:
        for epsilon in EPSILONS:
            for quantile in QUANTILES:
                if (cell.label, epsilon, quantile) in known:
                    continue
                found = accuracy(split, cell, epsilon, quantile)
                line = {"cell": cell.label, "epsilon": epsilon, "quantile": quantile, "accuracy": round(found, 2)}
                with out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(a) for a in sys.argv[2:]))
