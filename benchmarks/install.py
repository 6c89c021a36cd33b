"""An environment for the peers alone, next to this file: nothing of theirs is installed anywhere else."""

import functools
import re
import subprocess
import sys
from pathlib import Path

VENV = Path(__file__).parent / ".venv-peers"
PYTHON = VENV / "bin" / "python"


@functools.lru_cache
def install(requirement: str) -> str | None:
    """Install one requirement; None if it is there now, else why not."""
    if not PYTHON.exists():
        failure = _attempt([sys.executable, "-m", "venv", str(VENV)])
        if failure:
            return failure
    return _attempt([str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement])


def _attempt(command: list[str]) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else reason(done.stderr or done.stdout)


def reason(text: str) -> str:
    """The last thing said before giving up, without addresses.

    >>> reason("Traceback\\nERROR: No matching distribution found for nothing (from https://a.b/c)\\n")
    'No matching distribution found for nothing (from ...)'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    return re.sub(r"https?://[^\s)]+", "...", last.removeprefix("ERROR: "))[:200]
