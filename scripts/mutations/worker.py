"""One worker: a process that has imported everything slow, and forks for each mutant before JAX starts any thread.

    python worker.py COPY    reads {"file", "text", "tests", "timeout"} and writes {"outcome", ...}, one JSON a line

`fedsofim` itself is not imported here: the fork imports it, with the bug, from the worker's own copy of the tree.
"""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

#: Slow, and not ours. None of these may start JAX's backend.
IMPORTS = (
    "jax", "jax.numpy", "optax", "scipy.stats", "scipy.optimize", "pytest", "hypothesis.strategies", "sqlite3",
    "_hypothesis_pytestplugin", "dp_accounting.pld",
)  # fmt: skip
OPTIONAL = ("torch",)  # started no thread either: that is for the first backward pass
OPTIONS = ("-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist")
_OURS = 70  # exit code of a fork in which something else than a test failed


def main() -> None:
    copy = Path(sys.argv[1]).resolve()
    os.chdir(copy)
    for name in IMPORTS:
        importlib.import_module(name)
    for name in OPTIONAL:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_tried(copy, json.loads(line))), flush=True)


def _tried(copy: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The tests' verdict on one mutant; the copy is as before afterwards. Without a file: on the tree as it is."""
    if job["file"] is None:
        return _tests(copy, job)
    path = copy / "src" / "fedsofim" / job["file"]
    original = path.read_bytes()
    try:
        path.write_text(job["text"], encoding="utf-8")
        return _tests(copy, job)
    finally:
        path.write_bytes(original)


def _tests(copy: Path, job: dict[str, Any]) -> dict[str, Any]:
    began, log = time.monotonic(), copy / "tests.log"
    child = os.fork()
    if child == 0:
        _run(copy, log, job["tests"])
    status, cpu = _waited(child, began + job["timeout"])
    if status is not None and os.waitstatus_to_exitcode(status) == _OURS:  # no verdict of any test
        raise RuntimeError(f"a worker failed: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")
    outcome = "timed out" if status is None else "survived" if status == 0 else "killed"
    words = log.read_text(encoding="utf-8", errors="replace").splitlines()
    times = {"seconds": round(time.monotonic() - began, 2), "cpu": round(cpu, 2)}
    return {"outcome": outcome, "by": _noticed_by(words), "log": words, **times}


def _run(copy: Path, log: Path, tests: list[str]) -> None:
    """In the fork: the tests, in a process group of their own. Never returns."""
    code = _OURS
    try:
        os.setsid()
        out = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        found = importlib.util.find_spec("fedsofim")
        if found is None or not str(found.origin).startswith(str(copy)):
            raise RuntimeError(f"fedsofim would be imported from {found and found.origin}, not from {copy}")
        import pytest
        from _pytest.assertion.rewrite import AssertionRewritingHook

        # it would say, and our settings make an error of it, that hypothesis was imported before pytest began
        AssertionRewritingHook._warn_already_imported = lambda self, name: None
        code = int(
            pytest.main(["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", *tests])
        )
        sys.stdout.flush()
    except BaseException as error:  # whatever it is, it ends here
        traceback.print_exception(error)
    finally:
        os._exit(code)


def _waited(child: int, until: float) -> tuple[int | None, float]:
    """How the fork ended, None if it had to be ended with all it started; and the seconds it computed."""
    ended = None
    while ended is None and time.monotonic() < until:
        time.sleep(0.02)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # before it is reaped: its number is still its own
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return None if ended is None else status, used.ru_utime + used.ru_stime


def _noticed_by(words: list[str]) -> str:
    for line in reversed(words):
        if line.startswith(("FAILED", "ERROR")):
            return line.split(" - ")[0].split(maxsplit=1)[1]
    return words[-1][:120] if words else ""


if __name__ == "__main__":
    main()
