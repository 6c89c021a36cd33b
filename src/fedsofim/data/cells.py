"""A table as it is read, before anybody says what its columns mean: from CSV, Parquet, or a data frame."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsofim.errors import InputError

DELIMITERS = ",;\t"
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}")
SHOWN = 20  # columns, or problems of one column, named in one message


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Columns by name, each with its cells as they came: text in a CSV; numbers, dates and None elsewhere too."""

    origin: str
    columns: Mapping[str, Sequence[Any]]
    place: Callable[[int], str] = "row {}".format  # where in the file a record stands
    remarks: tuple[str, ...] = ()  # what a reader should know about how it was read

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def names_in_words(self) -> str:
        """The columns' names for a message, unless they may be a record: a table without a header begins with one."""
        if self.names_are_sure:
            return f"columns: {listed(self.header)}"
        return (
            f"its {len(self.header)} column names are not shown, because they may be values: check that the first line "
            "names the columns"
        )

    @cached_property
    def names_are_sure(self) -> bool:
        """Is the first line no record? It holds no value, and stands over a column of numbers or dates."""
        if any(_is_value(name) or not name.strip() for name in self.header):
            return False
        return any(_of_values(cells) for cells in self.columns.values())

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def read_cells(path: Path) -> Cells:
    """The table in a file, by its kind."""
    return TABLES[path.suffix.lower()](path)


def cells_of_csv(path: Path) -> Cells:
    """A CSV file with a header line, separated by commas, semicolons or tabs; in UTF-8, else in Latin-1."""
    text, remarks = _decoded(path)
    first = text.partition("\n")[0]
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(DELIMITERS, key=first.count), strict=True)
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as problem:
        raise InputError(f"{path}: not a readable CSV file ({problem})") from None
    if len(rows) < 2:
        raise InputError(f"{path}: {len(rows)} lines; expected a header line and one line per record")
    (_, names), *records = rows
    header = [name.strip() for name in names]
    check_header(str(path), header)
    problems = [
        f"line {line} has {len(row)} cells but the header has {len(header)}"
        for line, row in records
        if len(row) != len(header)
    ]
    raise_all(str(path), problems)
    lines = [line for line, _ in records]
    columns = dict(zip(header, zip(*(row for _, row in records), strict=True), strict=True))
    return Cells(origin=str(path), columns=columns, place=lambda row: f"line {lines[row]}", remarks=remarks)


def cells_of_parquet(path: Path) -> Cells:
    """A Parquet file; needs the extra `parquet`."""
    try:
        import pyarrow as pa  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow, which is not installed: pip install 'fedsofim[parquet]'"
        ) from None
    try:
        table = parquet.read_table(path)
    except (pa.ArrowException, OSError) as problem:
        raise InputError(f"{path}: not a readable Parquet file ({str(problem).splitlines()[0]})") from None
    check_header(str(path), table.column_names)
    return Cells(origin=str(path), columns={name: table[name].to_pylist() for name in table.column_names})


def cells_of_frame(frame: Any, origin: str) -> Cells:
    """A data frame of pandas or polars: whatever has `columns` and gives one by its name."""
    names = [str(name) for name in frame.columns]
    check_header(origin, names)
    return Cells(origin=origin, columns={str(name): list(frame[name]) for name in frame.columns})


def is_frame(value: Any) -> bool:
    """Is this a data frame?"""
    return hasattr(value, "columns") and hasattr(value, "__getitem__") and not isinstance(value, Cells)


TABLES: dict[str, Callable[[Path], Cells]] = {
    ".csv": cells_of_csv,
    ".tsv": cells_of_csv,
    ".parquet": cells_of_parquet,
    ".pq": cells_of_parquet,
}


def check_header(origin: str, header: Sequence[str]) -> None:
    if all(_spells_number(name) for name in header):
        raise InputError(f"{origin}: the first line holds numbers; expected the names of the columns")
    places: dict[str, list[int]] = {}
    for number, name in enumerate(header, start=1):
        places.setdefault(name, []).append(number)
    if twice := [found for found in places.values() if len(found) > 1]:
        raise InputError(  # without the name: a table without a header begins with a record
            f"{origin}: the columns {listed(list(map(str, twice[0])))} have the same name in the header; expected a "
            "first line with a name of its own for each column"
        )


def raise_all(origin: str, *kinds: Sequence[str]) -> None:
    """One error that tells everything that is wrong with a file; the first in its first line. Of each kind the first
    few: many problems of one column hide no other's."""
    told = [line for problems in kinds for line in _first(problems)]
    if told:
        raise InputError("\n  ".join([f"{origin}: {told[0]}", *told[1:]]))


def _first(problems: Sequence[str]) -> list[str]:
    rest = [f"and {len(problems) - SHOWN} more of this kind"] if len(problems) > SHOWN else []
    return [*problems[:SHOWN], *rest]


def listed(names: Sequence[Any]) -> str:
    """Names for a message, cut where there are many."""
    return ", ".join(map(str, names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")


def _decoded(path: Path) -> tuple[str, tuple[str, ...]]:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig"), ()
    except UnicodeDecodeError:
        if b"\0" in content:
            raise InputError(f"{path}: not a readable CSV file: it holds zero bytes, so it is no text") from None
        return content.decode("cp1252", errors="replace"), (f"{path.name}: not in UTF-8, so it was read as Latin-1",)


def _of_values(cells: Sequence[Any]) -> bool:
    """Are the first cells of a column numbers or dates, but for empty ones?"""
    some = [cell for cell in cells[:SHOWN] if cell is not None and str(cell).strip()]
    return bool(some) and all(_is_value(str(cell)) for cell in some)


def _is_value(text: str) -> bool:
    """Does a text read as a number or a date?"""
    return _spells_number(text) or _DATE.search(text) is not None


def _spells_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
