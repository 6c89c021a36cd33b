"""One number from everything that an attacker saw: the likelihood ratio of the two worlds for Gaussian noise.

Every upload of a run is projected onto the direction in which the two worlds differ there. That gives a vector z of
numbers per trial, and the attacker knows the vector m of distances between the worlds: z is ±m/2 plus noise. For noise
of covariance Σ the likelihood ratio is mᵀΣ⁻¹z, and its mu is sqrt(mᵀΣ⁻¹m).

The attacker does not believe what it is told about the noise: Σ is measured on trials of its own (the first part), and
the others are scored with it. That finds noise that is too small, and noise that is shared between rounds or between
parts of an upload, where differences of releases tell more than their sum.
"""

from dataclasses import dataclass

import numpy as np

_RIDGE = 1e-9  # of a variance: below it is rounding
_ROUNDING = 1e-6  # of a distance: noise below it counts as this much


@dataclass(frozen=True)
class Seen:
    """What the attacker saw: z and m of every trial (pairs x channels), in the world "+" and in "-"."""

    plus: np.ndarray
    minus: np.ndarray
    apart_plus: np.ndarray  # m, which may depend on what was released before
    apart_minus: np.ndarray

    def part(self, pairs: slice) -> "Seen":
        return Seen(self.plus[pairs], self.minus[pairs], self.apart_plus[pairs], self.apart_minus[pairs])


@dataclass(frozen=True)
class Scores:
    """One number per trial, large where the attacker believes in "+". The i-th of both may share random numbers."""

    plus: np.ndarray
    minus: np.ndarray


def scored(seen: Seen, training: int) -> tuple[Scores, Scores]:
    """Scores of the first `training` pairs, on which Σ was measured, and of all others."""
    first, rest = seen.part(slice(None, training)), seen.part(slice(training, None))
    inverse = _precision(first)
    return _with(inverse, first), _with(inverse, rest)


def _precision(seen: Seen) -> np.ndarray:
    """Σ⁻¹ of the noise in z: of what is left when the worlds' known distance is taken off."""
    noise = np.concatenate([seen.plus - seen.apart_plus / 2, seen.minus + seen.apart_minus / 2])
    distance = np.abs(seen.apart_plus).max(axis=0)
    stds = np.maximum(noise.std(axis=0), _ROUNDING * distance)
    stds = np.where(stds > 0, stds, 1.0)  # a channel in which nothing ever happens
    shape = np.atleast_2d(np.cov(noise / stds, rowvar=False)) + _RIDGE * np.eye(len(stds))
    return np.linalg.inv(shape) / np.outer(stds, stds)


def _with(precision: np.ndarray, seen: Seen) -> Scores:
    def score(z: np.ndarray, m: np.ndarray) -> np.ndarray:
        return np.sum((m @ precision) * z, axis=1)

    return Scores(score(seen.plus, seen.apart_plus), score(seen.minus, seen.apart_minus))
