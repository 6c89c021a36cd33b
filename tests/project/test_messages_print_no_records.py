"""No message, warning, log line or repr holds a value of a user's object: marked ones go through all that is public."""

import contextlib
import inspect
import io
import itertools
import json
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedsofim as fs
from commands import in_process
from fedsofim.data import loading
from fedsofim.errors import shown
from fedsofim.experiments.journal import GRID
from toy import make_toy

NAME, NUMBER, WORD = "Anna Maier", 271828.25, "zebra-stripes"
MARKS = (NAME, "271828", WORD)
ROW = {"patient": NAME, "hiv": 1, "cd4": NUMBER}


class Odd:
    """An object whose repr and text hold what it holds."""

    def __repr__(self) -> str:
        return f"Odd({NAME}, {NUMBER})"

    __str__ = __repr__


def marked() -> dict[str, Any]:
    """Objects as users have them, each full of marked values."""
    rows = [{**ROW, "cd4": NUMBER + i, "hiv": i % 2} for i in range(4)]
    return {
        "dict": ROW,
        "list of dicts": rows,
        "tuple": (NAME, 1, NUMBER),
        "list": [NUMBER, NUMBER],
        "nested": {"a": [{"b": (NAME,)}]},
        "set": {NAME},
        "bytes": NAME.encode(),
        "pandas": pd.DataFrame(rows),
        "series": pd.Series([NUMBER, NUMBER]),
        "polars": pl.DataFrame(rows),
        "texts": np.array([NAME, WORD]),
        "objects": np.array([NAME, NUMBER], object),
        "numbers": np.full((3, 2), NUMBER),
        "one number": np.array(NUMBER),
        "jax": jnp.full((2, 2), NUMBER),
        "long text": f"{NAME};1;{NUMBER}\n" * 9,
        "odd": Odd(),
        "generator": (value for value in (NAME, NUMBER)),
    }


class Caught(logging.Handler):
    """Log lines as text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def output_of(call: Callable[[], Any]) -> str:
    """Everything that a call prints, logs, warns of or raises, with the whole chain of errors, and what it gives."""
    out, log = io.StringIO(), Caught()
    logging.getLogger().addHandler(log)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            warnings.catch_warnings(record=True) as w,
        ):
            warnings.simplefilter("always")
            try:
                given = repr(call())
            except Exception as error:
                given = "".join(_told(error))
    finally:
        logging.getLogger().removeHandler(log)
    return "\n".join([out.getvalue(), *log.lines, *(str(one.message) for one in w), given])


def _told(error: BaseException) -> Iterator[str]:
    """The texts of an error and of those it came from; not its lines of source, which hold no values."""
    now: BaseException | None = error
    while now is not None:
        yield "".join(traceback.format_exception_only(now))
        now = now.__cause__ or (None if now.__suppress_context__ else now.__context__)


def assert_unmarked(where: str, text: str) -> None:
    found = [mark for mark in MARKS if mark in text]
    assert not found, f"{where} prints {found}: {text[:600]}"


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    """Arguments that are right, by the names that public functions have for them."""
    dealt = make_toy()
    return {
        "data": dealt.dataset, "split": dealt, "method": fs.fedgd(), "budget": fs.Budget(1), "rounds": 1,
        "clients": 2, "recipe": "paper", "model": fs.softmax_head(), "sizes": (9, 9), "shape": (2,), "classes": 2,
        "epsilon": 1.0, "delta": 1e-5, "mu": 1.0, "name": "fedgd", "module": None, "label": "hiv", "kind": "classes",
    }  # fmt: skip


def test_the_first_call_of_everybody_names_the_way_out():
    with pytest.raises(fs.InputError, match=r"a DataFrame of shape \(1, 2\).*Dataset\.from_frame"):
        fs.load(pd.DataFrame({"patient": [NAME], "hiv": [1]}))  # type: ignore[arg-type]
    with pytest.raises(fs.InputError, match=r"from_arrays"):
        fs.load({"x": [[1.0]]})  # type: ignore[arg-type]


#: Made by the library alone, of what was checked before, or no more than a message.
INTERNAL = {"DataWarning", "InputError", "Refused", "Trained"}
PUBLIC = sorted(n for n in fs.__all__ if callable(getattr(fs, n)) and not n.startswith("_") and n not in INTERNAL)
ALSO = {
    "Dataset.of": fs.Dataset.of,
    "Dataset.from_arrays": fs.Dataset.from_arrays,
    "Dataset.from_frame": fs.Dataset.from_frame,
    "Split.protecting": make_toy().protecting,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PUBLIC, *ALSO])
def test_no_public_function_prints_what_it_was_given(name, good, monkeypatch):
    monkeypatch.setattr(loading, "HOLDOUT", 0.5)
    function = ALSO.get(name) or getattr(fs, name)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return
    known = {p.name: good[p.name] for p in parameters if p.name in good and p.default is inspect.Parameter.empty}
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        for what, value in marked().items():
            required = {
                p.name: value for p in parameters if p.default is inspect.Parameter.empty and p.name not in known
            }
            given = {**required, **known, parameter.name: value}
            said = output_of(lambda f=function, g=given: _describe(f(**g), g))
            assert_unmarked(f"fs.{name}({parameter.name}={what})", said)


def _describe(result: Any, given: dict[str, Any]) -> str:
    """A result's repr; plain containers are what was given, and give it back."""
    return (
        ""
        if type(result) in (dict, list, tuple, str, set) or any(result is v for v in given.values())
        else repr(result)
    )


def test_objects_that_hold_records_have_a_repr_without_them():
    frame = pd.DataFrame({"name": [NUMBER + i for i in range(40)], "label": [WORD, NAME] * 20})
    data = fs.Dataset.from_frame(frame)
    dealt = fs.split(data, clients=2, iid=True, min_size=1)
    run = fs.train(dealt, fs.fedgd(lr=1e-9), fs.Budget(1), rounds=1, recipe="paper")
    for thing in (data, dealt, run, run.plan, run.split):
        for text in (repr(thing), str(thing)):
            assert "271828" not in text
    for wrong in marked().values():
        assert_unmarked("predict", output_of(lambda w=wrong: (run.predict(w), "")[1]))


TABLES = {
    "text among numbers": f"age,label\n1,0\n{NAME},1\n3,0\n",
    "label once": f"age,label\n1,{NAME}\n2,{NAME}\n3,{NAME}\n",
    "no label column": f"age,diagnosis\n{NUMBER},1\n2,0\n",
    "no header": f"{NAME},{NUMBER},1\nPaul Kurz,61,0\n",
    "no header, words": f"{NAME},{WORD}\nPaul Kurz,yes\nMarie Curie,no\n",
    "no header, a cell is empty": f"{NAME},,{WORD}\nPaul Kurz,61,yes\nMarie Curie,60,no\n",
    "no header, a date": f"{NAME},1961-07-04,yes\nPaul Kurz,1970-01-01,no\n",
    "uneven": f"age,label\n1,0,{NAME}\n2,1\n",
    "too large": f"age,label\n{NUMBER}e40,0\n2,1\n",
    "quotes": f'age,label\n"{NAME},0\n2,1\n',
}
SCHEMA = """
[columns]
age = {kind = "number", range = [0, 120]}
seen = {kind = "date", range = ["2020-01-01", "2021-01-01"]}
smokes = {kind = "boolean"}
ward = {kind = "category", categories = ["a", "b"]}
label = {kind = "label", classes = ["no", "yes"]}
"""


@pytest.mark.parametrize("what", TABLES)
@pytest.mark.parametrize("command", ["run", "partition", "privacy"])
def test_no_command_prints_a_cell_of_a_wrong_table(tmp_path, what, command):
    table = tmp_path / "t.csv"
    table.write_text(TABLES[what] + "".join(f"{i},{i % 2}\n" for i in range(8) if what != "no header"))
    budget = [] if command == "partition" else ["--epsilon", 1]
    _, out, err = in_process(command, "--dataset", table, "--clients", 2, *budget)
    assert_unmarked(f"{command} of a table with {what}", out + err)


CELLS = {"age": NAME, "seen": NAME, "smokes": NAME, "ward": WORD, "label": WORD}


@pytest.mark.parametrize("column", CELLS)
def test_no_command_prints_a_cell_that_does_not_fit_the_schema(tmp_path, column):
    fine = {"age": "50", "seen": "2020-06-01", "smokes": "yes", "ward": "a", "label": "no"}
    rows = [{**fine, "age": str(i), "label": ("no", "yes")[i % 2]} for i in range(30)] + [
        {**fine, column: CELLS[column]}
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    where = ["--dataset", tmp_path / "t.csv", "--schema", tmp_path / "schema.toml"]
    said = in_process("run", *where, "--clients", 2, "--partition", "iid", "--rounds", 1)
    assert_unmarked(column, "".join(map(str, said)))


@pytest.mark.parametrize("arrays", [
    {"x_train": np.full((4, 2), NAME), "y_train": np.arange(4) % 2},
    {"x_train": np.full((4, 2), NUMBER), "y_train": np.full(4, NUMBER)},
    {"x_train": np.full((4, 2), NUMBER), "y_train": np.arange(3)},
    {"x": np.full((4, 2), NUMBER)},
])  # fmt: skip
def test_no_command_prints_what_a_wrong_array_holds(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    assert_unmarked("npz", "".join(map(str, in_process("run", "--dataset", str(tmp_path / "a.npz"), "--clients", "2"))))


def test_a_dataset_in_a_file_of_ones_own_that_fails_is_not_quoted(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(f"def mine():\n    return [float(cell) for cell in ['{NAME}']]\n")
    said = "".join(map(str, in_process("run", "--dataset", str(own))))
    assert_unmarked("a failing file", said)
    assert "line 2: ValueError" in said


def test_experiment_files_are_not_quoted_beyond_what_people_type(tmp_path):
    keys, values = ("epsilons", "seeds", "methods", "partitions", "datasets"), ('[{a = "%s"}]', '"%s"')
    for key, value in itertools.product(keys, values):
        lines = {"name": "'e'", "methods": "['fedgd']"} | {key: value % (NAME * 12)}
        (tmp_path / "e.toml").write_text("\n".join(f"{k} = {v}" for k, v in lines.items()))
        said = in_process("compare", tmp_path / "e.toml", "--out", tmp_path / "o")
        assert_unmarked(key, "".join(map(str, said)))


def test_a_damaged_folder_of_runs_is_not_quoted(tmp_path):
    (tmp_path / GRID).write_text(json.dumps({"format": 2, "experiment": {"name": NAME}, "ids": NUMBER}))
    assert_unmarked("report", "".join(map(str, in_process("report", str(tmp_path)))))
    (Path(tmp_path) / GRID).write_text(NAME)
    assert_unmarked("report", "".join(map(str, in_process("report", str(tmp_path)))))


class Told(str):
    """Text that prints as something else."""

    def __str__(self) -> str:
        return NAME

    __repr__ = __str__


class Counted(int):
    __repr__ = Told.__repr__
    __str__ = Told.__str__


class Measured(float):
    __repr__ = Told.__repr__
    __str__ = Told.__str__


class Raising:
    """An object whose every part raises an error that quotes a record."""

    def __len__(self) -> int:
        raise ValueError(NAME)

    @property
    def shape(self) -> Any:
        raise ValueError(NAME)

    def __repr__(self) -> str:
        raise ValueError(NAME)


def _called(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


LYING = {
    "text": Told("x"),
    "whole number": Counted(5),
    "number": Measured(0.5),
    "class": type(NAME, (), {}),
    "object of a class": type(NAME, (), {})(),
    "function": _called(NAME),
    "raising": Raising(),
    "long number": 10**5000,
}


@pytest.mark.parametrize("what", LYING)
def test_an_object_that_prints_as_a_record_is_described(what: str):
    assert_unmarked(what, output_of(lambda: shown(LYING[what])))
    for call in (fs.Budget, fs.load, lambda value: fs.Budget(1, value), lambda value: fs.make(value)):
        assert_unmarked(what, output_of(lambda c=call: c(LYING[what])))


@pytest.mark.parametrize(
    "epsilons", [pd.Series([NAME]), [NAME * 9], pd.DataFrame({NAME * 9: [1]}), pl.Series([NAME * 9])]
)
def test_budgets_of_what_are_no_numbers(epsilons: Any):
    said = output_of(lambda: fs.Budgets.of(epsilons))
    assert "expected a number" in said and said.strip().startswith("fedsofim.errors.InputError")


def test_a_split_is_of_a_dataset():
    for wrong in (pd.Series([NAME], name=NAME), {"name": NAME}):
        with pytest.raises(fs.InputError, match=r"expected a fs\.Dataset"):
            fs.Split(wrong, (), "iid")  # type: ignore[arg-type]


def test_a_first_line_that_is_a_record_is_not_quoted_where_two_cells_are_equal(tmp_path: Path):
    (path := tmp_path / "t.csv").write_text(f"{NAME},{WORD},{WORD}\nPaul,1,0\nMarie,0,1\n")
    said = output_of(lambda: fs.load(path))
    assert_unmarked("twice", said)
    assert "columns 2, 3 have the same name" in said
