"""Files that are not what an option expects are errors in one line, in every command that reads them."""

from pathlib import Path

import pytest

from commands import in_process

DATA = ("--dataset", "digits", "--clients", 2, "--epsilon", 1)
PLAN = ("plan", "--clients", 5, "--records", 300, "--features", 16, "--classes", 3, "--epsilon", 2)
JUNK = bytes(range(128, 256))


def _error(*args: object) -> str:
    done = in_process(*args)
    assert done.returncode == 2 and done.stderr.startswith("error: "), done.stderr[-600:]
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "args",
    [("run", *DATA, "--budgets"), (*PLAN, "--cells"), ("compare",), ("run", *DATA, "--schema")],
    ids=["budgets", "cells", "experiment", "schema"],
)
def test_a_file_that_is_no_text_is_an_error(args: tuple[object, ...], tmp_path: Path):
    (path := tmp_path / "bad.csv").write_bytes(JUNK)
    assert str(path) in _error(*args, path)


def test_a_picture_of_an_unknown_kind_is_an_error(tmp_path: Path):
    assert "expected .png, .svg or .pdf" in _error(*PLAN, "--picture", tmp_path / "plan.toml")
    assert not list(tmp_path.iterdir())


def test_an_empty_name_of_a_file_is_an_error():
    assert "expected a file's name" in _error("partition", "--dataset", "digits", "--clients", 2, "--out", "")


@pytest.mark.parametrize("rounds", ["9" * 40, "9" * 400])
def test_too_many_rounds_to_count_are_an_error(rounds: str):
    assert "expected at most 1000000000" in _error("run", *DATA, "--rounds", rounds)


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "def mine():\n    raise SystemExit(3)"])
@pytest.mark.parametrize("option", ["--method", "--model"])
def test_a_file_that_ends_the_process_is_an_error(option: str, text: str, tmp_path: Path):
    (path := tmp_path / "mine.py").write_text(text + "\n")
    assert "SystemExit" in _error("run", *DATA, "--rounds", 1, option, path)
