"""The program run in this process, as the tests of commands ask it."""

import json
from collections.abc import Callable

import pytest

from commands import run_here


@pytest.fixture
def call(capsys, monkeypatch) -> Callable:
    """What a command did: its exit code and what it printed."""
    return lambda *args: run_here(capsys, monkeypatch, *args)


@pytest.fixture
def asked(call) -> Callable[..., dict]:
    """What a command that works says with --json."""

    def ask(*args) -> dict:
        done = call(*args, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return ask
