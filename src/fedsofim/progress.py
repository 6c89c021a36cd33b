"""Progress of long work: a bar on a terminal, silence elsewhere; on stderr, so that output can be piped.

    with progress_bar("rounds", total=70) as progress:
        progress.at(10)

Whoever takes a `Progress` may always call it: where nobody looks it is `SILENT`, never None.
"""

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
    if not console.is_terminal:
        yield SILENT
        return
    counts = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), *counts)
    with RichProgress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task(label, total=total))
