"""Copy what is worth keeping of finished experiments into docs/results: rows, tables and figures, not predictions.

    python experiments/collect.py runs/paper-cifar10-noniid runs/tuned-cifar10 ...

Run `fedsofim report FOLDER --published PUBLISHED` on each folder first.
"""

import shutil
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "docs" / "results"


def collect(folder: Path, target: Path) -> None:
    """rows.csv, tables as Markdown and CSV, and the figures of one experiment."""
    out = target / folder.name
    shutil.rmtree(out, ignore_errors=True)
    (out / "tables").mkdir(parents=True)
    shutil.copy(folder / "rows.csv", out)
    for table in sorted((folder / "tables").glob("*")):
        if table.suffix in (".md", ".csv"):
            shutil.copy(table, out / "tables")
    shutil.copytree(folder / "figures", out / "figures")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        collect(Path(name), TARGET)
