"""A newcomer who types what docs/coordinator.md and docs/node.md print, in separate folders, reaches a certificate.

The commands are taken from the pages, in their order; only what is a reader's own is exchanged: the host's name, the
port, and, to be quick, one node in the place of three and two rounds.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import QUICKLY
from not_typed import NOT_TYPED
from typed import about_a_job, shell_lines

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fedsofim.data import load
from fedsofim.data.npz import save_npz
from fedsofim.deploy import processes

LIMIT = 500.0  # seconds for anything to happen, on any machine


def commands(page: str) -> list[str]:
    """What a page tells its reader to type, line by line, up to the certificate.

    Other jobs are not typed (not_typed.py); what is done with a job's model is, in test_tutorials.py, on a table.
    """
    lines = [line for line in shell_lines(f"docs/{page}") if line not in NOT_TYPED]
    return [line for line in lines if line.startswith("fedsofim certificate ") or not about_a_job(line)]


class Reader:
    """Somebody with a folder and a page, who has only a shell in which `fedsofim` is installed."""

    def __init__(self, folder: Path, page: str, own: dict[str, str], environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.lines = commands(page)
        for printed, mine in own.items():
            assert any(printed in line for line in self.lines), f"{page} no longer says {printed}"
            self.lines = [line.replace(printed, mine) for line in self.lines]

    def types(self, *beginning: str) -> str:
        """The next line of the page, which must begin so; what it printed. It must succeed."""
        line = self._next(beginning)
        done = subprocess.run(line, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              timeout=LIMIT)  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def leaves_running(self, *beginning: str) -> contextlib.AbstractContextManager:
        """The same of what goes on until it is stopped."""
        command = [str(self.folder / self._next(beginning))]
        return processes.running(command, self.environment, self.folder / "log")

    def _next(self, beginning: tuple[str, ...]) -> str:
        assert self.lines[0].split()[: len(beginning)] == list(beginning)
        return self.lines.pop(0)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A shell's: `fedsofim` is this source, and nothing is remembered from elsewhere."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "fedsofim"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedsofim "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ.get("PATH", "")])
    yield {**os.environ, **QUICKLY, "PATH": path, "FEDSOFIM_STATE": str(tmp_path / "state")}


@pytest.mark.slow
@pytest.mark.longest
def test_typing_what_the_pages_print_reaches_a_certificate(tmp_path: Path, environment: dict[str, str]):
    port, (desk, hospital) = processes.free_port(), (tmp_path / "desk", tmp_path / "hospital")
    desk.mkdir()
    own = {"fl.example.org": "127.0.0.1", "9092": str(port), "--nodes 3": "--nodes 1", " --schema schema.toml": "",
           "--clients 3": "--clients 1 --rounds 2"}  # fmt: skip
    coordinator = Reader(desk, "coordinator.md", own, environment)
    coordinator.types("fedsofim", "federation", "init")
    shutil.move(desk / "fed" / "nodes" / "node-1", hospital)  # handed to its operator
    data = load("digits")
    save_npz(hospital / "records.npz", {"x": data.x_train[:200], "y": data.y_train[:200]})
    operator = Reader(hospital, "node.md", {}, environment)
    with coordinator.leaves_running("fed/server/start-superlink.sh"):
        processes.wait_for(lambda: processes.listening(port), LIMIT, "the SuperLink's start")
        operator.types("fedsofim", "ledger", "create")
        checked = operator.types("./start.sh", "check")
        assert all(line.startswith("ok ") for line in checked.splitlines())
        with operator.leaves_running("./start.sh"):
            assert "finished" in coordinator.types("fedsofim", "serve")
    assert "node-1: epsilon 1 at delta 1e-05" in coordinator.types("fedsofim", "certificate", "show")
    assert "holds" in coordinator.types("fedsofim", "certificate", "verify")
    assert coordinator.lines == operator.lines == []
