"""One server at a time works on a job's folder: two would ask the same nodes about different rounds."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from fedsofim.errors import InputError

LOCK = "server.lock"  # of a job's folder; the file stays, the lock ends with its process


class JobBusyError(InputError):
    """Another process works on this job."""


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a job's folder.

    Raises:
        JobBusyError: If another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise JobBusyError(f"{folder}: another server works on this job; wait until it has ended, or choose another "
                           "folder with --job") from None  # fmt: skip
    try:
        yield
    finally:
        lock.release()


def check_free(folder: Path) -> None:
    """An error if a server works on the job now."""
    if folder.is_dir():
        with alone(folder):
            pass
