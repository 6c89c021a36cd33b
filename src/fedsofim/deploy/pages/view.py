"""What a page shows, as plain data: rendered once by the server, and kept up to date by a script from the same data.

Whatever is text here may have been written by a stranger. `words` makes one line of printable letters of it; that it
stays text is the template's and the script's part.
"""

import math
import time
from dataclasses import dataclass
from enum import StrEnum

from fedsofim.core.budget import WITHOUT

NONE = "\N{EN DASH}"  # in a cell where there is nothing to say
_LONGEST = 400  # letters of one text
_ROUNDING = 1e-6  # relative, as at the cap: a job calibrated to 0.5 has spent 0.5, not 0.5001


class Tone(StrEnum):
    """How something is said; the page's colours follow from it."""

    PLAIN = ""
    SOFT = "soft"
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Cell:
    text: str
    tone: Tone = Tone.PLAIN
    whole: str = ""  # what a short text stands for, told by pointing at it


@dataclass(frozen=True)
class Column:
    label: str
    kind: str = ""  # "number", "wide", "long": may take several lines, "strip": of equal signs


def columns(*labels: str) -> tuple[Column, ...]:
    """Columns by their labels; what kind one is stands before a colon.

    >>> columns("Job", "number: Rounds")
    (Column(label='Job', kind=''), Column(label='Rounds', kind='number'))
    """
    return tuple(Column(label, kind) for kind, _, label in (text.rpartition(": ") for text in labels))


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str
    empty: str  # said where there are no rows


@dataclass(frozen=True)
class Gauge:
    """How much of something is used up or done."""

    label: str
    value: str
    rest: str
    part: float  # 0 to 1
    ends: tuple[str, str]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Figure:
    """One number with its name."""

    name: str
    label: str
    value: str


@dataclass(frozen=True)
class Curve:
    """Something measured after rounds, as points of a picture 100 wide and 30 high, and what it says in words."""

    label: str
    points: str
    ends: tuple[str, str]  # below and above
    words: str


@dataclass(frozen=True, kw_only=True)
class View:
    """One page at one moment."""

    title: str
    about: str
    state: Cell
    doing: str = ""  # what it does besides
    notices: tuple[str, ...]
    gauge: Gauge
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    curve: Curve | None = None
    stopped: bool | None = None  # None: there is nothing to stop here
    at: str = ""


def words(text: object) -> str:
    """One line of printable letters, not too many; what is not printable (also what turns text round) shows as such.

    >>> words("a" + chr(0x202E) + "b" + chr(10) + "c")
    'a�b�c'
    """
    short = str(text)[: _LONGEST + 1]
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in short)
    return shown if len(short) <= _LONGEST else shown[:_LONGEST] + "…"


def brief(text: str, most: int = 8) -> Cell:
    """The beginning of a long name; the whole of it is told by pointing at it."""
    shown = words(text)
    return Cell(shown if len(shown) <= most + 2 else shown[:most] + "…", whole=shown)


def epsilon_up(value: float) -> str:
    """What was spent, never less than it was.

    >>> epsilon_up(0.50001), epsilon_up(0.5), epsilon_up(math.inf)
    ('0.5001', '0.5000', 'no-privacy')
    """
    return f"{math.ceil(value * (1 - _ROUNDING) * 1e4) / 1e4:.4f}" if math.isfinite(value) else WITHOUT


def epsilon_down(value: float) -> str:
    """What is left, never more than it is.

    >>> epsilon_down(0.49999), epsilon_down(-0.1)
    ('0.4999', '0.0000')
    """
    return f"{max(math.floor(value * (1 + _ROUNDING) * 1e4), 0) / 1e4:.4f}" if math.isfinite(value) else WITHOUT


def short(value: float) -> str:
    """A number of a policy's.

    >>> short(1e-5), short(2.0)
    ('1e-5', '2')
    """
    return f"{value:g}".replace("e-0", "e-")


def moment(at: float) -> Cell:
    """A time of this machine's clock; the whole date by pointing at it."""
    try:
        there = time.localtime(at)
    except (OverflowError, ValueError, OSError):  # no such year
        return Cell(NONE)
    today = there[:3] == time.localtime()[:3]
    return Cell(time.strftime("%H:%M:%S" if today else "%d %b %H:%M", there), whole=time.strftime("%F %T %z", there))
