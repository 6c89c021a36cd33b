"""The program run in this process, as the tests of commands ask it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import run_here
from nodes import X, Y, make_node


@pytest.fixture
def call(capsys, monkeypatch) -> Callable:
    """What a command did: its exit code and what it printed."""
    return lambda *args: run_here(capsys, monkeypatch, *args)


@pytest.fixture
def mistake(call) -> Callable[..., str]:
    """Run what must fail: its one line of error."""

    def run(*args) -> str:
        code, _, err = call(*args)
        assert code == 2
        assert "Traceback" not in err
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err

    return run


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A node's policy file, with records and a ledger beside it."""
    make_node(tmp_path / "n", X, Y)
    return tmp_path / "n" / "policy.toml"


@pytest.fixture
def asked(call) -> Callable[..., dict]:
    """What a command that works says with --json."""

    def ask(*args) -> dict:
        done = call(*args, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return ask
