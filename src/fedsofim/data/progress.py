"""Progress bars on a terminal, silence elsewhere; on stderr, so that output can be piped."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def progress(*columns: "ProgressColumn") -> "Progress":
    """A bar with a description and these columns."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    shown = (TextColumn("{task.description}"), BarColumn(), *columns)
    return Progress(*shown, console=Console(stderr=True), disable=not sys.stderr.isatty())
