"""Which requests a node holds: being worked on by a live process now, or answered and stored.

A node that is killed at work loses the request, and whoever asked would wait in vain. So a worker locks a file of the
request's own, beside the ledger, for as long as it works. The lock is the operating system's and dies with its process,
whatever kills it; a process's number could be another's by then. Whoever asks the same meanwhile waits for the lock,
finds the stored answer and pays nothing: no question is worked on twice at a time.

What is told of it depends on requests only, and only on the one that the asker names.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO

from fedsofim.deploy.account import Account
from fedsofim.errors import InputError


class Holding(StrEnum):
    """How a node stands to a request."""

    WORKING = "working"  # a live process is at it
    ANSWERED = "answered"  # the reply is stored; asked again it comes back for free
    NOTHING = "nothing"  # never seen, refused, or lost with the process that worked on it


def holding_of(account: Account, digest: str) -> Holding:
    """How the node of this ledger stands to the request of this digest."""
    if _at_work(_place(account.path, digest)):
        return Holding.WORKING
    return Holding.ANSWERED if account.has_answered(digest) else Holding.NOTHING


@contextmanager
def held(ledger: Path, digest: str) -> Iterator[None]:
    """Hold a request while working on it; waits while another process does."""
    path = _place(ledger, digest)
    with _locked(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # a killed process leaves the file, but nobody who locks it


def sweep(ledger: Path) -> None:
    """Remove what killed processes left: files that nobody locks."""
    for path in ledger.with_name(f"{ledger.name}.held").glob("*"):
        with contextlib.suppress(OSError), path.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)  # whoever waits for the lock sees that, and makes another


def _place(ledger: Path, digest: str) -> Path:
    if not re.fullmatch("[0-9a-f]{64}", digest):  # it may come from a server, and becomes a file's name
        raise InputError("the request's digest makes no sense; expected 64 hexadecimal digits")
    return ledger.with_name(f"{ledger.name}.held") / digest


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    while True:
        with _opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(path, file):  # else it was unlinked while we waited, and a new one may be locked by another
                yield
                return


def _opened(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return path.open("wb")
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be written ({error}); nothing is released") from error


def _is_still(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _at_work(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not see each other
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
