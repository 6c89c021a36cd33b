"""Cells into features by a schema: every problem of a table found before any is told, each with its row and column.

    number     v -> 2·(v - low)/(high - low) - 1 within its public range, cut at ±1; without a range as it is
    category   one feature for each, and one for whatever is not listed
    boolean    0 or 1
    date       as a number of days

Where gaps are allowed they are filled with a public value, and one more feature says that there was one.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any

import numpy as np

from fedsofim.data.cells import Cells, listed, raise_all
from fedsofim.data.schema import WORDS, Column, Schema

UNKNOWN, GAP = "(unknown)", "(missing)"
FEW = 5  # strange values of a column that are named


@dataclass(frozen=True)
class Remark:
    """What a reader should know. `details` say where in the table. Neither quotes a cell."""

    text: str
    details: str


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Features (records x features, float32) with their names, and what a reader should know."""

    x: np.ndarray
    names: tuple[str, ...]
    remarks: tuple[Remark, ...] = ()


def feature_names(schema: Schema) -> tuple[str, ...]:
    """The features a schema gives, in their order."""
    return tuple(name for column in schema.inputs for name in _names(column))


def encode(schema: Schema, cells: Cells) -> Encoded:
    """The features of a table. One error tells everything that is wrong with it."""
    check_columns(schema, cells)
    found, problems = features_of(schema, cells)
    raise_all(cells.origin, *problems)
    return found


def features_of(schema: Schema, cells: Cells) -> tuple[Encoded, list[list[str]]]:
    """The features of a table that has all columns, and what is wrong with it, column by column."""
    done = [_encoded(schema, column, cells) for column in schema.inputs]
    x = np.concatenate([part.block for part in done], axis=1, dtype=np.float32)
    found = Encoded(x=x, names=feature_names(schema), remarks=tuple(r for part in done for r in part.remarks))
    return found, [part.problems for part in done]


def check_columns(schema: Schema, cells: Cells) -> None:
    """Every column that features are made of is there, by its name; order does not matter."""
    raise_all(cells.origin, absent(schema, cells))


def absent(schema: Schema, cells: Cells) -> list[str]:
    """Columns that features are made of and that a table does not have, in one sentence."""
    missing = [repr(c.name) for c in schema.inputs if c.name not in cells.columns]
    said = f"no column {listed(missing)}, which the schema has; {cells.names_in_words}"
    return [said] if missing else []


def strangers(schema: Schema, cells: Cells) -> list[str]:
    """Columns of a table that a schema does not know."""
    known = {c.name for c in schema.columns}
    return [name for name in cells.header if name not in known]


def texts(cells: Cells, name: str) -> np.ndarray:
    """A column as text, for persons and groups."""
    return np.array([plain_text(cell) for cell in cells.columns[name]], dtype=str)


def plain_text(cell: Any) -> str:
    """A cell as people write it.

    >>> plain_text(" a "), plain_text(3.0), plain_text(None)
    ('a', '3', '')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def is_gap(schema: Schema) -> Callable[[Any], bool]:
    """Is a cell empty, by the schema's words?"""
    words = {word.lower() for word in schema.missing}

    def gap(cell: Any) -> bool:
        if isinstance(cell, str):
            return cell.strip().lower() in words
        return cell is None or cell != cell or str(cell) in ("NaT", "<NA>")  # NaN is not itself

    return gap


# --- one column ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    block: np.ndarray
    problems: list[str]
    remarks: list[Remark]


def _names(column: Column) -> list[str]:
    own = [column.name]
    if column.kind == "category":
        own = [f"{column.name} = {value}" for value in (*column.categories, UNKNOWN)]
    return own + ([f"{column.name} {GAP}"] if column.missing is not None else [])


def _encoded(schema: Schema, column: Column, cells: Cells) -> _Part:
    empty, read = is_gap(schema), READERS[column.kind](column)
    values: list[Any] = []
    problems: list[str] = []
    gaps = np.zeros(len(cells), bool)
    for row, cell in enumerate(cells.columns[column.name]):
        value: Any = None
        try:
            gaps[row] = empty(cell)
            value = _filled(column) if gaps[row] else read(cell)
        except Wrong as wrong:
            problems.append(f"{cells.place(row)}, column '{column.name}' {wrong}")
        values.append(value)
    if problems:
        return _Part(np.zeros((len(cells), len(_names(column)))), problems, [])
    block, remarks = _BLOCKS[column.kind](column, values, partial(_strange, column.name, cells))
    if column.missing is not None:
        block = np.concatenate([block, gaps[:, None]], axis=1, dtype=np.float64)
    return _Part(block, [], remarks)


class Wrong(Exception):
    """What is wrong with a cell."""


def _filled(column: Column) -> Any:
    if column.kind == "boolean" and column.missing is not None:
        return _boolean(column)(column.missing)
    if column.missing is None:
        raise Wrong(
            "is empty; fill it, or say in the schema what a gap is filled with (missing = ...), "
            "or leave the column out (kind = 'drop')"
        )
    return column.missing


_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?([eE][+-]?\d+)?")


def with_point(text: str) -> str:
    """A number with a decimal comma, as Python writes it; points may stand between thousands and nowhere else.

    >>> with_point("1.234,5"), with_point("7")
    ('1234.5', '7')
    """
    if not _COMMA.fullmatch(text.strip()):
        raise ValueError(text)
    return text.strip().replace(".", "").replace(",", ".")


def _number(column: Column) -> Callable[[Any], float]:
    def read(cell: Any) -> float:
        try:
            value = float(with_point(cell) if column.decimal == "," and isinstance(cell, str) else cell)
        except (TypeError, ValueError):
            raise Wrong("holds text; expected a number") from None
        if not math.isfinite(value) or abs(value) > 3e38:  # float32 has no more
            raise Wrong("is not finite, or too large for float32; expected a finite number")
        return value

    return read


def _category(column: Column) -> Callable[[Any], str]:
    return plain_text


def _boolean(column: Column) -> Callable[[Any], float]:
    pairs = (column.words,) if column.words else WORDS
    known = {word.lower(): float(i) for pair in pairs for i, word in enumerate(pair)}
    if column.words:
        known |= {"false": 0.0, "true": 1.0}  # as data frames have them

    def read(cell: Any) -> float:
        text = plain_text(cell).lower()
        if text not in known:
            raise Wrong(f"holds another word; expected one of {', '.join(known)}")
        return known[text]

    return read


def _date(column: Column) -> Callable[[Any], date]:
    def read(cell: Any) -> date:
        if hasattr(cell, "year"):
            return date(cell.year, cell.month, cell.day)
        try:
            text = str(cell).strip()
            return datetime.strptime(text, column.format).date() if column.format else date.fromisoformat(text[:10])
        except ValueError:
            raise Wrong(f"holds no such date; expected one like {_example(column)}") from None

    return read


def _example(column: Column) -> str:
    return date(2024, 12, 31).strftime(column.format) if column.format else "2024-12-31"


READERS: dict[str, Callable[[Column], Callable[[Any], Any]]] = {
    "number": _number,
    "category": _category,
    "boolean": _boolean,
    "date": _date,
}


_Say = Callable[[Sequence[int], str], list[Remark]]  # of some rows' cells, if there are any
_Block = tuple[np.ndarray, list[Remark]]


def _number_block(column: Column, values: Sequence[Any], say: _Say) -> _Block:
    x = np.array([float(v) for v in values])
    if not column.range:
        return x[:, None], []
    low, high = map(float, column.range)
    return _scaled(x, low, high, say)


def _scaled(x: np.ndarray, low: float, high: float, say: _Say) -> _Block:
    outside = np.flatnonzero((x < low) | (x > high)).tolist()
    said = say(outside, "lie outside its public range and count as its ends")
    return np.clip(2 * (x - low) / (high - low) - 1, -1, 1)[:, None], said


def _category_block(column: Column, values: Sequence[Any], say: _Say) -> _Block:
    place = {value: i for i, value in enumerate(column.categories)}
    codes = np.array([place.get(str(v), len(place)) for v in values])
    strange = [row for row, v in enumerate(values) if str(v) not in place and v != column.missing]
    said = say(strange, "hold a category that the schema does not list, and count as unknown")
    return np.eye(len(place) + 1)[codes], said


def _boolean_block(column: Column, values: Sequence[Any], say: _Say) -> _Block:
    return np.array([float(v) for v in values])[:, None], []


def _date_block(column: Column, values: Sequence[Any], say: _Say) -> _Block:
    days = np.array([float(v.toordinal()) for v in values])
    low, high = (float(end.toordinal()) for end in column.range)
    return _scaled(days, low, high, say)


def _strange(name: str, cells: Cells, rows: Sequence[int], what: str) -> list[Remark]:
    """Remark on these rows' cells. The details say where they are; no remark quotes what they hold."""
    if not rows:
        return []
    text = f"{len(rows)} cell{'s' * (len(rows) != 1)} of '{name}' {what}"
    first: dict[str, int] = {}  # of each different value, the row where it is first
    for row in rows:
        first.setdefault(plain_text(cells.columns[name][row]), row)
    places = [cells.place(row) for row in list(first.values())[:FEW]]
    rest = f" and {len(first) - FEW} more" if len(first) > FEW else ""
    values = f"{len(first)} different value{'s' * (len(first) != 1)}"
    return [Remark(text, f"{text}: {values}, first in {', '.join(places)}{rest}")]


_BLOCKS: dict[str, Callable[[Column, Sequence[Any], _Say], _Block]] = {
    "number": _number_block,
    "category": _category_block,
    "boolean": _boolean_block,
    "date": _date_block,
}
