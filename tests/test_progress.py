"""Where progress can be written over it is a bar, in a notebook's shell cell a few lines, elsewhere nothing."""

import pytest
from rich.console import Console

from fedsofim.progress import SILENT, progress_bar


def test_a_shell_cell_of_a_notebook_gets_a_line_for_each_quarter(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    with progress_bar("grid", 312) as progress:
        for done in range(1, 313):
            progress.at(done)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["grid: 25 %", "grid: 50 %", "grid: 75 %", "grid: 100 %"]


def test_without_a_terminal_nothing_is_printed(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: False))
    with progress_bar("grid", 3) as progress:
        assert progress is SILENT
    assert capsys.readouterr().err == ""
