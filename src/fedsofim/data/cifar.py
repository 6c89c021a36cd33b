"""CIFAR-10's own archive: five pickled batches of 10,000 images and a test batch.

A pickle can run code, and `--source` takes any file: only the few names a NumPy array needs are let through.
"""

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.download import Remote, fetch
from fedsofim.data.images import Images
from fedsofim.errors import InputError

CIFAR10 = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "cifar-10-python.tar.gz",
    "md5",
    "c58f30108f718f92721af3b95e74349a",
)
BATCHES = {"train": [f"data_batch_{k}" for k in range(1, 6)], "test": ["test_batch"]}
SAFE = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_cifar10(source: str | Path | None = None) -> Images:
    """All images of CIFAR-10 in the archive's order; downloaded unless `source` names the archive."""
    path = fetch(CIFAR10, source)
    try:
        with tarfile.open(path) as archive:
            parts = {part: _join([_batch(archive, batch) for batch in names]) for part, names in BATCHES.items()}
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise InputError(f"{path}: not a readable .tar.gz archive ({problem}); expected {CIFAR10.file}") from None
    except (pickle.UnpicklingError, KeyError, ValueError, AttributeError) as problem:
        raise InputError(f"{path}: not CIFAR-10's python archive ({problem}); expected {CIFAR10.url}") from None
    return Images.of("cifar10", parts, {"source": f"CIFAR-10 (Krizhevsky, 2009), {path.name}"})


def _batch(archive: tarfile.TarFile, batch: str) -> tuple[np.ndarray, np.ndarray]:
    file = archive.extractfile(f"cifar-10-batches-py/{batch}")
    if file is None:
        raise KeyError(batch)
    content = _ArraysOnly(io.BytesIO(file.read()), encoding="bytes").load()
    planes = np.asarray(content[b"data"], np.uint8).reshape(-1, 3, 32, 32)
    return planes.transpose(0, 2, 3, 1), np.asarray(content[b"labels"])


def _join(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])


class _ArraysOnly(pickle.Unpickler):
    """Unpickles arrays, lists, dictionaries and numbers; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in SAFE:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which a data file has no use for")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)
