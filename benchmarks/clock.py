"""Times that can be compared: everything that is compared takes turns, in one process after another's rest.

A shared machine drifts by more than the differences of interest, so a ratio of two times is only of use where both
were taken in the same minute. A turn begins with a pause in which the threads of whoever ran before fall asleep
(OpenBLAS's workers spin for a tenth of a second after their work is done, on a core that the next one needs), and with
untimed repeats until the system has spread the threads over the cores: rounds come in runs, not alone.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Turn = Callable[[int], list[float]]  # seconds of so many repeats
_REST = 0.2  # seconds
_WARM = 0.05


@dataclass(frozen=True)
class Times:
    """Seconds of all repeats of one thing."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        return min(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """One thing's time over another's: of the medians, and of the minima."""

    median: float
    minimum: float

    @staticmethod
    def of(one: Times, other: Times, scale: float = 1.0) -> "Ratio":
        """
        >>> Ratio.of(Times((2.0, 4.0, 6.0)), Times((1.0, 2.0, 3.0)))
        Ratio(median=2.0, minimum=2.0)
        """
        return Ratio(scale * one.median / other.median, scale * one.minimum / other.minimum)


def timed(run: Callable[[], object]) -> Turn:
    """A function of this process as something that takes turns."""

    def turn(repeats: int) -> list[float]:
        return [seconds(run) for _ in range(repeats)]

    return turn


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def by_turns(runs: Mapping[str, Turn], turns: int = 6, repeats: int = 10) -> dict[str, Times]:
    """Times of several things, round robin; first each runs once untimed, which compiles it."""
    for turn in runs.values():
        turn(1)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, turn in runs.items():
            time.sleep(_REST)
            warm(turn)
            taken[name] += turn(repeats)
    return {name: Times(tuple(values)) for name, values in taken.items()}


def warm(turn: Turn) -> None:
    """Untimed repeats, at least one."""
    until = time.perf_counter() + _WARM
    turn(1)
    while time.perf_counter() < until:
        turn(1)
