"""Copy what is worth keeping of finished experiments into docs/results: rows, tables and figures, not predictions.

    python experiments/collect.py runs/paper-cifar10-noniid runs/tuned-cifar10 ...

Run `fedsofim report FOLDER --published PUBLISHED` on each folder first.
"""

import csv
import shutil
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "docs" / "results"


def collect(folder: Path, target: Path) -> None:
    """Every tenth row, tables as Markdown and CSV, and the figures of one experiment."""
    out = target / folder.name
    shutil.rmtree(out, ignore_errors=True)
    (out / "tables").mkdir(parents=True)
    (out / "rows.csv").write_text("".join(tenth_rounds(folder / "rows.csv")))
    for table in sorted((folder / "tables").glob("*")):
        if table.suffix in (".md", ".csv"):
            shutil.copy(table, out / "tables")
    (out / "figures").mkdir()
    for figure in sorted((folder / "figures").glob("*.png")):
        if "iid" in folder.name or not figure.name.startswith("partition"):  # the other folders share these splits
            shutil.copy(figure, out / "figures")


def tenth_rounds(path: Path) -> list[str]:
    """The header and every tenth round: a tenth of the size, and what the tables are made of."""
    header, *lines = path.read_text().splitlines(keepends=True)
    where = header.strip().split(",").index("round")
    return [header, *(row for row in lines if int(_cells(row)[where]) % 10 == 0)]


def _cells(row: str) -> list[str]:
    return next(csv.reader([row]))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        collect(Path(name), TARGET)
