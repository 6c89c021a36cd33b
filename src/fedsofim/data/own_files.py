"""The user's own data in any accepted form -> the rows of each part."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedsofim.data.cells import TABLES
from fedsofim.data.extraction import histograms
from fedsofim.data.folders import read_folder
from fedsofim.data.npz import rows_of_npz
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Schema
from fedsofim.data.tables import read_table
from fedsofim.data.targets import Label
from fedsofim.errors import InputError
from fedsofim.tasks import Task

KINDS = (".npz", *TABLES, "a folder of class folders of images")


def read_own(
    path: Path,
    label: Label = None,
    drop: Sequence[str] = (),
    schema: Schema | None = None,
    task: Task | None = None,
    person: str | None = None,
) -> dict[str, Rows]:
    """The rows of "train" and, where the file has them, of "val" and "test"."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if schema is not None and path.suffix.lower() not in TABLES:
        raise InputError(f"{path}: a schema describes a table ({', '.join(TABLES)}), and this is none")
    if person is not None and path.suffix.lower() not in TABLES:
        raise InputError(f"{path}: a column of persons is a table's ({', '.join(TABLES)}), and this is none")
    if path.is_dir():
        if not (task or Task()).by_class:
            raise InputError(f"{path}: a folder of class folders is about classes; the task is {task}")
        return {part: replace(rows, task=task or Task()) for part, rows in _rows_of_folder(path).items()}
    if path.suffix.lower() == ".npz":
        return rows_of_npz(path, task or Task())
    if path.suffix.lower() in TABLES:
        return {"train": read_table(path, label, drop, schema, task, person)}
    raise InputError(f"{path}: cannot read files of kind '{path.suffix}'; expected {', '.join(KINDS)}")


def readable(path: Path) -> bool:
    """Whether `read_own` takes files of this kind."""
    return path.is_dir() or path.suffix.lower() in {".npz", *TABLES}


def _rows_of_folder(path: Path) -> dict[str, Rows]:
    images, using = read_folder(path), histograms()
    return {part: Rows.of(using.run(x), y, str(path)) for part, (x, y) in images.parts.items()}
