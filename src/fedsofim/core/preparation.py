"""How records become features that a head learns well from under noise: a preparation is a tuple of steps.

A step may release something about the records through the door, once, charged (`phase` says when; None: it releases
nothing), and then maps every record by what came out. The map is post-processing, so it is free: every client
applies it to its own records, and whoever uses the model applies it to new ones.

    ColumnScales   x_j -> x_j/2^e_j, for columns in different units
    UnitNorm       x -> x/|x|, or with a constant or square roots beside it
    Centred        x -> (x - m)/sqrt(1 - |m|²), by a released mean
    Whitened       x -> (Σ + γ·tr Σ·I)^(-1/2)·(x - m), by a released second moment

The last two end in features of root mean square norm RADIUS, none longer than CAP times that, so that a head's bias,
whose feature is 1, counts 1/RADIUS of them; clips are in the same units.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
import numpy as np

from fedsofim.core.phase import Phase
from fedsofim.core.units import Units, units_for
from fedsofim.errors import InputError, is_number, shown
from fedsofim.tasks import Task

Map = Callable[[np.ndarray], np.ndarray]
Released = Mapping[str, np.ndarray]
Affine = tuple[np.ndarray, np.ndarray]  # what is taken off, and what is multiplied by: a matrix, or by feature

RADIUS = 5.0
CAP = 1.3


class Step(Protocol):
    """One step of a preparation. Only the library's own: a node runs them on its records."""

    phase: ClassVar[Phase | None]

    def width(self, features: int) -> int:
        """How many features it gives."""
        ...

    def client(self, door: Any, features: int) -> dict[str, Any]:
        """What it sums over a client's records of so many features, through the door."""
        ...

    def fitted(self, released: Released, std: float) -> Map:
        """The map, by the mean of what the clients released, and the noise std of a coordinate of that mean."""
        ...


def prepared(steps: Sequence[Step], released: Mapping[Phase, Released], stds: Mapping[Phase, float]) -> Map:
    """All steps in one, by the means of what was released in each step's phase and the noise of those means."""
    maps = [s.fitted({}, 0.0) if s.phase is None else s.fitted(released[s.phase], stds[s.phase]) for s in steps]

    def apply(x: np.ndarray) -> np.ndarray:
        rows = max(1, _AT_ONCE // max(1, x.shape[1]))  # doubles on the way: never of all records at once
        return np.concatenate([_through(maps, x[i : i + rows]) for i in range(0, max(len(x), 1), rows)])

    return apply if maps else lambda x: x


_AT_ONCE = 2**22  # numbers


def _through(maps: Sequence[Map], x: np.ndarray) -> np.ndarray:
    for one in maps:
        x = one(x)
    return x


def units_of(steps: Sequence[Step], outputs: int, task: Task = Task(), linear: bool = True) -> Units:
    """The natural sizes of a run on what a preparation gives, for a linear model or another."""
    return units_for(task, outputs, bool(steps) and isinstance(steps[-1], Centred | Whitened), linear)


def width_of(steps: Sequence[Step], features: int) -> int:
    """How many features a preparation gives."""
    for step in steps:
        features = step.width(features)
    return features


def program_of(step: Step, features: int) -> Callable:
    """A step's release as the program of a client: its sums over the number of its records."""

    def client(door: Any, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        return {name: total / door.size for name, total in step.client(door, features).items()}, ()

    return client


class _Free:
    """A step that releases nothing."""

    phase: ClassVar[Phase | None] = None

    def client(self, door: Any, features: int) -> dict[str, Any]:
        raise AssertionError("this step releases nothing")


@dataclass(frozen=True)
class UnitNorm(_Free):
    """x -> x/|x|: whatever the units, a record is at most 1 long, and nothing had to be guessed.

    `constant`: of [x/sqrt(p), 1], which keeps the length of x for features of size about 1 each. `lift`: then
    [u, sign(u)·sqrt|u|], which raises what a linear head can reach at twice the coordinates.

    >>> UnitNorm().fitted({}, 0.0)(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]], dtype=float32)
    """

    constant: bool = False
    lift: bool = False

    def __post_init__(self) -> None:
        for name, value in (("constant", self.constant), ("lift", self.lift)):
            if not isinstance(value, bool):
                raise InputError(f"{name} is {shown(value)}; expected True or False")

    def width(self, features: int) -> int:
        return (features + self.constant) * (1 + self.lift)

    def fitted(self, released: Released, std: float) -> Map:
        def apply(x: np.ndarray) -> np.ndarray:
            if self.constant:
                x = np.concatenate([x / math.sqrt(x.shape[1]), np.ones((len(x), 1))], axis=1)
            u = _unit(x)
            if self.lift:
                u = np.concatenate([u, _unit(np.sign(u) * np.sqrt(np.abs(u)))], axis=1) / math.sqrt(2.0)
            return u.astype(np.float32)

        return apply


@dataclass(frozen=True)
class ColumnScales:
    """x_j -> x_j/2^e_j, e_j the mean of log2|x_j| over records where it is not 0, as far as the noise lets it be known.

    A record gives, with l_j = log2|x_j| and l its largest: (l_j - l)/12 + 1, cut at -1, and 1/2, for every x_j that is
    not 0, and l/30, cut at ±1. Each column has at most 1 + 1/4, so the whole at most 5p/4 + 1 squared: the clip.
    All features times 1000 add the same number to l and change no other: the mapped records stay what they were.
    Columns share one unit unless they differ by MIXED bits (standard deviation, noise taken off), or one of them is
    surely FAR bits from the middle, which many 0/1 columns would hide.
    """

    share: float
    phase: ClassVar[Phase | None] = Phase.SCALES

    def __post_init__(self) -> None:
        check_share(self.share)

    def width(self, features: int) -> int:
        return features

    def client(self, door: Any, features: int) -> dict[str, Any]:
        return door.sum(_sizes, clip=scales_norm(features), share=self.share, label="column scales")

    def fitted(self, released: Released, std: float) -> Map:
        _, scale = self.affine(released, std)
        return lambda x: (x * scale).astype(np.float32)

    def affine(self, released: Released, std: float) -> Affine:
        scale = 2.0 ** -_exponents(released, std)
        return np.zeros_like(scale), scale


MIXED, FAR = 2.5, 5.0
_BITS, _REACH, _COUNT = 12.0, 30.0, 0.5


def scales_norm(features: int) -> float:
    """No record's sizes are longer."""
    return math.sqrt((1 + _COUNT**2) * features + 1)


def _sizes(x: Any, y: Any) -> dict[str, Any]:
    there = x != 0
    size = jnp.log2(jnp.where(there, jnp.abs(x), 1.0))
    largest = jnp.max(jnp.where(there, size, -_REACH))
    relative = jnp.clip((size - largest) / _BITS + 1, -1.0, 1.0)
    return {
        "size": jnp.where(there, relative, 0.0),
        "there": _COUNT * there.astype(x.dtype),
        "largest": jnp.clip(largest / _REACH, -1.0, 1.0),
    }


def _exponents(released: Released, std: float) -> np.ndarray:
    """e_j: every column's mean, drawn towards that of all columns the more, the noisier it is."""
    found = {k: np.asarray(v, np.float64) for k, v in released.items()}
    part = np.maximum(found["there"] / _COUNT, max(0.02, 3 * std / _COUNT))  # of the records
    mean = _BITS * (np.clip(found["size"] / part, -1, 1) - 1)
    noise = (_BITS * std / part) ** 2 * (1 + 1 / _COUNT**2)
    weight = 1 / (noise + MIXED**2)
    middle = float(np.sum(weight * mean) / np.sum(weight))
    spread = max(float(np.sum(weight * ((mean - middle) ** 2 - noise)) / np.sum(weight)), 0.0)
    far = np.max(np.abs(mean - middle) - 3 * np.sqrt(noise)) > FAR
    spread = max(spread, MIXED**2) if far else spread
    believed = spread / (spread + noise) if spread >= MIXED**2 else 0.0  # else they share one unit
    overall = _REACH * float(np.clip(found["largest"], -1, 1))
    return overall + middle + believed * (mean - middle)


@dataclass(frozen=True)
class Centred:
    """x -> (x - b·m)/sqrt(1 - b·|μ|²) for records at most 1 long, m their released mean, μ the one without noise.

    For unit records E|x - μ|² = 1 - |μ|²: the scale comes with the mean, at no further cost. |μ|² is |m|² - p·σ², from
    0 to 1, and b = |μ|²/|m|² is as much of m as is no noise (James and Stein): what drowned in noise is not taken off.
    """

    share: float
    phase: ClassVar[Phase | None] = Phase.MOMENTS

    def __post_init__(self) -> None:
        check_share(self.share)

    def width(self, features: int) -> int:
        return features

    def client(self, door: Any, features: int) -> dict[str, Any]:
        return {"first": door.sum(lambda x, y: x, clip=1.0, share=self.share, label="feature mean")}

    def fitted(self, released: Released, std: float) -> Map:
        mean, scale = self.affine(released, std)
        return lambda x: _capped((x - mean) * scale)

    def affine(self, released: Released, std: float) -> Affine:
        mean = np.asarray(released["first"], np.float64)
        whole = max(float(mean @ mean), 1e-30)
        square = min(max(whole - len(mean) * std**2, 0.0), 1.0)  # of the mean without its noise
        return square / whole * mean, np.asarray(1 / math.sqrt(max(1 - square**2 / whole, 0.01)))


@dataclass(frozen=True)
class Whitened:
    """x -> W·(x - m), W = (Σ₊ + γ·tr Σ·I)^(-1/2) scaled to a root mean square norm of 1, by a released second moment.

    Of [x; 1/2], whose norm is at most sqrt(5)/2 for records at most 1 long, so that it holds the mean too. `damping`
    is γ, a public number: the recipe sets it by the noise of Σ, which must not be taken for structure.
    """

    share: float
    damping: float
    phase: ClassVar[Phase | None] = Phase.MOMENTS

    def __post_init__(self) -> None:
        check_share(self.share)
        if not is_number(self.damping) or not self.damping > 0:
            raise InputError(f"damping is {shown(self.damping)}; expected a number above 0")

    def width(self, features: int) -> int:
        return features

    def client(self, door: Any, features: int) -> dict[str, Any]:
        def vector(x: Any, y: Any) -> Any:
            return jnp.concatenate([x, jnp.full((1,), _HALF, x.dtype)])

        clip = math.sqrt(1 + _HALF**2)
        return {"second": door.second_moment(vector, clip=clip, share=self.share, label="feature second moment")}

    def fitted(self, released: Released, std: float) -> Map:
        mean, matrix = self.affine(released, std)
        return lambda x: _capped((x - mean) @ matrix)

    def affine(self, released: Released, std: float) -> Affine:
        moment = np.asarray(released["second"], np.float64)
        mean = moment[-1, :-1] / _HALF
        trace = max(1 - float(mean @ mean) + len(mean) * (std / _HALF) ** 2 / 2, 0.01)
        values, vectors = np.linalg.eigh(moment[:-1, :-1] - np.outer(mean, mean))
        values = np.maximum(values, 0.0) / trace
        shrunk = 1 / np.sqrt(values + self.damping)
        length = math.sqrt(max(float(np.sum(values * shrunk**2)), 1e-9))
        return mean, (vectors * (shrunk / length)) @ vectors.T / math.sqrt(trace)


_HALF = 0.5


def second_moment_noise(features: int, std: float) -> float:
    """About how far symmetric noise of this std moves an eigenvalue of Σ: the largest of its own, sqrt(2·p)·std."""
    return math.sqrt(2 * features) * std


def check_share(share: Any) -> None:
    if not is_number(share) or not 0 < share < 1:
        raise InputError(f"share is {shown(share)}; expected a part of the budget between 0 and 1")


def _unit(x: np.ndarray) -> np.ndarray:
    """Rows of norm 1; a row of zeros stays one. Divided by the largest first, so that no square is lost."""
    x = np.asarray(x, np.float64)
    largest = np.max(np.abs(x), axis=1, keepdims=True, initial=0.0)
    x = x / np.where(largest > 0, largest, 1.0)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norm > 0, norm, 1.0)


def _capped(x: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return (RADIUS * x * np.minimum(1.0, CAP / np.maximum(norm, 1e-30))).astype(np.float32)
