"""CSV and Parquet tables: one record per row, one column of labels, numbers in all others."""

import csv
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.rows import Rows
from fedsofim.errors import InputError

DELIMITERS = ",;\t"
EMPTY = ("", "nan", "null")  #: how a missing label is written


def read_csv(path: Path, label: str | None = None, drop: Sequence[str] = ()) -> Rows:
    """A CSV file with a header line (separated by commas, semicolons or tabs).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "pets.csv").write_text("weight,label\\n4,cat\\n30,dog\\n")
    ...     rows = read_csv(Path(folder) / "pets.csv")
    >>> rows.x.tolist(), rows.y.tolist()
    ([[4.0], [30.0]], ['cat', 'dog'])
    """
    header, lines, cells = _cells(path)
    _check_header(path, header)
    chosen = _label_column(path, header, label)
    labels = np.char.strip(np.array(cells[header.index(chosen)]))
    empty = np.flatnonzero(np.isin(np.char.lower(labels), EMPTY))
    if len(empty):
        raise InputError(f"{path}: line {lines[empty[0]]} has no label (column '{chosen}'); fill it or remove the line")
    columns = _features(path, header, chosen, drop)
    x = np.column_stack([_numbers(path, column, cells[header.index(column)], lines) for column in columns])
    return Rows.of(x, _whole_numbers(labels), str(path), columns, lambda row: f"line {lines[row]}")


def read_parquet(path: Path, label: str | None = None, drop: Sequence[str] = ()) -> Rows:
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
    header = table.column_names
    _check_header(path, header)
    chosen = _label_column(path, header, label)
    columns = _features(path, header, chosen, drop)
    for column in (chosen, *columns):
        _check_nulls(path, column, table[column].to_pylist() if table[column].null_count else [])
    y = _label_values(path, chosen, table[chosen])
    return Rows.of(np.column_stack([_arrow_numbers(path, c, table[c]) for c in columns]), y, str(path), columns)


def _cells(path: Path) -> tuple[list[str], list[int], list[tuple[str, ...]]]:
    """The header, the line each record ends on, and the cells of each column as text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(DELIMITERS, key=first.count), strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except (csv.Error, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: not a readable CSV file in UTF-8 ({problem})") from None
    if len(rows) < 2:
        raise InputError(f"{path}: {len(rows)} lines; expected a header line and one line per record")
    (_, header), *records = rows
    for line, row in records:
        if len(row) != len(header):
            raise InputError(f"{path}: line {line} has {len(row)} cells but the header has {len(header)}")
    columns = list(zip(*(row for _, row in records), strict=True))
    return [name.strip() for name in header], [line for line, _ in records], columns


def _check_header(path: Path, header: list[str]) -> None:
    if all(_is_number(name) for name in header):
        raise InputError(f"{path}: the first line holds numbers; expected the names of the columns")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path}: column '{twice[0]}' occurs more than once in the header")


def _label_column(path: Path, header: list[str], label: str | None) -> str:
    chosen = "label" if label is None else label
    if chosen not in header:
        near = get_close_matches(chosen, header, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise InputError(
            f"{path}: no column '{chosen}'{hint} Say which column holds the labels with label=NAME "
            "(--label NAME); "
            f"columns: {', '.join(header[:20])}{', ...' * (len(header) > 20)}"
        )
    return chosen


def _features(path: Path, header: list[str], label: str, drop: Sequence[str]) -> tuple[str, ...]:
    strange = [name for name in drop if name not in header]
    if strange:
        raise InputError(f"{path}: no column '{strange[0]}' to drop; columns: {', '.join(header[:20])}")
    columns = tuple(name for name in header if name != label and name not in drop)
    if not columns:
        raise InputError(f"{path}: no column of features beside the label '{label}'")
    return columns


def _numbers(path: Path, column: str, cells: tuple[str, ...], lines: list[int]) -> np.ndarray:
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
        found = f"text '{cells[row]}'" if cells[row].strip() else "an empty cell"
        raise InputError(
            f"{path}: line {lines[row]}, column '{column}' holds {found}; expected a number. Fix it, or "
            f"leave the column out with drop=['{column}'] (--drop {column})"
        ) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _whole_numbers(labels: np.ndarray) -> np.ndarray:
    """Text that spells whole numbers throughout becomes numbers, so that 10 sorts after 9."""
    try:
        return labels.astype(np.float64)
    except ValueError:
        return labels


def _check_nulls(path: Path, column: str, values: list[Any]) -> None:
    if None in values:
        raise InputError(f"{path}: row {values.index(None)}, column '{column}' is empty; remove or fill it first")


def _label_values(path: Path, column: str, values: Any) -> np.ndarray:
    plain = np.array(values.to_pylist())
    if plain.dtype.kind not in "fiubU":
        raise InputError(f"{path}: label column '{column}' holds {values.type}; expected whole numbers or text")
    return plain


def _arrow_numbers(path: Path, column: str, values: Any) -> np.ndarray:
    plain = values.to_numpy()
    if plain.dtype == bool or plain.dtype.kind in "fiu":
        return plain.astype(np.float64)
    raise InputError(
        f"{path}: row 0, column '{column}' holds {values.type} ('{values[0].as_py()}'); expected numbers. "
        "Fix it, or "
        f"leave the column out with drop=['{column}'] (--drop {column})"
    )
