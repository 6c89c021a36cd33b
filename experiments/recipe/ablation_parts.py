"""What each part of the recipe buys in each cell: docs/results/recipe-ablation/parts.csv, of the accuracies kept there.

    python experiments/recipe/ablation_parts.py

A line for each part and cell, for pages to quote from (scripts/quoted.py): `lost` are the points that the recipe has
more than itself without this part or with another one in its place, a mean over seeds, as in parts.md with the other
sign.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.files import write_text

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "results" / "recipe-ablation"


def as_csv(found: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["part", "dataset", "trust", "epsilon", "lost"])
    for cell, accuracies in found.items():
        dataset, _, trust, epsilon = cell.split(", ")
        of_recipe = accuracies["parts"]["recipe"]
        for part, without in accuracies["parts"].items():
            if part != "recipe":
                lost = float(np.mean(np.subtract(of_recipe, without)))
                writer.writerow([part, dataset, trust, epsilon.removeprefix("epsilon "), f"{lost:.2f}"])
    return text.getvalue()


if __name__ == "__main__":
    accuracies = json.loads((FOLDER / "accuracies.json").read_text())
    write_text(FOLDER / "parts.csv", as_csv(accuracies))
