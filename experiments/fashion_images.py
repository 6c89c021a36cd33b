"""Fashion-MNIST as rows of 784 pixels from -1 to 1, from Debian's package dataset-fashion-mnist.

    apt-get install dataset-fashion-mnist
    fedsofim run --dataset experiments/fashion_images.py --model cnn --trust secure-sum --epsilon 5

FASHION_IMAGES says where the four files are, if they are somewhere else.
"""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim import Dataset, InputError

FOLDER = "/usr/share/datasets/fashion-mnist"


def fashion_images() -> Dataset:
    folder = Path(os.environ.get("FASHION_IMAGES", FOLDER))
    if not (folder / "train-images-idx3-ubyte.gz").is_file():
        raise InputError(f"{folder}: no Fashion-MNIST there; apt-get install dataset-fashion-mnist")
    parts = {
        f"{name}_{part}": _idx(folder / f"{prefix}-{kind}-ubyte.gz")
        for part, prefix in (("train", "train"), ("test", "t10k"))
        for name, kind in (("x", "images-idx3"), ("y", "labels-idx1"))
    }
    rows: dict[str, Any] = {
        k: v.reshape(len(v), -1).astype(np.float32) / 127.5 - 1 if k[0] == "x" else v for k, v in parts.items()
    }
    return Dataset.of("fashion-images", **rows, notes={"source": "Fashion-MNIST (Zalando SE, MIT licence)"})


def _idx(path: Path) -> np.ndarray:
    """An array in the IDX format of MNIST: two zero bytes, type, rank, big-endian sizes, then the bytes."""
    raw = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)
