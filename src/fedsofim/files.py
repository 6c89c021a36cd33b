"""Files that are whole or absent, and the folder where fetched and compiled ones are kept."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Any], Any]) -> None:
    """Write a file beside its place and move it there: an interrupt or a crash leaves the old file or the new."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """A text file, whole or absent."""
    write_whole(path, lambda file: file.write(text.encode()))


def cache_folder() -> Path:
    """Where downloads and compiled code are kept: FEDSOFIM_CACHE if set, else the system's cache folder."""
    import pooch  # slow to import

    return Path(os.environ.get("FEDSOFIM_CACHE") or pooch.os_cache("fedsofim"))
