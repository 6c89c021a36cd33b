"""Commands as a user types them: in a process of their own, or, for what only reads its arguments, in this one."""

import contextlib
import io
import subprocess
import sys
import traceback
from typing import Any, NamedTuple

import pytest

from fedsofim.cli.app import main

#: For processes of which it is not what JAX compiles that is tested (conftest.py: `quickly_compiled`).
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
COMMAND = [sys.executable, "-m", "fedsofim"]


def run(*args: Any, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, **kwargs)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: Any) -> Done:
    """The same in this process, which saves the seconds that importing takes."""
    monkeypatch.setattr(sys, "argv", ["fedsofim", *map(str, args)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return Done(int(ended.value.code or 0), said.out, said.err)


def in_process(*args: Any) -> Done:
    """The same without pytest: what it printed, a traceback as a shell would show it, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["fedsofim", *map(str, args)]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                code = ended.code
            except BaseException:  # the caller looks for it, as a user would
                traceback.print_exc()
                code = 1
    finally:
        sys.argv = before
    return Done(int(code or 0), out.getvalue(), err.getvalue())
