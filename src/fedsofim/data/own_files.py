"""The user's own data in any accepted form -> the rows of each part."""

from collections.abc import Sequence
from pathlib import Path

from fedsofim.data.extraction import histograms
from fedsofim.data.folders import read_folder
from fedsofim.data.npz import rows_of_npz
from fedsofim.data.rows import Rows
from fedsofim.data.tables import read_csv, read_parquet
from fedsofim.errors import InputError

TABLES = {".csv": read_csv, ".tsv": read_csv, ".parquet": read_parquet, ".pq": read_parquet}
KINDS = (".npz", *TABLES, "a folder of class folders of images")


def read_own(path: Path, label: str | None = None, drop: Sequence[str] = ()) -> dict[str, Rows]:
    """The rows of "train" and, where the file has them, of "val" and "test"."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        return _rows_of_folder(path)
    if path.suffix.lower() == ".npz":
        return rows_of_npz(path)
    if path.suffix.lower() in TABLES:
        return {"train": TABLES[path.suffix.lower()](path, label, drop)}
    raise InputError(f"{path}: cannot read files of kind '{path.suffix}'; expected {', '.join(KINDS)}")


def readable(path: Path) -> bool:
    """Whether `read_own` takes files of this kind."""
    return path.is_dir() or path.suffix.lower() in {".npz", *TABLES}


def _rows_of_folder(path: Path) -> dict[str, Rows]:
    images, using = read_folder(path), histograms()
    return {part: Rows.of(using.run(x), y, str(path)) for part, (x, y) in images.parts.items()}
