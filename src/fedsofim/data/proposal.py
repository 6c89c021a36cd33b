"""A draft of a schema from a table: kinds are guessed, and what was read off the records is marked as such.

Column names and kinds are taken for public. A range, a list of categories, the classes, or that a column has gaps was
seen in the records: whoever publishes the schema, or a model trained with it, publishes that too.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from fedsofim.data.cells import Cells
from fedsofim.data.columns import is_gap, plain_text, with_point
from fedsofim.data.schema import WORDS, Column, Schema, as_toml
from fedsofim.data.targets import Label, label_names
from fedsofim.errors import InputError

FEW = 30  # categories: with more it is free text
MANY = 100  # classes: with more, a label that is a number is learned as one
FORMATS = ("", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")
_PERSON = re.compile(r"patient|subject|user|person|participant|member|mrn", re.IGNORECASE)
_ID = re.compile(r"^$|^unnamed|^index$|(^|[ _.-])(id|nr|no|uuid|key|code)$|^rownames?$|[a-z]Id$", re.IGNORECASE)

HEADER = """\
# The columns of {origin}, drafted by `fedsofim schema`. Complete it from public knowledge.
#
# Whatever stands in a from_records was read off the private records: epsilon does not cover it, and whoever sees this
# file or a model trained with it learns it. Replace those values by what anybody may know (an age lies between 0 and
# 120, whoever was treated), then delete the from_records line.
#
# kind: number (range, unit, decimal), category (categories), boolean (words), date (range, format),
#       label (classes; range, where it is a number; several columns of this kind are yes/no labels),
#       person (an id that is kept: one person's records are never torn apart), drop
# missing = VALUE fills gaps and adds a feature that says so; group = true tells accuracy for each value.
"""


@dataclass(frozen=True)
class Draft:
    """A proposed schema, and what to say about its columns."""

    schema: Schema
    comments: dict[str, str]
    origin: str

    def toml(self) -> str:
        return HEADER.format(origin=self.origin) + as_toml(self.schema, self.comments)


def propose(cells: Cells, label: Label = None) -> Draft:
    """A draft for a table; the label is the column of that name, unless told otherwise. Several are labels at once."""
    chosen = label_names(label) or ("label",)
    if strange := [name for name in chosen if name not in cells.columns]:
        raise InputError(
            f"{cells.origin}: no column '{strange[0]}'; say which column holds the labels (--label NAME); "
            f"{cells.names_in_words}"
        )
    guesses = {name: _guess(name, values, chosen) for name, values in cells.columns.items()}
    schema = Schema(columns=tuple(column for column, _ in guesses.values()))
    return Draft(schema, {name: said for name, (_, said) in guesses.items()}, cells.origin.rpartition("/")[2])


Guess = tuple[Column, str]


def _guess(name: str, values: Sequence[Any], labels: Sequence[str]) -> Guess:
    empty = is_gap(Schema(columns=()))
    there = [v for v in values if not empty(v)]
    gaps = len(there) < len(values)
    seen = sorted({plain_text(v) for v in there})
    if name in labels:
        return _several(name, seen) if len(labels) > 1 else _label(name, there, seen, gaps)
    if not there:
        return Column(name=name, kind="drop"), "every cell is empty"
    whole_or_text = not all(isinstance(v, float) for v in there) and not any("." in s for s in seen)
    if _PERSON.search(name) and whole_or_text and len(seen) > FEW:
        return Column(name=name, kind="person"), "an id of persons: kept, never a feature"
    if _ID.search(name) and len(seen) == len(there) and whole_or_text:
        return Column(name=name, kind="drop"), "an id: all cells differ"
    return (
        _boolean(name, seen, gaps)
        or _number(name, there, gaps)
        or _date(name, there, gaps)
        or _category(name, seen, gaps, len(there))
    )


def _several(name: str, seen: list[str]) -> Guess:
    words = next((w for w in WORDS if {s.lower() for s in seen} <= set(w)), ())
    said = "one of the labels: yes or no" + ("" if words else "; say its two words: words = ['no', 'yes']")
    return Column(name=name, kind="label", words=words), said


def _label(name: str, there: Sequence[Any], seen: list[str], gaps: bool) -> Guess:
    said = "what is predicted" + ("; some cells are empty, which training refuses" if gaps else "")
    guess = _number(name, there, gaps=False) if len(seen) > MANY else None
    if guess is not None and guess[0].range:
        column = Column(
            name=name, kind="label", range=guess[0].range, decimal=guess[0].decimal, from_records=("range",)
        )
        return column, f"{said}, a number: give the range that anybody may know; task = 'counts' if it counts something"
    classes = tuple(map(int, seen)) if all(re.fullmatch(r"-?\d{1,15}", s) for s in seen) else tuple(seen)
    return Column(name=name, kind="label", classes=tuple(sorted(classes)), from_records=("classes",)), said


def _boolean(name: str, seen: list[str], gaps: bool) -> Guess | None:
    for words in WORDS:
        if len(seen) == 2 and {s.lower() for s in seen} == set(words):
            return _with_gap(Column(name=name, kind="boolean", words=words), words[0], gaps), ""
    return None


def _number(name: str, there: Sequence[Any], gaps: bool) -> Guess | None:
    for decimal in (".", ","):
        try:
            numbers = [_as_number(v, decimal) for v in there]
        except (TypeError, ValueError):
            continue
        low, high = min(numbers), max(numbers)
        if low == high:
            return Column(name=name, kind="drop"), "all cells are the same"
        ends = tuple(int(v) if float(v).is_integer() else v for v in (low, high))
        column = Column(name=name, kind="number", range=ends, decimal=decimal, from_records=("range",))
        return _with_gap(column, _middle(low, high), gaps), "give the range that anybody may know, and a unit"
    return None


def _as_number(value: Any, decimal: str) -> float:
    found = float(with_point(value) if decimal == "," and isinstance(value, str) else value)
    if not math.isfinite(found):
        raise ValueError(value)
    return found


def _middle(low: float, high: float) -> float | int:
    middle = (low + high) / 2
    return int(middle) if middle.is_integer() else middle


def _date(name: str, there: Sequence[Any], gaps: bool) -> Guess | None:
    for form in FORMATS:
        try:
            days = [_as_date(v, form) for v in there]
        except (TypeError, ValueError):
            continue
        if min(days) == max(days):
            return Column(name=name, kind="drop"), "all cells are the same"
        column = Column(name=name, kind="date", range=(min(days), max(days)), format=form, from_records=("range",))
        return _with_gap(column, min(days), gaps), "give the first and the last day that anybody may know"
    return None


def _as_date(value: Any, form: str) -> date:
    if hasattr(value, "year"):
        return date(value.year, value.month, value.day)
    text = value.strip()
    return datetime.strptime(text, form).date() if form else date.fromisoformat(text)


def _category(name: str, seen: list[str], gaps: bool, records: int) -> Guess:
    if len(seen) > FEW or (records > FEW and len(seen) > records / 2):
        return Column(name=name, kind="drop"), f"{len(seen)} different texts: left out, unless they can be grouped"
    if len(seen) < 2:
        return Column(name=name, kind="drop"), "all cells are the same"
    column = Column(name=name, kind="category", categories=tuple(seen), from_records=("categories",))
    return _with_gap(column, "(missing)", gaps), "list the categories that anybody may know; others count as unknown"


def _with_gap(column: Column, fill: Any, gaps: bool) -> Column:
    """Filled from the draft's own middle; that there are gaps at all was seen in the records."""
    if not gaps:
        return column
    return Column(**{**vars(column), "missing": fill, "from_records": (*column.from_records, "missing")})
