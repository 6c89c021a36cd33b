"""x -> (x - shift)·scale, by public numbers: what was done to features before anybody met them."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Affine:
    """A shift, and a scale for each feature or a whole matrix.

    >>> Affine(np.array([1.0]), np.array([2.0]))(np.array([[3.0]], np.float32)).tolist()
    [[4.0]]
    """

    shift: np.ndarray
    scale: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        moved = x - self.shift
        return (moved @ self.scale if self.scale.ndim == 2 else moved * self.scale).astype(np.float32)
