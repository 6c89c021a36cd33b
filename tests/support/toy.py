"""A small dataset for tests, split over clients of very unequal size."""

from pathlib import Path

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split


def make_toy(sizes: tuple[int, ...] = (3, 40, 11, 150), features: int = 5, classes: int = 3, seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    centres = 2 * random.normal(size=(classes, features))
    labels = np.arange(sum(sizes) + 60) % classes
    points = (centres[labels] + random.normal(size=(len(labels), features))).astype(np.float32)
    n = sum(sizes)
    data = Dataset.of("toy", x_train=points[:n], y_train=labels[:n], x_test=points[n:], y_test=labels[n:])
    return Split(data, tuple(np.split(np.arange(n), np.cumsum(sizes)[:-1])), "toy")


def write_blobs(path: Path) -> None:
    """900 training and 60 test records of three classes, as a file of one's own."""
    random = np.random.default_rng(0)
    y = np.arange(960) % 3
    x = (2 * random.normal(size=(3, 5))[y] + random.normal(size=(960, 5))).astype(np.float32)
    np.savez(path, x_train=x[:900], y_train=y[:900], x_test=x[900:], y_test=y[900:])
