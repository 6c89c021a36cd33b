"""Files that are whole or absent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Any], Any]) -> None:
    """Write a file beside its place and move it there: an interrupt leaves the old file or the new, never half."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            write(file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
