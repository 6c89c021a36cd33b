"""The `.npz` format: arrays x_train, y_train, x_test, y_test and optionally x_val, y_val."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.rows import Rows
from fedsofim.errors import InputError
from fedsofim.files import write_whole
from fedsofim.tasks import Task

NEEDED = ("x_train", "y_train")
PARTS = ("train", "val", "test")


def rows_of_npz(path: Path, task: Task = Task()) -> dict[str, Rows]:
    """The rows of each part; train is needed, val and test may be absent."""
    arrays = read_arrays(path)
    _explain_images(path, arrays)
    missing = [key for key in NEEDED if key not in arrays]
    missing += [f"{k}_{part}" for part in PARTS for k, other in ("xy", "yx") if _lonely(arrays, part, k, other)]
    if missing:
        raise InputError(
            f"{path}: no array {', '.join(missing)}; expected x_train, y_train, x_test, y_test "
            "(optionally x_val, y_val), "
            f"found {', '.join(arrays) or 'nothing'}"
        )
    found = [part for part in PARTS if f"x_{part}" in arrays]
    return {
        part: Rows.of(arrays[f"x_{part}"], arrays[f"y_{part}"], f"{path} (x_{part}, y_{part})", task=task)
        for part in found
    }


def notes_of_npz(path: Path) -> dict[str, Any]:
    """What an extraction wrote down about the features in the file, if it was one."""
    arrays = read_arrays(path, only=("notes",))
    return json.loads(str(arrays["notes"])) if "notes" in arrays else {}


def read_arrays(path: Path, only: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Every array of an `.npz` file, or those named in `only`; no pickles, since they can run code."""
    if path.is_file() and not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not an .npz archive; write it with np.savez_compressed")
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files if not only or key in only}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (zipfile.BadZipFile, OSError, EOFError) as problem:
        raise InputError(f"{path}: not a readable .npz file ({problem}); write it with np.savez_compressed") from None
    except ValueError as problem:
        if "allow_pickle" not in str(problem):
            raise
        raise InputError(
            f"{path}: holds Python objects, which are not read because unpickling can run code; "
            "save plain arrays, e.g. y.astype(int) or y.astype(str)"
        ) from None


def save_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays so that a reader never meets half a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npz(Path(folder) / "f.npz", {"x": np.zeros(3)})
    ...     sorted(read_arrays(Path(folder) / "f.npz"))
    ['x']
    """
    write_whole(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def _lonely(arrays: dict[str, np.ndarray], part: str, key: str, other: str) -> bool:
    """Whether y_val, say, is there without x_val."""
    return part != "train" and f"{other}_{part}" in arrays and f"{key}_{part}" not in arrays


def _explain_images(path: Path, arrays: dict[str, np.ndarray]) -> None:
    if "train_images" in arrays or ("x_train" in arrays and arrays["x_train"].ndim > 2):
        raise InputError(
            f"{path}: holds images; a linear head needs one row of features per record. Extract them first: "
            f"fedsofim features {path} --backbone resnet20 --out features.npz, then use "
            "features.npz"
        )
