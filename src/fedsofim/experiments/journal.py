"""A journal: one JSON object a line, each on disk before the next is begun, so that a kill loses at most one."""

import base64
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from fedsofim.errors import InputError
from fedsofim.files import naming
from fedsofim.formats import RUNS as FORMAT
from fedsofim.formats import check_format

RUNS, GRID, LOCK = "runs.jsonl", "grid.json", ".lock"  # the files of a folder of runs


def append(path: Path, run: dict[str, Any]) -> None:
    """One line, on disk when this returns."""
    with naming(path), path.open("ab") as file:
        file.write(json.dumps(run).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def mend(path: Path) -> None:
    """Cut off what a killed process left of its last line."""
    if path.exists():
        os.truncate(path, _whole_bytes(path))


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """The finished runs of a folder; a half-written last line does not count."""
    path = folder / RUNS
    if not path.exists():
        return []
    rows = read_lines(path)
    for row in rows:  # each its own: another version may have gone on where this one stopped
        check_format(FORMAT, row, path)
    return rows


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal; one that is damaged is an error that says which."""
    lines = path.read_bytes()[: _whole_bytes(path)].split(b"\n")
    return [_read(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _read(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
    except ValueError as problem:
        raise InputError(
            f"{path}: line {number} is damaged ({problem}); delete that line, and the command that wrote it does "
            "its work again"
        ) from None
    return found


def _whole_bytes(path: Path) -> int:
    """Length of the part that consists of whole lines."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


@contextmanager
def only_process(out: Path) -> Iterator[None]:
    """Two processes appending to one folder would mix their rows; the lock goes when its process does."""
    with naming(out / LOCK):
        lock = FileLock(out / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"{out}: another process is writing there; wait for it or choose another folder (--out)"
            ) from None
    try:
        yield
    finally:
        lock.release()


def to_text(values: np.ndarray) -> str:
    """Small whole numbers as text.

    >>> from_text(to_text(np.array([3, 1, 2]))).tolist()
    [3, 1, 2]
    """
    return base64.b64encode(zlib.compress(np.asarray(values, "<u2").tobytes(), 9)).decode()


def from_text(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u2").astype(np.int32)
