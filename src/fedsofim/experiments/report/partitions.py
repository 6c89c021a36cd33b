"""Who held how many records of which class, from the grid's own record of it."""

from typing import Any

import numpy as np

from fedsofim.experiments.report.accuracy import slug
from fedsofim.experiments.report.table import Cell, Table, number


def partition_table(dealt: dict[str, Any], classes: list[str] | None = None) -> Table:
    """Counts per client and class with the statistics of how uneven they are."""
    counts = np.array(dealt["counts"])
    rows = [
        (Cell(str(i), i), *(Cell(str(n), n) for n in row), Cell(str(row.sum()), row.sum()),
         number(dealt["kl"][i], 3), Cell(str(dealt["absent"][i]), dealt["absent"][i]))
        for i, row in enumerate(counts)
    ]  # fmt: skip
    sizes = counts.sum(axis=1)
    note = (
        f"Sizes {sizes.min()} to {sizes.max()}, mean {sizes.mean():.1f}, std {sizes.std():.1f}, {sizes.sum()} records. "
        f"KL of the class mix from uniform, in nats: mean {np.mean(dealt['kl']):.3f}, max {np.max(dealt['kl']):.3f}."
    )
    names = classes or [f"class {c}" for c in range(counts.shape[1])]
    columns = ("client", *names, "total", "KL", "absent classes")
    place = (dealt["dataset"], dealt["partition"])
    return Table(f"partition-{slug(place)}", f"Partition: {place[0]}, {place[1]}", columns, tuple(rows), note)
