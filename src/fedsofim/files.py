"""Files that are whole or absent, and the folders where fetched, compiled and extracted ones are kept."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedsofim.errors import InputError, shown


def write_whole(path: Path, write: Callable[[Any], Any]) -> None:
    """Write a file beside its place and move it there: an interrupt or a crash leaves the old file or the new."""
    if not path.name:
        raise InputError(f"{path}: is a folder; expected a file's name")
    part = path.with_name(path.name + ".part")
    try:
        with naming(path), part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an error of the operating system the name of the file it is about: a full disk names none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextmanager
def together(folder: Path) -> Iterator[Path]:
    """Write several files into a folder, all of them or none.

    Yields:
        A folder beside them to write into. Its files take their places when the block ends without an error.
    """
    part = folder / f".part-{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        for file in sorted(part.iterdir()):
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def as_folder(path: Path) -> Path:
    """Make a folder if it is not there; InputError if it is a file or cannot be written to."""
    check_free(path, (), force=True)
    return path


def write_text(path: Path, text: str) -> None:
    """A text file, whole or absent."""
    write_whole(path, lambda file: file.write(text.encode()))


def as_path(what: str, given: Any) -> Path:
    """Return a path as people give it; InputError for anything else, such as the text of a table."""
    if not isinstance(given, str | Path) or not str(given).isprintable():
        raise InputError(f"{what} is {shown(given)}; expected a path")
    return Path(given)


def data_folder() -> Path:
    """Where extracted features are kept and looked up by name: FEDSOFIM_DATA if set, else the user's data folder."""
    import platformdirs

    return Path(os.environ.get("FEDSOFIM_DATA") or platformdirs.user_data_dir("fedsofim"))


def check_free(folder: Path, files: Iterable[str], force: bool) -> None:
    """Make a folder for files to come, before the work on them: one that is there already is kept unless forced."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; expected a folder, or a name that is free")
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        raise InputError(
            f"{folder}: holds {', '.join(there)} already; choose another folder, or overwrite with force=True (--force)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: cannot be written to; choose another folder")


def check_free_file(path: Path, force: bool) -> None:
    """The same of one file."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; expected the name of a file")
    if path.exists() and not force:
        raise InputError(f"{path}: is there already; choose another name, or overwrite it (--force)")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.absolute().parent}; make it first")


def cache_folder() -> Path:
    """Where downloads and compiled code are kept: FEDSOFIM_CACHE if set, else the system's cache folder."""
    import pooch  # slow to import

    return Path(os.environ.get("FEDSOFIM_CACHE") or pooch.os_cache("fedsofim"))
