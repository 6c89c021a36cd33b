"""The `.npz` format: arrays x_train, y_train, x_test, y_test and optionally x_val, y_val and owner."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.data.labels import encode, is_text
from fedsofim.errors import InputError

NEEDED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("x_val", "y_val", "owner")


def load_npz(path: Path) -> Dataset:
    """Features and labels from one `.npz` file; text labels are numbered in sorted order."""
    arrays = read_arrays(path)
    _explain_images(path, arrays)
    missing = [key for key in NEEDED if key not in arrays]
    if missing:
        raise InputError(
            f"{path}: no array {', '.join(missing)}; expected {', '.join(NEEDED)} (optionally {', '.join(OPTIONAL)}), "
            f"found {', '.join(arrays) or 'nothing'}"
        )
    if ("x_val" in arrays) != ("y_val" in arrays):
        raise InputError(f"{path}: x_val and y_val must come together")
    notes: dict[str, Any] = {"source": path.name}
    return Dataset.of(path.stem, **_numbered(path, _known(arrays), notes), notes=notes)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of an `.npz` file; pickled objects are refused, since unpickling runs code."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: holds a single array; expected an .npz archive (np.savez)")
            return {key: stored[key] for key in stored.files}
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
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    part.replace(path)


def _known(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key: arrays[key] for key in (*NEEDED, *OPTIONAL) if key in arrays}


def _numbered(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> dict[str, np.ndarray]:
    """Text labels become numbers; numbers stay as they are."""
    labels = {key[2:]: arrays[key] for key in ("y_train", "y_test", "y_val") if key in arrays}
    if not any(is_text(values) for values in labels.values()):
        return arrays
    codes, notes["labels"] = encode(str(path), {part: values.ravel() for part, values in labels.items()})
    return arrays | {f"y_{part}": values for part, values in codes.items()}


def _explain_images(path: Path, arrays: dict[str, np.ndarray]) -> None:
    if "train_images" in arrays or ("x_train" in arrays and arrays["x_train"].ndim > 2):
        raise InputError(
            f"{path}: holds images; a linear head needs one row of features per record. Extract them first: "
            f"fedsofim features {path} --backbone resnet20 --out features.npz, then use --dataset features.npz"
        )
