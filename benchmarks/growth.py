"""How the time of a round grows with each size of the problem, and the exponent that a line through it has."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from clock import Ratio, Turn, by_turns, timed
from ours import one_theta, round_of, theta_per_client
from problem import Shape, make

#: What grows, the rest being the reference problem. Clients share 50,000 records among them, all of one size.
AXES: dict[str, tuple[int, ...]] = {
    "records": (12_500, 25_000, 50_000, 100_000, 200_000, 400_000),
    "features": (16, 32, 64, 128, 256, 512),
    "classes": (5, 10, 20, 40, 80, 160),
    "clients": (1, 4, 20, 100, 500, 1_000),
}
ONE, EACH = "one theta", "one theta per client"


@dataclass(frozen=True)
class Curve:
    """Time over the reference round's, both taken in the same minute, at growing sizes."""

    axis: str
    kind: str
    sizes: tuple[int, ...]
    ratios: tuple[float, ...]

    @property
    def exponent(self) -> float:
        return exponent(self.sizes, self.ratios)

    @property
    def last_exponent(self) -> float:
        """Of the last three points, where no fixed cost hides the growth."""
        return exponent(self.sizes[-3:], self.ratios[-3:])


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """k of the least-squares fit time ∝ size^k: a slope in logarithms.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    slope, _ = np.polyfit(np.log(sizes), np.log(times), 1)
    return float(slope)


def shape_at(axis: str, size: int) -> Shape:
    """The reference problem with one size changed; clients are equal where their number is what changes."""
    shape = replace(Shape(), **{axis: size})
    return replace(shape, iid=True) if axis == "clients" else shape


def measure(axis: str, size: int, reference: Turn, turns: int) -> dict[str, float]:
    """One point: both kinds of round on one problem, over the reference round."""
    data = make(shape_at(axis, size))
    rounds = {ONE: timed(round_of(one_theta(data), data)), EACH: timed(round_of(theta_per_client(data), data))}
    times = by_turns(rounds | {"reference": reference}, turns, 3)
    return {kind: Ratio.of(times[kind], times["reference"]).minimum for kind in rounds}


def curves(axis: str, points: dict[int, dict[str, float]]) -> list[Curve]:
    """The points of one axis as curves."""
    sizes = tuple(sorted(points))
    return [Curve(axis, kind, sizes, tuple(points[n][kind] for n in sizes)) for kind in (ONE, EACH)]
