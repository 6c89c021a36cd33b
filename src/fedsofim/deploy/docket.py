"""What a node was asked and what it decided, for its operator's eyes: also what the ledger does not keep, refusals.

Lines of JSON beside the ledger, in two files of which the older is dropped when the newer is full: at most `MOST`
bytes, however often anybody asks. Questions that cost nothing could be asked until every other line is gone, so a day
has room for `A_DAY` of them; further ones are counted and not listed. With these numbers a line stays for at least 80
days. The file holds requests and reasons, never a record, an answer or a secret. Nothing is decided by it: what cannot
be noted is decided all the same, and what was charged is in the ledger for ever.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path

from fedsofim.deploy.account import Opened
from fedsofim.errors import InputError, Refused, is_number, is_whole

MOST = 100_000_000  # bytes of both files together
A_DAY = 300  # lines a day of what costs nothing
_TEXT, _WHY = 120, 600  # letters of one text in it, and of a reason
_LINE = 2_000  # bytes of a line, about the most


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
    NOT_LISTED = "not listed"  # how many more questions a day had that cost nothing


#: What nobody can cause without spending the budget, or without being the operator.
_BOUNDED = (Verdict.CHARGED, Verdict.STOPPED, Verdict.RESUMED, Verdict.NOT_LISTED)


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
    why: str = ""  # what its operator should know though the question was answered

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
            note = replace(note, why=why) if why else note
            enter(ledger, Visit(at=time.time(), verdict=verdict, who=who, what=what, **vars(note)))


def enter(ledger: Path, visit: Visit) -> None:
    """Write one more line, if it can be written and the day has room for it."""
    with contextlib.suppress(OSError), _alone(ledger.parent):
        today = _day_of(visit.at)
        free = _free_of(ledger)
        if free.day != today:
            if free.left_out:
                _write(ledger, free.as_visit())
            free = _Free(day=today)
        if visit.verdict not in _BOUNDED:
            free = replace(free, asked=free.asked + 1)
        _keep(ledger, free)
        if visit.verdict in _BOUNDED or free.asked <= A_DAY:
            _write(ledger, visit)


def _write(ledger: Path, visit: Visit) -> None:
    most = {"why": _WHY}
    short = {k: v[: most.get(k, _TEXT)] if isinstance(v, str) else v for k, v in asdict(visit).items()}
    line = json.dumps(short).encode() + b"\n"
    path, older = _places(ledger)
    if path.exists() and path.stat().st_size + len(line) > MOST // 2:
        path.replace(older)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(line)


@dataclass(frozen=True)
class _Free:
    """How many questions that cost nothing a day had."""

    day: str = ""
    asked: int = 0

    @property
    def left_out(self) -> int:
        return max(0, self.asked - A_DAY)

    def as_visit(self) -> Visit:
        at = datetime.fromisoformat(self.day).replace(tzinfo=UTC).timestamp() + 86_399
        why = f"{self.left_out} more questions on {self.day} that cost nothing; a day lists {A_DAY} of them"
        return Visit(at=at, verdict=Verdict.NOT_LISTED, why=why)


def _day_of(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):  # the clock is wrong
        return "1970-01-01"


def _free_of(ledger: Path) -> _Free:
    """The count of the last day; none where the file makes no sense."""
    try:
        found = json.loads(_count_of(ledger).read_text())
        date.fromisoformat(found["day"])
        return _Free(str(found["day"]), int(found["asked"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return _Free()


def _keep(ledger: Path, free: _Free) -> None:
    handle = os.open(_count_of(ledger), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(asdict(free), file)


def _count_of(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.docket.count")


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
    free = _free_of(ledger)
    found: list[Visit] = [free.as_visit()] if free.left_out and last > 0 else []
    for path in _places(ledger):
        with contextlib.suppress(OSError):
            for line in reversed(_last_bytes(path, last * _LINE).splitlines()):
                if len(found) == last:
                    return found
                if (visit := _read(line)) is not None:
                    found.append(visit)
    return found


def _last_bytes(path: Path, most: int) -> bytes:
    """The end of a file; its first line may be cut, and then makes no sense."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        return file.read()


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
