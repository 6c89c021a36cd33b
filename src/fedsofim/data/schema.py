"""A public schema: what the columns of a table mean, said by people and not read off the private records.

Numbers with public ranges, categories, booleans, dates, how gaps are filled, which column is the label, which names a
person, which are left out. A range or a list of categories that was read off the records tells about them:
`from_records` marks it until somebody who knows better has replaced it. The same schema reads a table for training, for
prediction and at a node; `columns.py` does the reading, `proposal.py` drafts one.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

from fedsofim.errors import InputError, is_number, one_of, shown, unknown
from fedsofim.files import as_path
from fedsofim.formats import SCHEMA, check_format
from fedsofim.tasks import CLASSES, LABELS, NUMBERS, Task
from fedsofim.tasks import KINDS as TASKS

KINDS = ("number", "category", "boolean", "date", "label", "person", "drop")
MISSING = ("", "NA", "N/A", "NaN", "null", "None", "?")  # how an empty cell is written, in any capitals
WORDS = (("no", "yes"), ("false", "true"), ("0", "1"), ("n", "y"), ("f", "t"), ("nein", "ja"), ("non", "oui"))


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. What does not belong to its kind is left as it is here."""

    name: str
    kind: str
    range: tuple[Any, ...] = ()  # number: two numbers; date: two dates; label: it is a number, or a count
    categories: tuple[str, ...] = ()  # category
    classes: tuple[Any, ...] = ()  # label; left out: those of the training records
    task: str = ""  # label: what is learned of it (tasks.py); left out: a number if it has a range, else classes
    huber: float | None = None  # label that is a number: the error from which on its loss is a straight line
    words: tuple[str, ...] = ()  # boolean, and label of several: what is written for false, and for true
    missing: Any = None  # what a gap is filled with, beside an indicator; None: gaps are an error
    decimal: str = "."  # number
    format: str = ""  # date: as strptime has it; left out: YYYY-MM-DD
    unit: str = ""
    group: bool = False  # accuracy is told for each of its values
    from_records: tuple[str, ...] = ()  # which of the above were read off the private records

    def plain(self) -> dict[str, Any]:
        """What was said, and nothing that was not."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items() if v != _DEFAULTS.get(k)}


_DEFAULTS = {f.name: f.default for f in fields(Column)}
_BELONGS = {
    "number": {"range", "missing", "decimal", "unit"},
    "category": {"categories", "missing", "group"},
    "boolean": {"words", "missing", "group"},
    "date": {"range", "missing", "format"},
    "label": {"classes", "task", "range", "huber", "words", "decimal", "unit"},
    "person": set(),
    "drop": set(),
}


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Columns in the order of their features, and the words of an empty cell."""

    columns: tuple[Column, ...]
    missing: tuple[str, ...] = MISSING

    def __post_init__(self) -> None:
        if not isinstance(self.columns, tuple) or not all(isinstance(c, Column) for c in self.columns):
            raise InputError(f"the schema's columns are {shown(self.columns)}; expected a tuple of columns")
        if not isinstance(self.missing, tuple) or not all(isinstance(word, str) for word in self.missing):
            raise InputError(f"the schema's words for a gap are {shown(self.missing)}; expected a tuple of texts")

    def of_kind(self, *kinds: str) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.kind in kinds)

    @property
    def inputs(self) -> tuple[Column, ...]:
        """The columns that features are made of."""
        return self.of_kind("number", "category", "boolean", "date")

    @property
    def label(self) -> Column | None:
        return next(iter(self.of_kind("label")), None)

    @property
    def task(self) -> Task:
        """What is learned: several columns of kind label are several labels at once, each yes or no."""
        found = self.of_kind("label")
        if len(found) > 1 or (found and found[0].task == LABELS):
            return Task(LABELS)
        if not found:
            return Task()
        column = found[0]
        return Task(column.task or (NUMBERS if column.range else CLASSES), column.range or None, column.huber)

    @property
    def person(self) -> Column | None:
        return next(iter(self.of_kind("person")), None)

    @property
    def leaks(self) -> dict[str, tuple[str, ...]]:
        """What was read off the private records, by column."""
        return {c.name: c.from_records for c in self.columns if c.from_records}

    @property
    def leaks_in_words(self) -> str:
        """The same: "range of 'age', categories and missing of 'sex'"; empty if nothing was."""
        return ", ".join(f"{' and '.join(what)} of '{column}'" for column, what in self.leaks.items())

    def plain(self) -> dict[str, Any]:
        """As plain data; `schema_of` reads it."""
        rest = {} if self.missing == MISSING else {"missing": list(self.missing)}
        return {"format": SCHEMA.writes, **rest, "columns": {c.name: c.plain() for c in self.columns}}


def read_schema(path: str | Path) -> Schema:
    """A schema from its TOML file."""
    path = as_path("the schema", path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; draft a schema with: fedsofim schema TABLE > {path.name}")
    try:
        return schema_of(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InputError(f"{path}: not valid TOML: {problem}") from None


def schema_of(given: Any, origin: str = "the schema") -> Schema:
    """A schema from plain data, every word of it checked.

    >>> schema_of({"columns": {"age": {"kind": "number", "range": [0, 120]}, "ill": {"kind": "label"}}}).inputs[0].range
    (0, 120)
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("columns"), Mapping) or not given["columns"]:
        raise InputError(f"{origin}: has no columns; expected a table [columns.NAME] for each column")
    _known(origin, "key", given, ("format", "missing", "columns"))
    check_format(SCHEMA, given, origin)
    columns = tuple(_column(origin, name, table) for name, table in given["columns"].items())
    schema = Schema(columns=columns, missing=tuple(map(str, given.get("missing", MISSING))))
    if len(found := schema.of_kind("person")) > 1:
        raise InputError(f"{origin}: {' and '.join(c.name for c in found)} are both of kind person; expected one")
    _check_task(origin, schema)
    if not schema.inputs:
        raise InputError(f"{origin}: no column that features are made of; expected a number, category, boolean or date")
    return schema


def as_toml(schema: Schema, comments: Mapping[str, str] | None = None) -> str:
    """A schema as the file people edit; `comments` stand above their columns."""
    lines = [f"format = {SCHEMA.writes}"]
    if schema.missing != MISSING:
        lines.append(f"missing = {_toml(schema.missing)}")
    for c in schema.columns:
        lines += ["", *(f"# {line}" for line in (comments or {}).get(c.name, "").splitlines())]
        lines += [f"[columns.{json.dumps(c.name, ensure_ascii=False)}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in c.plain().items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False)


def plain_dates(value: Any) -> Any:
    """The same with dates as text, for JSON; `schema_of` reads both."""
    if isinstance(value, Mapping):
        return {k: plain_dates(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_dates(v) for v in value]
    return value.isoformat() if isinstance(value, date) else value


# --- checks -------------------------------------------------------------------------------------------------


def _column(origin: str, name: str, given: Any) -> Column:
    where = f"{origin}: column '{name}'"
    if not isinstance(given, Mapping) or "kind" not in given:
        raise InputError(f"{where} has no kind; expected one of {', '.join(KINDS)}")
    one_of(f"kind of column (of '{name}' in {origin})", given["kind"], KINDS)
    belongs = {"kind", "from_records"} | _BELONGS[given["kind"]]
    _known(where, f"key of a {given['kind']}", given, belongs)
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    column = Column(name=name, **_with_dates(where, values))
    _check(where, column)
    return column


def _with_dates(where: str, values: dict[str, Any]) -> dict[str, Any]:
    if values["kind"] != "date":
        return values
    out = dict(values)
    try:
        if "range" in out:
            out["range"] = tuple(_as_date(v) for v in out["range"])
        if out.get("missing") is not None:
            out["missing"] = _as_date(out["missing"])
    except (TypeError, ValueError):
        raise InputError(f"{where}: its range or missing is no date; expected dates like 2024-12-31") from None
    return out


def _as_date(value: Any) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else date(value.year, value.month, value.day)


def _check(where: str, c: Column) -> None:
    if c.kind in ("number", "date") and c.range:
        right = len(c.range) == 2 and (c.kind == "date" or all(map(is_number, c.range)))
        if not right or not c.range[0] < c.range[1]:
            raise InputError(f"{where}: range is {_toml(c.range)}; expected the lower end and the higher one")
    if c.kind == "date" and not c.range:
        raise InputError(f"{where}: a date needs its range, for example range = [2020-01-01, 2025-12-31]")
    if c.kind == "number" and c.missing is not None and not is_number(c.missing):
        raise InputError(f"{where}: missing is {shown(c.missing)}; expected the number that a gap is filled with")
    if c.kind == "category" and (not c.categories or len(set(c.categories)) != len(c.categories)):
        raise InputError(f"{where}: needs its categories, each once, for example categories = ['a', 'b']")
    if c.kind == "category" and any(not isinstance(v, str) for v in c.categories):
        raise InputError(f"{where}: categories are text; write ['1', '2'] for numbers")
    if c.kind == "boolean" and c.words and len(c.words) != 2:
        raise InputError(f"{where}: words are {list(c.words)}; expected what is written for false, and for true")
    if c.kind == "label" and c.classes and (len(c.classes) < 2 or len(set(c.classes)) != len(c.classes)):
        raise InputError(f"{where}: classes are {list(c.classes)}; expected two or more, each once")
    if c.kind == "label" and c.task:
        one_of(f"task (of '{c.name}')", c.task, TASKS)
    if c.kind == "label" and c.words and len(c.words) != 2:
        raise InputError(f"{where}: words are {list(c.words)}; expected what is written for no, and for yes")
    if c.decimal not in (".", ","):
        raise InputError(f"{where}: decimal is {shown(c.decimal)}; expected '.' or ','")


def _check_task(origin: str, schema: Schema) -> None:
    """Labels, and what belongs to them, make sense together."""
    found = schema.of_kind("label")
    try:
        task = schema.task
    except InputError as problem:
        raise InputError(f"{origin}: column '{found[0].name}': {problem}") from None
    for c in found:
        if task.kind == LABELS and (c.classes or c.range or c.task not in ("", LABELS)):
            raise InputError(
                f"{origin}: column '{c.name}' is one of {len(found)} labels, which say yes or no each; leave out its "
                "classes, range and task, or keep one column of kind label"
            )
        if c.classes and not task.by_class:
            raise InputError(f"{origin}: column '{c.name}': classes and {task} contradict each other; give one of them")


def _known(where: str, kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    for key in given:
        if key not in (names := tuple(known)):
            error = unknown(kind, key, names)
            raise InputError(f"{where}: {error}")


def plain_schema(schema: Schema) -> dict[str, Any]:
    """A schema as JSON holds it."""
    return plain_dates(schema.plain())


def numbers_only(names: Iterable[str], labels: Iterable[Column] = ()) -> Schema:
    """The schema of a table that nobody described: numbers as they come, and what is predicted."""
    return Schema(columns=(*(Column(name=name, kind="number") for name in names), *labels))
