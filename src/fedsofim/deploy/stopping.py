"""The operator's stop switch: a file beside the ledger, and nothing is answered while it is there.

Its presence is all that counts, so that it can be set on a full disk, by hand (`touch ledger.db.stopped`), by a command
or by the page. Whatever cannot be looked at counts as stopped. It is looked for before anything is built, again in the
moment of the charge, and again before an answer leaves: what was charged by then stays charged, and is answered for
free once the operator lifts the stop.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fedsofim.errors import InputError, Refused

SAID = "this node was stopped by its operator; nothing is answered until the operator lifts that"


def stop_file(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.stopped")


def stop(ledger: Path) -> bool:
    """Stop the node of this ledger, for good; False if it was stopped already."""
    path = stop_file(ledger)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise InputError(
            f"{path}: the node could not be stopped ({error.strerror}); end its process instead"
        ) from error
    _keep(path.parent)
    return True


def lift(ledger: Path) -> bool:
    """Let it answer again; False if it was not stopped."""
    path = stop_file(ledger)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"{path}: the stop could not be lifted ({error.strerror}); remove that file") from error
    _keep(path.parent)
    return True


def stopped_since(ledger: Path) -> float | None:
    """When the node was stopped, in seconds since 1970; None while it answers."""
    try:
        return os.lstat(stop_file(ledger)).st_mtime
    except FileNotFoundError:
        return None
    except OSError:
        return 0.0  # nobody can tell, so it is


def check_going(ledger: Path) -> None:
    """Refused while the node of this ledger is stopped."""
    if stopped_since(ledger) is not None:
        raise Refused(SAID)


@contextlib.contextmanager
def unless_stopped(ledger: Path) -> Iterator[None]:
    """Refused if the node is stopped before or after what is done inside."""
    check_going(ledger)
    yield
    check_going(ledger)


def _keep(folder: Path) -> None:
    """A file that came or went is so after a power cut too, where the file system can promise it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
