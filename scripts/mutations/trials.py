"""Mutants tried side by side, each worker in a copy of the tree of its own; never in the tree itself."""

import compileall
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import Empty, SimpleQueue
from typing import Any

HERE = Path(__file__).resolve().parent
COPIED = ("src", "tests", "examples", "pyproject.toml", "README.md", "docs", "experiments", "scripts", "Makefile")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")


def copy_tree(tree: Path, to: Path) -> Path:
    """The tree as it is now."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, to / name, ignore=_LEFT_OUT)
        elif (tree / name).is_file():
            shutil.copy2(tree / name, to / name)
    return to


def digest_of(tree: Path, part: str) -> str:
    """Of `src` or of `tests`: what a verdict depends on."""
    hasher = hashlib.sha256()
    for path in sorted(p for p in (tree / part).rglob("*") if p.is_file()):
        if "__pycache__" not in path.parts:
            hasher.update(f"{path.relative_to(tree)}\n".encode() + path.read_bytes())
    return hasher.hexdigest()[:16]


class Worker:
    """A worker process and its copy."""

    def __init__(self, tree: Path, folder: Path, cache: Path) -> None:
        copy = copy_tree(tree, folder)
        # .pyc files that are held against the text of their source: quick, and never those of another bug
        compileall.compile_dir(copy / "src", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        paths = os.pathsep.join(str(copy / p) for p in ("src", "tests/support"))
        env = os.environ | {
            "PYTHONPATH": paths,
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "JAX_COMPILATION_CACHE_DIR": str(cache),  # by program: what a bug changes is compiled anew
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        command = [sys.executable, str(HERE / "worker.py"), str(copy)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self._say(None)

    def _say(self, job: Any) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        if job is not None:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("a worker ended; its words are above")
        return answer

    def tried(self, job: dict[str, Any]) -> dict[str, Any]:
        return json.loads(self._say(job))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def workers(tree: Path, folder: Path, count: int) -> Iterator[list[Worker]]:
    """Ready workers, which end with the block."""
    made = [Worker(tree, folder / f"copy{i}", folder / "compiled") for i in range(count)]
    try:
        yield made
    finally:
        for worker in made:
            worker.close()


def all_tried(
    made: Sequence[Worker], jobs: Sequence[dict[str, Any]], done: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    """Every job at whichever worker is free; `done(job, verdict)` is called as each ends, one at a time."""
    waiting: SimpleQueue[dict[str, Any]] = SimpleQueue()
    for job in jobs:
        waiting.put(job)
    lock, errors = threading.Lock(), []

    def work(worker: Worker) -> None:
        try:
            while True:
                job = waiting.get_nowait()
                verdict = worker.tried(job)
                with lock:
                    done(job, verdict)
        except Empty:
            return
        except BaseException as error:  # to be raised where the others are waited for
            errors.append(error)

    threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
