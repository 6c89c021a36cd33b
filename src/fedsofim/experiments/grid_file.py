"""Read an experiment from TOML. Every key is checked, and a wrong one is named with the nearest right one."""

import itertools
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedsofim import extensions, models
from fedsofim.core.budget import budget_of
from fedsofim.errors import InputError, is_number, shown, unknown
from fedsofim.experiments.grid import Entry, Experiment, Partition, Standardize
from fedsofim.experiments.reading import Reading
from fedsofim.experiments.whom import KEYS as WHOM
from fedsofim.experiments.whom import Whom, whoms_of
from fedsofim.formats import EXPERIMENT, check_format
from fedsofim.methods import spelled
from fedsofim.tasks import NUMBERS, Task, task_of

_KEYS = ("format", "name", "about", "datasets", "methods", "tuned", "epsilons", "seeds", "partitions", "delta",
         "rounds", "clip", "trust", "weights", "model", "recipe", "label", "drop", "schema", "test", "holdout",
         "clients_from", "standardize", "task", "target_range", "huber", "person_column", *WHOM)  # fmt: skip
#: Of a method's table; all other keys are the method's settings.
_OWN = ("method", "sweep", "search", "recipe", "weights", "epsilons")


def read_experiment(path: Path) -> Experiment:
    """The experiment a TOML file describes; `tuned`, datasets and Python files are found relative to that file."""
    table = read_toml(path)
    check_format(EXPERIMENT, table, path)
    _known(f"key in {path.name}", table, _KEYS)
    table = _with_clients(path, table)
    for needed in ("datasets", "epsilons"):
        if needed not in table:
            raise InputError(f"{path}: {needed} is missing; expected a list")
    own = [e for label, given in _methods(path, table).items() for e in _entries(path, label, given)]
    chosen = (*_tuned(path, table), *own)
    _said_once(path, table, [e.label for e in chosen])
    rest = {k: table[k] for k in ("about", "delta", "rounds", "clip", "trust", "weights", "recipe") if k in table}
    rest |= _model(path, table["model"]) if "model" in table else {}
    rest |= {"standardize": _standardize(path, table["standardize"])} if "standardize" in table else {}
    reading = _reading(path, table)
    return Experiment(
        name=table.get("name", path.stem),
        datasets=tuple(_list(path, table, "datasets", str)),
        entries=chosen,
        epsilons=tuple(_epsilon(path, "epsilons", e) for e in _list(path, table, "epsilons", (int, float, str))),
        seeds=tuple(_list(path, table | {"seeds": table.get("seeds", [0, 1, 2])}, "seeds", int)),
        partitions=tuple(p for given in _dealt(path, table, reading) for p in _partitions(path, given)),
        reading=reading,
        whoms=_whoms(path, table),
        **rest,
    )


def _with_clients(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """A folder of clients' files is the experiment's one dataset, dealt already."""
    if "clients_from" not in table:
        return table
    if both := [key for key in ("datasets", "partitions") if key in table]:
        raise InputError(f"{path}: clients_from and {' and '.join(both)} contradict each other; give one of them")
    return table | {"datasets": [table["clients_from"]], "partitions": [{"kind": "owner"}]}


def _dealt(path: Path, table: dict[str, Any], reading: Reading) -> list[Any]:
    given = table.get("partitions", [_usual(reading)])
    return _of_kind(path, "partitions", given, list, "a list of tables like [{kind = 'iid', clients = 20}]")


def _usual(reading: Reading) -> dict[str, str]:
    """How records are dealt where nobody says it: what has no classes is dealt evenly."""
    return {} if reading.task is None or reading.task.by_class else {"kind": "iid"}


def _whoms(path: Path, table: dict[str, Any]) -> tuple[Whom, ...]:
    """unit = ["record", "person"], records_per_person = 10, participants = 5, batch_rate = 0.1: every combination."""
    try:
        return whoms_of(table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


_READING = {"label": (str, list), "drop": list, "schema": str, "test": str, "holdout": float, "clients_from": str,
            "person_column": str}  # fmt: skip


def _reading(path: Path, table: dict[str, Any]) -> Reading:
    given: dict[str, Any] = {key: table[key] for key in _READING if key in table}
    for key, value in given.items():
        kind = _READING[key]
        if not (is_number(value) if kind is float else isinstance(value, kind)):
            expected = {"drop": "a list of columns", "label": "a column, or a list of them", "holdout": "a number"}
            expected = expected.get(key, "text")
            raise InputError(f"{path}: {key} is {shown(value)}; expected {expected}")
    for key in ("drop", "label"):
        if isinstance(given.get(key), list):
            given[key] = tuple(given[key])
    return Reading(**given, task=_task(path, table))


def _task(path: Path, table: dict[str, Any]) -> Task | None:
    """task = 'numbers', target_range = [0, 100], huber = 5: what is learned of the experiment's own files."""
    names = {"kind": "task", "range": "target_range", "huber": "huber"}
    given = {name: table[key] for name, key in names.items() if key in table}
    if not given:
        return None
    try:
        return task_of({"kind": NUMBERS, **given})
    except (InputError, TypeError) as problem:
        raise InputError(f"{path}: {problem}") from None


def _model(path: Path, given: Any) -> dict[str, Any]:
    """`model = "mlp"`, or a table with its name and settings."""
    table = given if isinstance(given, dict) else {"name": given}
    if not isinstance(table.get("name"), str):
        raise InputError(f"{path}: model is {shown(given)}; expected a name, or {{ name = 'mlp', hidden = [64, 64] }}")
    settings = {key: value for key, value in table.items() if key != "name"}
    return {"model": _found(path, models.spelled(table["name"])), "model_settings": settings}


def _standardize(path: Path, given: Any) -> Standardize | None:
    if given == "recipe":
        return None
    if given == "none":
        return Standardize()
    if not isinstance(given, dict) or not set(given) <= {"share", "radius"} or "share" not in given:
        raise InputError(
            f"{path}: standardize is {shown(given)}; expected 'recipe', 'none', or {{ share = 0.05, radius = 10 }} for "
            "feature moments by that share of the budget"
        )
    return Standardize(**given)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, with errors a reader can act on."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected an experiment in TOML, for example experiments/demo.toml")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def _entries(path: Path, label: str, given: Any) -> Iterable[Entry]:
    """A method's table; `sweep = {rho = [1, 2]}` makes one entry per value."""
    if not isinstance(given, dict) or "method" not in given:
        raise InputError(f"{path}: methods.{label} needs method = NAME, for example method = 'fedsofim'")
    settings = {k: v for k, v in given.items() if k not in _OWN and not isinstance(v, dict)}
    by_epsilon = {
        _epsilon(path, f"methods.{label}", k): v for k, v in given.items() if k not in _OWN and isinstance(v, dict)
    }
    sweep = _of_kind(path, f"methods.{label}.sweep", given.get("sweep", {}), dict, "a table like { rho = [1, 2] }")
    for name, values in sweep.items():
        _of_kind(path, f"methods.{label}.sweep.{name}", values, list, "a list of values")
    for values in itertools.product(*sweep.values()):
        more = dict(zip(sweep, values, strict=True))
        suffix = "".join(f" {k}={v:g}" if isinstance(v, int | float) else f" {k}={v}" for k, v in more.items())
        overridden = {e: {**s, **more} for e, s in by_epsilon.items()}
        yield Entry(
            label + suffix, _beside(path, given["method"]), {**settings, **more}, overridden, given.get("recipe"),
            given.get("weights"), str(given.get("epsilons", "")),
        )  # fmt: skip


def _tuned(path: Path, table: dict[str, Any]) -> Iterable[Entry]:
    """The winners of a search, one entry per label of its file."""
    if "tuned" not in table:
        return
    found = path.parent / _of_kind(path, "tuned", table["tuned"], str, "the name of a file")
    if not found.is_file():
        raise InputError(f"{found}: no such file; make it with: fedsofim tune {path} --out {found}")
    settings = read_toml(found)
    check_format(EXPERIMENT, settings, found)
    for label, given in _methods(found, settings).items():
        yield from _entries(found, label, given)


def _methods(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The tables of the methods, by label."""
    return _of_kind(path, "methods", table.get("methods", {}), dict, "a table like [methods.mine]")


def _of_kind(path: Path, key: str, value: Any, kind: type, expected: str) -> Any:
    if not isinstance(value, kind):
        raise InputError(f"{path}: {key} is {shown(value)}; expected {expected}")
    return value


def _said_once(path: Path, table: dict[str, Any], labels: list[str]) -> None:
    """A search's winner is not lost because its label stands in the file too, nor a row because two share a label."""
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        where = f"in [methods] and in {table['tuned']}" if "tuned" in table else "more than once"
        raise InputError(f"{path}: '{twice[0]}' stands {where}; leave it out of one of them, or give it another label")


def _partitions(path: Path, given: Any) -> Iterable[Partition]:
    """A table of a partition; a list in it makes one partition for each of its values."""
    if not isinstance(given, dict):
        raise InputError(
            f"{path}: partitions holds {shown(given)}; expected tables like {{kind = 'iid', clients = 20}}"
        )
    _known("key of a partition", given, [f.name for f in fields(Partition)])
    values = [value if isinstance(value, list) else [value] for value in given.values()]
    for chosen in itertools.product(*values):
        yield Partition(**dict(zip(given, chosen, strict=True)))


def _epsilon(path: Path, where: str, value: Any) -> float:
    try:
        return budget_of(value, 0.5).epsilon
    except InputError as error:
        raise InputError(f"{path}: {where}: {error}") from None


def _beside(path: Path, name: Any) -> str:
    """A method by its name, or by its file, which is found from the experiment's."""
    return _found(path, spelled(name))


def _found(path: Path, name: Any) -> str:
    return str((path.parent / str(name)).resolve()) if extensions.is_file(name) else str(name)


def _list(path: Path, table: dict[str, Any], key: str, kind: Any) -> list[Any]:
    values = table[key]
    if not isinstance(values, list) or any(not isinstance(v, kind) or isinstance(v, bool) for v in values):
        raise InputError(f"{path}: {key} is {shown(values)}; expected a list like {_EXAMPLES[key]}")
    return values


_EXAMPLES = {"datasets": "['fashion']", "epsilons": "[0.5, 1, 5]", "seeds": "[0, 1, 2]"}


def _known(kind: str, table: Iterable[str], known: Iterable[str]) -> None:
    for key in table:
        if key not in known:
            raise unknown(kind, key, known)
