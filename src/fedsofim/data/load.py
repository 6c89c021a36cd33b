"""`load`: one name or path -> a checked `Dataset`."""

from pathlib import Path

from fedsofim.data.dataset import Dataset
from fedsofim.data.embedded import EMBEDDED, load_embedded
from fedsofim.data.npz import load_npz
from fedsofim.errors import InputError, unknown


def names() -> list[str]:
    """Every dataset known by name.

    >>> "fashion" in names()
    True
    """
    return sorted(EMBEDDED)


def load(name_or_path: str | Path) -> Dataset:
    """Load a dataset known by name, or your own from a file.

    >>> data = load("fashion")
    >>> data.x_train.shape, data.x_test.shape, data.classes
    ((60000, 80), (10000, 80), 10)
    """
    if name_or_path in EMBEDDED:
        return load_embedded(str(name_or_path))
    path = Path(name_or_path)
    if path.suffix == ".npz":
        return load_npz(path)
    if not path.exists():
        raise unknown("dataset", str(name_or_path), names())
    raise InputError(f"{path}: cannot read files of kind '{path.suffix}'; expected .npz")
