"""How many of the published numbers reproduce: docs/results/reproduced, counted from the tables of the paper's grids.

    python experiments/reproduced.py

Of each grid that `fedsofim report --published` set beside the paper's, what is kept in docs/results.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pages  # pyright: ignore[reportMissingImports]

NAME = "reproduced"
ANSWERS = ("yes", "unclear", "no")
RESULTS = pages.DOCS / "results"


class Grid(NamedTuple):
    """A folder of docs/results with published numbers beside measured ones."""

    words: str
    folder: str
    last: str  # the table of last rounds, without where
    all: str = ""  # of every tenth round, where these are published

    def table(self, name: str, ending: str = "csv") -> Path:
        data = f"{self.folder.split('-')[1]}_resnet20"
        split = "iid" if self.folder.endswith("-iid") else "dirichlet-0.5"
        return RESULTS / self.folder / "tables" / f"{name}-{data}-{split}.{ending}"

    def answers(self, name: str, method: str | None = None) -> Counter[str]:
        rows = pages.rows_in(self.table(name))
        return Counter(row["reproduces"] for row in rows if method in (None, row.get("method")))


DATA = {"cifar10": "CIFAR-10", "pathmnist": "PathMNIST"}
WHAT = {"noniid": "non-IID", "iid": "IID", "ablation": "ablation", "rho": "rho"}
GRIDS = [
    Grid(f"{words}, {said}", f"paper-{data}-{what}", *names)
    for what, said in WHAT.items()
    for data, words in DATA.items()
    for names in [("published-final", "published") if "iid" in what else (f"published-{what}",)]
]
EVERY_ROUND = [g for g in GRIDS if g.folder.endswith("noniid")]


def grids() -> str:
    lines = []
    for grid in GRIDS:
        link = f"[{grid.words}](../{grid.folder}/tables/{grid.table(grid.last, 'md').name})"
        counts = [grid.answers(name) for name in (grid.last, grid.all) if name]
        cells = [str(n) for c in counts for n in (c.total(), c["yes"])]
        lines.append([link, *cells, *[""] * (4 - len(cells))])
    head = ["", "cells of 70 rounds", "of which reproduce", "all rounds 10..70", "of which reproduce"]
    return pages.markdown(head, lines)


def methods() -> str:
    """By method, over all rounds: yes / unclear / no."""
    names = dict.fromkeys(row["method"] for row in pages.rows_in(EVERY_ROUND[0].table("published")))
    lines = [
        [name.replace(" *", " (as published)"), *(" / ".join(counted(grid, name)) for grid in EVERY_ROUND)]
        for name in names
    ]
    return pages.markdown(["", *(grid.words.split(",")[0] for grid in EVERY_ROUND)], lines)


def counted(grid: Grid, method: str) -> list[str]:
    return [str(grid.answers(grid.all, method)[answer]) for answer in ANSWERS]


if __name__ == "__main__":
    pages.keep(NAME, grids())
    pages.keep(f"{NAME}/methods", methods())
