"""Standardise features by statistics of the private records themselves, released once through the door.

Each client releases Σ (x/r, (x/r)²) over its records, clipped jointly; the server averages, and every client then
maps its records by x -> (x - m)/s with the released m and s. (Statistics of *public* images cost nothing:
data/public_statistics.py. The recipe's own preparation needs no radius: preparation.py.)
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsofim.core.phase import Phase
from fedsofim.core.preparation import Affine, Map, Released
from fedsofim.errors import InputError, is_number, shown

LABEL = "feature moments"
_FLOOR = 0.05  # of the mean variance: below it noise, not spread, would be divided by


@dataclass(frozen=True)
class FeatureMoments:
    """How to spend on it: `share` of the budget's mu²; `radius`, a public guess of a record's largest norm."""

    share: float = 0.05
    radius: float = 10.0
    phase: ClassVar[Phase | None] = Phase.MOMENTS

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 < self.share < 1:
            raise InputError(f"standardize share is {shown(self.share)}; expected a part of the budget between 0 and 1")
        if not is_number(self.radius) or not self.radius > 0:
            raise InputError(f"standardize radius is {shown(self.radius)}; expected a number above 0")

    def width(self, features: int) -> int:
        return features

    def client(self, door: Any, features: int) -> dict[str, Any]:
        """Sums of x/r and of (x/r)², noisy. |x| <= r gives a joint norm of at most sqrt(2)."""
        return door.sum(
            lambda x, y: {"first": x / self.radius, "second": (x / self.radius) ** 2},
            clip=math.sqrt(2.0),
            share=self.share,
            label=LABEL,
        )

    def fitted(self, released: Released, std: float) -> Map:
        """x -> (x - m)/s by what was released: the map every client applies to its own records."""
        mean, scale = self._moments(released)
        return lambda x: ((x - mean) / scale).astype(np.float32)

    def affine(self, released: Released, std: float) -> Affine:
        """The same as what is taken off and what is multiplied by."""
        mean, scale = self._moments(released)
        return mean, 1 / scale

    def _moments(self, released: Released) -> Affine:
        """m and s."""
        mean = np.asarray(released["first"], np.float64) * self.radius
        variance = np.asarray(released["second"], np.float64) * self.radius**2 - mean**2
        typical = max(float(np.mean(variance)), 1e-12)
        scale = np.sqrt(np.maximum(variance, _FLOOR * typical))
        return mean, scale
