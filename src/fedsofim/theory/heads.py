"""L, μ, G_max and ζ_max of a linear softmax head: from records, from a public radius, or from a released moment.

A record's loss is cross-entropy plus λ/2·|θ|² (the ridge is part of it and clipped with it); x̃ = [x; 1], p the
probabilities, K classes. Its gradient is (p - e_y) ⊗ x̃ + λθ, its Hessian (diag p - ppᵀ) ⊗ x̃x̃ᵀ + λI. Since |p -
e_y| <= sqrt(2) and diag p - ppᵀ <= I/2, with S = Σ_j a_j·x̃_j·x̃_jᵀ and a_j the record's weight in F,

    L <= λ_max(S)/2 + λ,   μ = λ,   |∇F| <= Σ a_j·sqrt(2)·|x̃_j| + λR,   |ζ| <= Σ a_j·max(0, sqrt(2)·|x̃_j| + λR - C_g).

μ is no more than λ: the head has flat directions (the same vector added to every class), and curvature dies out
far away. R bounds |θ|: from θ = 0, F = log K, and F >= λ/2·|θ|² + 0, so every θ that is no worse has |θ| <= R =
sqrt(2·log K/λ). For the same reason the first gap is at most log K.

**From records** these are the records' own numbers: *not private*. **From a radius** r >= |x̃| they are public: S
<= r²·I. **From a released second moment** S + W, W the engine's symmetric noise (std s on the diagonal, s/sqrt(2)
off it): with v the top eigenvector of S, λ_max(S + W) >= vᵀ(S + W)v = λ_max(S) + vᵀWv, and vᵀWv ~ N(0, s²)
whatever v, so λ_max(S) <= λ_max(S + W) + s·sqrt(2·log(1/α)) but for probability α. That costs what the release
was charged, and no more.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedsofim.data.partition import Split
from fedsofim.errors import InputError, is_number, shown
from fedsofim.tasks import refuse_other_than_classes

_LONGEST = math.sqrt(2.0)  # |p - e_y|
_CURVED = 0.5  # of diag p - ppᵀ
_CHUNK = 2**16  # records at a time


@dataclass(frozen=True, kw_only=True)
class HeadConstants:
    """What the analysis needs of a head. Everything is an upper bound but μ, which is exact."""

    L: float
    mu: float
    G_max: float
    zeta_max: float
    gap: float
    start_gradient: float  # |∇F(0)|
    d: int
    how: str
    private: bool

    @property
    def condition(self) -> float:
        """L/μ."""
        return self.L / self.mu

    def summary(self) -> dict[str, Any]:
        return asdict(self) | {"condition": self.condition}


def from_records(split: Split, *, C_g: float, ridge: float, weights: str = "uniform") -> HeadConstants:
    """Read off the records. NOT PRIVATE: none of these numbers may be shown as if they cost nothing."""
    refuse_other_than_classes("a statement about a head", split.dataset.task)
    _check(ridge)
    x, y = split.dataset.x_train, split.dataset.y_train
    if x.ndim != 2:
        raise InputError(f"records of shape {x.shape[1:]} are no rows of features; expected a linear head's")
    a, classes = _weights(split, weights), split.dataset.classes
    moment, slope = np.zeros((x.shape[1] + 1,) * 2), np.zeros((x.shape[1] + 1, classes))
    lengths = np.empty(len(y))
    for i in range(0, len(y), _CHUNK):
        rows = np.concatenate([x[i : i + _CHUNK], np.ones((len(x[i : i + _CHUNK]), 1))], axis=1, dtype=np.float64)
        weighted = rows * a[i : i + _CHUNK, None]
        moment += weighted.T @ rows
        residual = np.full((len(rows), classes), 1 / classes)
        residual[np.arange(len(rows)), y[i : i + _CHUNK]] -= 1
        slope += weighted.T @ residual
        lengths[i : i + _CHUNK] = np.linalg.norm(rows, axis=1)
    shrink = ridge * _reach(classes, ridge)
    return HeadConstants(
        L=_CURVED * float(np.linalg.eigvalsh(moment)[-1]) + ridge,
        mu=ridge,
        G_max=_LONGEST * float(a @ lengths) + shrink,
        zeta_max=float(a @ np.maximum(_LONGEST * lengths + shrink - C_g, 0)),
        gap=math.log(classes),
        start_gradient=float(np.linalg.norm(slope)),
        d=slope.size,
        how=f"the records of {split.dataset.name}, read in the clear",
        private=False,
    )


def from_radius(radius: float, *, features: int, classes: int, C_g: float, ridge: float) -> HeadConstants:
    """From |x̃| <= radius, which is public where a preparation caps it.

    >>> from_radius(1.0, features=3, classes=2, C_g=2.0, ridge=0.01).L
    0.51
    """
    _check(ridge)
    return _bounded(radius, radius**2, features, classes, C_g, ridge, f"|x| <= {radius:g}, which is public")


def from_released(
    moment: np.ndarray, std: float, *, radius: float, classes: int, C_g: float, ridge: float, failure: float = 1e-6
) -> HeadConstants:
    """From a released second moment of x̃ (width x width) with noise of this std, and |x̃| <= radius."""
    _check(ridge)
    width = len(moment)
    slack = std * math.sqrt(2 * math.log(1 / failure))
    largest = min(float(np.linalg.eigvalsh(np.asarray(moment, np.float64))[-1]) + slack, radius**2)
    how = f"a released second moment, its noise of std {std:.3g} allowed for, but for probability {failure:g}"
    return _bounded(radius, largest, width - 1, classes, C_g, ridge, how)


def _bounded(
    radius: float, largest: float, features: int, classes: int, C_g: float, ridge: float, how: str
) -> HeadConstants:
    shrink = ridge * _reach(classes, ridge)
    return HeadConstants(
        L=_CURVED * largest + ridge,
        mu=ridge,
        G_max=_LONGEST * radius + shrink,
        zeta_max=max(_LONGEST * radius + shrink - C_g, 0.0),
        gap=math.log(classes),
        start_gradient=math.sqrt(1 - 1 / classes) * radius,
        d=(features + 1) * classes,
        how=how,
        private=True,
    )


def _reach(classes: int, ridge: float) -> float:
    """R: every θ that is no worse than θ = 0 is at most so long."""
    return math.sqrt(2 * math.log(classes) / ridge)


def _weights(split: Split, weights: str) -> np.ndarray:
    """a_j of every training record: 1/(n·|D_i|), or 1/N where records count alike."""
    sizes, total = split.sizes, sum(split.sizes)
    a = np.zeros(len(split.dataset.y_train))
    for part, size in zip(split.parts, sizes, strict=True):
        a[part] = 1 / (len(sizes) * size) if weights == "uniform" else 1 / total
    return a


def _check(ridge: float) -> None:
    if not is_number(ridge) or not 0 < ridge < math.inf:
        raise InputError(
            f"ridge is {shown(ridge)}; expected a number above 0: without one a softmax head is not strongly convex"
        )
