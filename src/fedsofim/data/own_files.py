"""The user's own data in any accepted form -> the rows of each part."""

from collections.abc import Sequence
from pathlib import Path

from fedsofim.data.cells import TABLES
from fedsofim.data.extraction import histograms
from fedsofim.data.folders import read_folder
from fedsofim.data.npz import rows_of_npz
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Schema
from fedsofim.data.tables import read_table
from fedsofim.errors import InputError

KINDS = (".npz", *TABLES, "a folder of class folders of images")


def read_own(
    path: Path, label: str | None = None, drop: Sequence[str] = (), schema: Schema | None = None
) -> dict[str, Rows]:
    """The rows of "train" and, where the file has them, of "val" and "test"."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if schema is not None and path.suffix.lower() not in TABLES:
        raise InputError(f"{path}: a schema describes a table ({', '.join(TABLES)}), and this is none")
    if path.is_dir():
        return _rows_of_folder(path)
    if path.suffix.lower() == ".npz":
        return rows_of_npz(path)
    if path.suffix.lower() in TABLES:
        return {"train": read_table(path, label, drop, schema)}
    raise InputError(f"{path}: cannot read files of kind '{path.suffix}'; expected {', '.join(KINDS)}")


def readable(path: Path) -> bool:
    """Whether `read_own` takes files of this kind."""
    return path.is_dir() or path.suffix.lower() in {".npz", *TABLES}


def _rows_of_folder(path: Path) -> dict[str, Rows]:
    images, using = read_folder(path), histograms()
    return {part: Rows.of(using.run(x), y, str(path)) for part, (x, y) in images.parts.items()}
