"""Progress of long work: a bar on a terminal (on stderr, so that output can be piped) or in a notebook, else silence.

    with progress_bar("rounds", total=70) as progress:
        progress.at(10)

Whoever takes a `Progress` may always call it: where nobody looks it is `SILENT`, never None.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Progress:
    """Is told how much is done altogether; this one keeps it to itself."""

    shown = False

    def at(self, done: float) -> None:
        """So much is done."""


SILENT = Progress()


class _Bar(Progress):
    shown = True

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def at(self, done: float) -> None:
        self._bar.update(self._task, completed=done)


_IN_A_CELL = "JPY_PARENT_PID"  # set for a command that a notebook's cell runs: !fedsofim compare ...


class _Lines(Progress):
    """A line for each quarter, where nothing can be written over: a notebook keeps every line that a command prints."""

    shown = True

    def __init__(self, label: str, total: float | None) -> None:
        self._label, self._total, self._quarters = label, total, 0

    def at(self, done: float) -> None:
        quarters = int(4 * done / self._total) if self._total else 0
        if quarters > self._quarters:
            self._quarters = quarters
            print(f"{self._label}: {min(25 * quarters, 100)} %", file=sys.stderr, flush=True)


class _Cell(Progress):
    """A line of a notebook's output that is written over."""

    shown = True

    def __init__(self, label: str, total: float | None, handle: Any) -> None:
        self._label, self._total, self._handle = label, total, handle

    def at(self, done: float) -> None:
        self._handle.update({"text/plain": in_text(self._label, done, self._total)}, raw=True)


def in_text(label: str, done: float, total: float | None) -> str:
    """
    >>> in_text("rounds", 30, 60)
    'rounds [##########----------] 30/60'
    """
    if not total:
        return f"{label} {done:g}"
    full = round(20 * min(done / total, 1))
    return f"{label} [{'#' * full}{'-' * (20 - full)}] {done:g}/{total:g}"


def _in_notebook(label: str, total: float | None) -> Iterator[Progress]:
    from IPython.display import DisplayHandle  # a notebook has it

    handle: Any = DisplayHandle()
    handle.display({"text/plain": in_text(label, 0, total)}, raw=True)
    bar = _Cell(label, total, handle)
    yield bar


@contextmanager
def progress_bar(label: str, total: float | None, *, of_bytes: bool = False) -> Iterator[Progress]:
    """A bar until the block ends; without a terminal, SILENT. `total` None: nobody knows."""
    from rich.console import Console  # slow to import, and most calls show nothing
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    if console.is_jupyter:
        yield from _in_notebook(label, total)
        return
    if console.is_terminal and _IN_A_CELL in os.environ:
        yield _Lines(label, total)
        return
    if not console.is_terminal:
        yield SILENT
        return
    counts = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), *counts)
    with RichProgress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task(label, total=total))
