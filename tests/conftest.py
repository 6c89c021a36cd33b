"""Strict mode for every test: 64-bit numbers where asked for, no silent promotion, warnings are errors."""

from pathlib import Path

import jax
import numpy as np
import pytest

from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the paper's own features; not part of the project, so absent on a user's machine."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the paper's features in ../shared, which is not part of the project")
    return SHARED


@pytest.fixture(scope="session")
def toy() -> Split:
    """Three classes in five dimensions at four clients of very unequal size."""
    return make_toy()


def make_toy(sizes: tuple[int, ...] = (3, 40, 11, 150), features: int = 5, classes: int = 3, seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    centres = 2 * random.normal(size=(classes, features))
    labels = np.arange(sum(sizes) + 60) % classes
    points = (centres[labels] + random.normal(size=(len(labels), features))).astype(np.float32)
    n = sum(sizes)
    data = Dataset.of("toy", x_train=points[:n], y_train=labels[:n], x_test=points[n:], y_test=labels[n:])
    return Split(data, tuple(np.split(np.arange(n), np.cumsum(sizes)[:-1])), "toy")


__all__ = ["make_toy", "shared", "split", "toy"]
