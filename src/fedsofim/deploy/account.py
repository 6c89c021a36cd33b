"""A node's own ledger: one SQLite file that only ever grows, written to disk before anything leaves.

The order is: check the cap and write the charge in one transaction, fsync, tell the witness, only then draw noise;
store the reply, fsync, only then send it. A crash anywhere leaves the charge in place: the ledger may count too much,
never too little. Jobs, runs, servers and restarts share the one file.

**One question, one answer, for ever.** The noise of a request is a function of the job's secret and of the request
(noise.py `request_secret`), so whoever asks again gets the same bits and learns nothing: it is free. A reply is kept
for a few rounds; later, or after a crash, it is computed again. Of every answer that was ever stored the digest stays,
and an answer that came out otherwise (after a change of software) does not leave.
"""

import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedsofim.core.phase import Phase
from fedsofim.deploy import ledger_file
from fedsofim.deploy.chain import Link, first_link
from fedsofim.deploy.ledger_file import COLUMNS, append, last_link
from fedsofim.deploy.lines import Line, within_cap
from fedsofim.deploy.stopping import check_going
from fedsofim.errors import Refused

_REPLIES_KEPT = 3  # of a job: a server that resumes goes back one round at most
_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What one request is about, for the ledger."""

    job: str
    terms: str  # the job as JSON
    data: str  # fingerprint of the records
    phase: Phase
    round: int
    digest: str  # of everything asked
    in_order: bool  # must rounds come one after another, each with one question only?


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much a ledger takes in, whatever it costs: its operator's, see policy.py."""

    requests: int = 20_000
    requests_an_hour: int = 10_000
    stored: int = 256_000_000  # bytes of replies and of what clients remember


class Opened(NamedTuple):
    """A charged ask; `reply` is set where the same question was answered before and the answer is still kept."""

    number: int
    secret: bytes  # the job's
    reply: bytes | None
    spent: float | None = None  # epsilon of the whole ledger with this charge; None: it was charged before


class Answered(NamedTuple):
    """A request that was answered: its job's terms, and the job's secret."""

    terms: str
    secret: bytes


class Standing(NamedTuple):
    """Which ledger it is, and how it ends."""

    ledger: str
    last: Link


@dataclass(frozen=True)
class Account:
    """The ledger file of one node's data; its witness is where the policy says, or in the user's state folder."""

    path: Path
    witness: Path | None = None

    def _used(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return ledger_file.used(self.path, self.witness)

    def create(self) -> None:
        """An empty ledger, where there never was one."""
        ledger_file.create(self.path, self.witness)

    def open_ask(
        self, ask: Ask, lines: Sequence[Line], *, cap: float, delta: float, fresh_secret: bytes,
        bounds: Bounds = Bounds(),
    ) -> Opened:  # fmt: skip
        """Charge a request, on disk, or refuse it; a question that was charged before is free."""
        with self._used() as db:
            check_going(self.path)
            secret = _job(db, ask, fresh_secret)
            before = db.execute(
                "SELECT id, digest, answer, reply FROM asks WHERE job=? AND phase=? AND round=? ORDER BY id",
                (ask.job, ask.phase, ask.round),
            ).fetchall()
            same = [(number, answer, reply) for number, digest, answer, reply in before if digest == ask.digest]
            for number, answer, reply in same:
                if reply is not None and _digest(reply) != answer:
                    raise sqlite3.DatabaseError(f"the reply stored for ask {number} is not the one that was given")
                return Opened(number, secret, reply)
            if ask.in_order:
                _check_order(db, ask, only_question=not before)
            _check_bounds(db, bounds)
            spent = within_cap(_lines(db), lines, cap, delta)
            number = _insert(db, ask, lines)
            append(db, "charge", number, self.witness)
        return Opened(number, secret, None, spent)

    def close_ask(self, number: int, reply: bytes, memory: bytes, stored: int = Bounds.stored) -> None:
        """Keep what is about to leave, and what the client remembers, before it leaves; never a second answer."""
        with self._used() as db:
            (answer,) = db.execute("SELECT answer FROM asks WHERE id=?", (number,)).fetchone()
            if answer is not None and answer != _digest(reply):
                raise Refused(
                    "this question was answered before, and the same answer can no longer be computed (has this node's "
                    "software changed?); another one would be a second release. Start a new job"
                )
            db.execute(
                "UPDATE asks SET answer=?, reply=?, memory=? WHERE id=?", (_digest(reply), reply, memory, number)
            )
            if answer is None:
                append(db, "answer", number, self.witness)
            db.execute(
                "UPDATE asks SET reply=NULL, memory=NULL WHERE job=(SELECT job FROM asks WHERE id=?) AND round < "
                "(SELECT round FROM asks WHERE id=?) - ?",
                (number, number, _REPLIES_KEPT),
            )
            _forget(db, number, stored)

    def memory(self, job: str, round: int) -> bytes | None:
        """What the client kept after a round of a job."""
        with self._used() as db:
            row = db.execute(
                "SELECT memory FROM asks WHERE job=? AND phase='round' AND round=? AND memory IS NOT NULL "
                "ORDER BY id DESC LIMIT 1",
                (job, round),
            ).fetchone()
        return row[0] if row else None

    def has_answered(self, digest: str) -> bool:
        """Was this question answered? Asking it again is free."""
        with self._used() as db:
            query = "SELECT EXISTS (SELECT 1 FROM asks WHERE digest=? AND answer IS NOT NULL)"
            return bool(db.execute(query, (digest,)).fetchone()[0])

    def has_charged(self, digest: str) -> bool:
        """Was this question charged? Asking it again is free."""
        with self._used() as db:
            return bool(db.execute("SELECT EXISTS (SELECT 1 FROM asks WHERE digest=?)", (digest,)).fetchone()[0])

    def charged_rounds(self, job: str) -> set[tuple[str, int]]:
        """Phase and round of every question of a job that was charged."""
        with self._used() as db:
            return {(phase, round) for phase, round in db.execute("SELECT phase, round FROM asks WHERE job=?", (job,))}

    def answered(self, digest: str) -> Answered | None:
        """The request of this digest, if it was answered here."""
        query = "SELECT terms, secret FROM asks JOIN jobs USING (job) WHERE digest=? AND answer IS NOT NULL"
        with self._used() as db:
            row = db.execute(query, (digest,)).fetchone()
        return Answered(*row) if row else None

    def tell(self, digest: str, present: Sequence[str]) -> tuple[str, ...]:
        """Whom the sum of an answered request is over, as this node was first told: on disk, and never another set."""
        with self._used() as db:
            (ask,) = db.execute("SELECT MIN(id) FROM asks WHERE digest=? AND answer IS NOT NULL", (digest,)).fetchone()
            return tuple(json.loads(ledger_file.tell(db, ask, json.dumps(list(present)), self.witness)))

    def check(self, lines: Sequence[Line], *, cap: float, delta: float) -> float:
        """The epsilon spent once these are added; Refused above the cap. Nothing is written."""
        with self._used() as db:
            return within_cap(_lines(db), lines, cap, delta)

    def standing(self) -> Standing:
        """Which ledger it is and how it ends, if its node may go on with it."""
        with self._used() as db:
            return Standing(_identity(db), last_link(db))

    # --- for anybody who has the file ---

    def identity(self) -> str:
        with ledger_file.read(self.path) as db:
            return _identity(db)

    def entries(self, through: int | None = None) -> list[tuple[str, Line]]:
        """(job, line) of every charge up to the number `through`, oldest first."""
        with ledger_file.read(self.path) as db:
            return [(job, line) for _, job, line in _charges(db, through)]

    def last(self) -> int:
        """Number of the newest charge; 0 for an empty ledger."""
        with ledger_file.read(self.path) as db:
            return db.execute("SELECT COALESCE(MAX(id), 0) FROM charges").fetchone()[0]

    def link(self, count: int | None = None) -> Link | None:
        """The chain's end, or its link after so many entries; None if it has fewer."""
        with ledger_file.read(self.path) as db:
            end = last_link(db)
            if count is None or count == end.number:
                return end
            if count == 0:
                return first_link(_identity(db))
            row = db.execute("SELECT number, link FROM chain WHERE number=?", (count,)).fetchone()
            return Link(*row) if row else None

    def terms(self) -> dict[str, dict[str, Any]]:
        """Each job's terms, oldest first."""
        with ledger_file.read(self.path) as db:
            return {job: json.loads(terms) for job, terms in db.execute("SELECT job, terms FROM jobs ORDER BY began")}

    def requests(self, last: int) -> Iterator[tuple[str, str, int, float, bool]]:
        """(job, phase, round, when, answered) of the last so many requests, newest first."""
        with ledger_file.read(self.path) as db:
            query = "SELECT job, phase, round, at, answer IS NOT NULL FROM asks ORDER BY id DESC LIMIT ?"
            yield from db.execute(query, (last,)).fetchall()


# --- rows ---------------------------------------------------------------------------------------------------


def _identity(db: sqlite3.Connection) -> str:
    return db.execute("SELECT value FROM meta WHERE key='id'").fetchone()[0]


def _digest(reply: bytes) -> str:
    return hashlib.sha256(reply).hexdigest()


def _job(db: sqlite3.Connection, ask: Ask, fresh_secret: bytes) -> bytes:
    """The job's secret. Terms and records may not change under a job's name."""
    db.execute(
        "INSERT OR IGNORE INTO jobs VALUES (?, ?, ?, ?, ?)", (ask.job, ask.terms, ask.data, fresh_secret, time.time())
    )
    terms, data, secret = db.execute("SELECT terms, data, secret FROM jobs WHERE job=?", (ask.job,)).fetchone()
    if terms != ask.terms:
        raise Refused(f"job {ask.job} was begun under other terms; start a new job")
    if data != ask.data:
        raise Refused(f"the node's records changed since job {ask.job} began; start a new job")
    return secret


def _check_order(db: sqlite3.Connection, ask: Ask, only_question: bool) -> None:
    """Where noise comes back in later rounds, a second question of a round would carry the first one's noise."""
    if not only_question:
        raise Refused(f"round {ask.round + 1} was asked before with other numbers, and its noise must not meet both")
    done = db.execute(
        "SELECT COUNT(DISTINCT round) FROM asks WHERE job=? AND phase=? AND round < ?", (ask.job, ask.phase, ask.round)
    ).fetchone()[0]
    if done != ask.round:
        raise Refused(f"round {ask.round + 1} was asked before round {done + 1}; this method's noise needs every round")


def _check_bounds(db: sqlite3.Connection, bounds: Bounds) -> None:
    """However little they cost, requests are work: every one is kept for ever, and counted at every later one."""
    asked = db.execute("SELECT COUNT(*) FROM asks").fetchone()[0]
    if asked >= bounds.requests:
        raise Refused(f"this node's ledger holds {asked} requests, the most that its operator allows")
    lately = db.execute("SELECT COUNT(*) FROM asks WHERE at > ?", (time.time() - _HOUR,)).fetchone()[0]
    if lately >= bounds.requests_an_hour:
        raise Refused(f"{lately} requests in the last hour are the most that this node's operator allows; ask later")


def _forget(db: sqlite3.Connection, newest: int, stored: int) -> None:
    """Drop the oldest stored replies until what is left fits; the newest one always stays."""
    sizes = db.execute(
        "SELECT id, LENGTH(reply) + LENGTH(memory) FROM asks WHERE reply IS NOT NULL ORDER BY id DESC"
    ).fetchall()
    total = 0
    for number, size in sizes:
        total += size
        if total > stored and number != newest:
            db.execute("UPDATE asks SET reply=NULL, memory=NULL WHERE id=?", (number,))


def _insert(db: sqlite3.Connection, ask: Ask, lines: Sequence[Line]) -> int:
    cursor = db.execute(
        "INSERT INTO asks (job, phase, round, digest, at) VALUES (?, ?, ?, ?, ?)",
        (ask.job, ask.phase, ask.round, ask.digest, time.time()),
    )
    number = int(cursor.lastrowid or 0)
    db.executemany(
        "INSERT INTO charges VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [(number, *astuple(line)) for line in lines]
    )
    return number


def _charges(db: sqlite3.Connection, through: int | None = None) -> list[tuple[int, str, Line]]:
    wanted = ", ".join(f"charges.{name}" for name in COLUMNS)
    rows = db.execute(
        f"SELECT charges.id, asks.job, {wanted} FROM charges JOIN asks ON charges.ask = asks.id "
        "WHERE ? IS NULL OR charges.id <= ? ORDER BY charges.id",
        (through, through),
    )
    return [(number, job, Line(**dict(zip(COLUMNS, rest, strict=True)))) for number, job, *rest in rows]


def _lines(db: sqlite3.Connection) -> list[Line]:
    return [line for _, _, line in _charges(db)]
