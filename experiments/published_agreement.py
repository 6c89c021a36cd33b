"""How far reruns are from what was published: docs/results/published-accuracy/agreement.md, of the rows kept there.

    python experiments/published_agreement.py

Methods whose account the paper does correctly, at true cost; and DP-SCAFFOLD with its doubled noise, as published.
"""

from typing import NamedTuple

import pages  # pyright: ignore[reportMissingImports]

NAME = "published-accuracy/agreement"
RIGHT = ("DP-FedGD", "DP-FedAvg", "DP-FedAdam", "DP-FedYogi", "DP-AdaFedProx", "DP-FedSOFIM")
DATA = {"cifar10": "CIFAR-10", "pathmnist": "PathMNIST"}


class Gap(NamedTuple):
    """Points between a measured and a published accuracy."""

    size: float
    where: str


def gaps(variant: str, methods: tuple[str, ...]) -> list[Gap]:
    rows = pages.rows_in(pages.path_of("published-accuracy").with_name("rows.csv"))
    return [
        Gap(
            round(abs(float(r["mean"]) - float(r["published_mean"])), 2),
            f"{r['method']}, {DATA[r['dataset']]}, ε = {float(r['epsilon_claimed']):g}",
        )
        for r in rows
        if r["variant"] == variant and r["method"] in methods
    ]


def markdown() -> str:
    groups = {
        "accounts that are right, at true cost": gaps("true cost", RIGHT),
        "DP-SCAFFOLD as published": gaps("as published", ("DP-SCAFFOLD",)),
    }
    lines = []
    for words, found in groups.items():
        largest = max(found)
        within = [str(sum(gap.size <= points for gap in found)) for points in (1, 2)]
        lines.append([words, str(len(found)), *within, f"{largest.size:.2f}", largest.where])
    return pages.markdown(["", "cells", "within 1 point", "within 2", "largest gap", "where"], lines)


if __name__ == "__main__":
    pages.keep(NAME, markdown())
