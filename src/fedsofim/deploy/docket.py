"""What a node was asked and what it decided, for its operator's eyes: also what the ledger does not keep, refusals.

Lines of JSON beside the ledger, in two files of which the older is dropped when the newer is full: at most `MOST`
bytes, however often anybody asks. It holds requests and reasons, never a record, an answer or a secret. Nothing is
decided by it: what cannot be noted is decided all the same, and what was charged is in the ledger for ever.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

from fedsofim.deploy.account import Opened
from fedsofim.errors import InputError, Refused, is_number, is_whole

MOST = 1_000_000  # bytes of both files together
_TEXT = 600  # letters of one text in it


class Verdict(StrEnum):
    """What became of a question."""

    CHARGED = "charged"  # and answered
    FREE = "free"  # asked and charged before; the same answer again
    ALLOWED = "allowed"  # a whole job was asked about, and nothing spent
    STATED = "stated"  # the account was asked for
    REFUSED = "refused"
    FAILED = "failed"  # no answer, and not for a reason of the policy's
    STOPPED = "stopped"  # the operator's own doing, like the next
    RESUMED = "resumed"


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One question, or one act of the operator."""

    at: float  # seconds since 1970
    verdict: Verdict
    who: str = ""  # the run, and the SuperLink it came through
    what: str = ""
    job: str = ""
    method: str = ""
    phase: str = ""
    round: int | None = None  # from 0
    why: str = ""
    ask: int | None = None  # number of the charge in the ledger
    spent: float | None = None  # epsilon of the whole ledger with it; None where nothing was charged


# --- written by the node ------------------------------------------------------------------------------------


@dataclass
class Note:
    """What is known of a question while it is decided."""

    job: str = ""
    method: str = ""
    phase: str = ""
    round: int | None = None
    ask: int | None = None
    spent: float | None = None

    def charged(self, opened: Opened) -> None:
        self.ask, self.spent = opened.number, opened.spent


@contextlib.contextmanager
def noted(ledger: Path, who: str, what: str, verdict: Verdict | None, note: Note) -> Iterator[None]:
    """Enter what comes of a question: this verdict if all is well, nothing if that is None, and any failure."""
    why = ""
    try:
        yield
    except (Refused, InputError) as error:
        verdict, why = Verdict.REFUSED, str(error)
        raise
    except BaseException as error:
        verdict, why = Verdict.FAILED, f"{type(error).__name__}; the log says more"
        raise
    finally:
        if verdict is Verdict.CHARGED and note.spent is None:
            verdict = Verdict.FREE
        if verdict is not None:
            enter(ledger, Visit(at=time.time(), verdict=verdict, who=who, what=what, why=why, **vars(note)))


def enter(ledger: Path, visit: Visit) -> None:
    """One more line, if it can be written."""
    short = {k: v[:_TEXT] if isinstance(v, str) else v for k, v in asdict(visit).items()}
    line = json.dumps(short).encode() + b"\n"
    path, older = _places(ledger)
    with contextlib.suppress(OSError), _alone(ledger.parent):
        if path.exists() and path.stat().st_size + len(line) > MOST // 2:
            path.replace(older)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(line)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes of a node must not both put the newer file in the place of the older."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _places(ledger: Path) -> tuple[Path, Path]:
    return ledger.with_name(f"{ledger.name}.docket"), ledger.with_name(f"{ledger.name}.docket.older")


# --- read by whoever looks ----------------------------------------------------------------------------------


def visits(ledger: Path, last: int) -> list[Visit]:
    """The last so many, newest first; a line that makes no sense is left out."""
    found: list[Visit] = []
    for path in _places(ledger):
        with contextlib.suppress(OSError):
            for line in reversed(path.read_bytes().splitlines()):
                if len(found) == last:
                    return found
                if (visit := _read(line)) is not None:
                    found.append(visit)
    return found


def _read(line: bytes) -> Visit | None:
    try:
        given = json.loads(line)
        values = {f.name: given[f.name] for f in fields(Visit)}
        texts = all(isinstance(values[name], str) for name in ("who", "what", "job", "method", "phase", "why"))
        whole = all(values[name] is None or is_whole(values[name]) for name in ("round", "ask"))
        numbers = is_number(values["at"]) and (values["spent"] is None or is_number(values["spent"]))
        return Visit(**{**values, "verdict": Verdict(values["verdict"])}) if texts and whole and numbers else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
