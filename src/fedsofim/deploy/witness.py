"""What a node remembers of its ledger apart from it: how long it was, how it ended, and the key of its seals.

A ledger that is older than its witness was rolled back; one that ends otherwise has another history. The witness is
written after the ledger and before anything leaves, so that it never knows of more than the ledger, and the ledger
knows at least of all that left. It lies in the user's state folder, unless the policy names a place: not beside the
ledger, so that restoring a folder from a backup does not take both back together.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsofim.deploy.chain import Link
from fedsofim.errors import InputError
from fedsofim.files import write_whole
from fedsofim.formats import WITNESS, check_format

_ADOPT = "If you know that the ledger is its newest copy: fedsofim ledger adopt --policy policy.toml"
_ROOM = "Make room, or let this user write there"


@dataclass(frozen=True, kw_only=True)
class Witness:
    """The last known end of one ledger."""

    ledger: str  # its identity
    where: str  # the file, when it was made
    key: bytes
    last: Link
    signed: Link | None = None  # what the node signed and its ledger did not have, given back by a coordinator


def state_folder() -> Path:
    """Where witnesses are kept: FEDSOFIM_STATE if set, else the user's state folder."""
    own = os.environ.get("FEDSOFIM_STATE")
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(own or f"{base}/fedsofim").expanduser().absolute()


def place_of(identity: str) -> Path:
    return state_folder() / "ledgers" / f"{identity}.json"


def read_witness(path: Path) -> Witness | None:
    """The witness in a file; None if there is no such file."""
    try:
        found = _found(path)
        check_format(WITNESS, found, path)
        last = Link(int(found["count"]), bytes.fromhex(found["digest"]))
        given = found.get("signed")
        signed = None if given is None else Link(int(given[0]), bytes.fromhex(given[1]))
        return Witness(
            ledger=found["ledger"], where=found["where"], key=bytes.fromhex(found["key"]), last=last, signed=signed
        )
    except FileNotFoundError:
        return None
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{path}: the ledger's witness cannot be read ({error}); nothing is released. Restore its newest copy. If "
            f"there is none, put this file aside. {_ADOPT}"
        ) from error


def _found(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def write_witness(path: Path, witness: Witness) -> None:
    """On disk, whole, for its owner's eyes only."""
    found: dict[str, Any] = {"format": WITNESS.writes, "ledger": witness.ledger, "where": witness.where}
    found |= {"key": witness.key.hex(), "count": witness.last.number, "digest": witness.last.digest.hex()}
    if witness.signed is not None:
        found["signed"] = [witness.signed.number, witness.signed.digest.hex()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, lambda file: (os.fchmod(file.fileno(), 0o600), file.write(json.dumps(found).encode())))
    except OSError as error:
        raise InputError(
            f"{path}: the ledger's witness cannot be written ({error}); nothing is released. {_ROOM}"
        ) from error


def advance(path: Path, last: Link) -> None:
    """The witness of a ledger that has grown to this end; one that knows more already stays."""
    with _locked(path):
        known = read_witness(path)
        if known is None:
            raise InputError(f"{path}: the ledger's witness is gone; nothing is released. {_ADOPT}")
        if last.number > known.last.number:
            write_witness(path, replace(known, last=last))


def believe(path: Path, last: Link) -> None:
    """The witness of a ledger that had this end, by its node's own signature, though the ledger does not know it.

    The number may be lower than the one remembered: what went on from an older copy has another link there.
    """
    with _locked(path):
        known = read_witness(path)
        if known is None:
            raise InputError(f"{path}: the ledger's witness is gone; nothing is released. {_ADOPT}")
        write_witness(path, replace(known, signed=last))


def witness_of_place(ledger: Path) -> Path | None:
    """The witness of a ledger that was made in this place, if there is one in the state folder.

    Whatever else is in it, and of whatever version it is: `where` has this meaning in all of them.
    """
    for path in sorted((state_folder() / "ledgers").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, RecursionError):  # one that is damaged is another's trouble
            if _found(path).get("where") == str(ledger):
                return path
    return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two processes of a node may have written one entry each; the later one must not be forgotten."""
    try:
        with path.with_suffix(".lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise InputError(
            f"{path}: the ledger's witness cannot be written ({error}); nothing is released. {_ROOM}"
        ) from error
