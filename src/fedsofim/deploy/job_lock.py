"""One server at a time works on a job's folder: two would ask the same nodes about different rounds."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from fedsofim.errors import InputError

_LOOK = 0.5  # seconds between looks whether it has ended
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


def wait_until_free(folder: Path, seconds: float) -> None:
    """Wait for another server's end: one whose SuperLink was killed takes a while to notice.

    Raises:
        JobBusyError: If it works on the job still.
    """
    end, said = time.monotonic() + seconds, False
    while folder.is_dir():
        try:
            with alone(folder):
                return
        except JobBusyError:
            if time.monotonic() >= end:
                raise
        if not said:
            print(f"another server works on {folder}; waiting {seconds:g} s for its end", flush=True)
            said = True
        time.sleep(min(_LOOK, seconds))
