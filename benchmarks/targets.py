"""What was promised, beside what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clock import Ratio

Sense = Literal["at most", "at least"]


@dataclass(frozen=True)
class Target:
    """A bound and what was measured against it; None: could not be measured, and `note` says why."""

    what: str
    sense: Sense
    bound: float
    measured: Ratio | None
    unit: str = "x"
    note: str = ""

    @property
    def verdict(self) -> str:
        """Met only if both the medians and the minima meet the bound: one of them alone may be luck.

        >>> Target("a", "at most", 1.5, Ratio(1.6, 1.4)).verdict
        'not met (minima only)'
        """
        if self.measured is None:
            return "not measured"
        median, minimum = (self._holds(v) for v in (self.measured.median, self.measured.minimum))
        if median and minimum:
            return "met"
        return "not met" + (" (minima only)" if minimum else " (medians only)" if median else "")

    @property
    def met(self) -> bool:
        return self.verdict == "met"

    def _holds(self, value: float) -> bool:
        return value <= self.bound if self.sense == "at most" else value >= self.bound


def row(target: Target) -> list[str]:
    """One line of the table of targets."""
    bound = f"{'≤' if target.sense == 'at most' else '≥'} {target.bound:g} {target.unit}"
    if target.measured is None:
        return [target.what, bound, "—", "—", f"{target.verdict}: {target.note}"]
    values = [number(v, target.unit) for v in (target.measured.median, target.measured.minimum)]
    return [target.what, bound, *values, f"**{target.verdict}**" + (f"; {target.note}" if target.note else "")]


def number(value: float, unit: str = "x") -> str:
    """Three digits, as far as a ratio of times deserves.

    >>> number(0.0123), number(1.234), number(45.67), number(2.0, "s")
    ('0.012 x', '1.23 x', '45.7 x', '2.00 s')
    """
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}".rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; all columns but the first and the last are numbers."""
    align = ["---", *["--:"] * (len(header) - 2), "---"] if len(header) > 2 else ["---", "--:"]
    lines = [list(header), align, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
