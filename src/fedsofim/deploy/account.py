"""A node's own ledger: one SQLite file that only ever grows, written to disk before anything leaves.

The order is: check the cap and write the charge in one transaction, fsync, only then draw noise; store the reply,
fsync, only then send it. A crash anywhere leaves the charge in place: the ledger may count too much, never too
little. Jobs, runs, servers and restarts share the one file.
"""

import contextlib
import json
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from fedsofim.core.phase import Phase
from fedsofim.deploy.lines import Line, within_cap
from fedsofim.errors import InputError, Refused

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    job TEXT PRIMARY KEY, terms TEXT NOT NULL, data TEXT NOT NULL, secret BLOB NOT NULL, began REAL NOT NULL);
CREATE TABLE IF NOT EXISTS asks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL REFERENCES jobs, phase TEXT NOT NULL,
    round INTEGER NOT NULL, digest TEXT NOT NULL, at REAL NOT NULL, reply BLOB, memory BLOB);
CREATE TABLE IF NOT EXISTS charges (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ask INTEGER NOT NULL REFERENCES asks, label TEXT NOT NULL,
    clip REAL NOT NULL, ratio REAL NOT NULL, multiplier REAL NOT NULL, releases INTEGER NOT NULL,
    weight REAL NOT NULL, sample REAL NOT NULL, coordinates INTEGER NOT NULL);
"""
_FORMAT = "1"
_REPLIES_KEPT = 3  # of a job: a server that resumes goes back one round at most


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


class Opened(NamedTuple):
    """A charged ask; `reply` is set where the same question was answered before, at no further charge."""

    number: int
    secret: bytes  # the job's
    reply: bytes | None


@dataclass(frozen=True)
class Account:
    """The ledger file of one node's data."""

    path: Path

    @contextlib.contextmanager
    def _open(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction; what is raised inside undoes it."""
        try:
            with contextlib.closing(self._connect(write)) as db:
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield db
                db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"{self.path}: the ledger cannot be used ({error}); nothing is released") from error

    def _connect(self, write: bool) -> sqlite3.Connection:
        if not self.path.exists():
            if not write:
                raise InputError(f"{self.path}: there is no ledger")
            with contextlib.suppress(FileExistsError):  # it holds secrets of noise: for its owner's eyes only
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("PRAGMA synchronous=EXTRA")  # the journal's removal reaches the disk too
        db.execute("PRAGMA foreign_keys=ON")
        if write:
            db.execute("BEGIN IMMEDIATE")
            self._prepare(db)
            db.execute("COMMIT")
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        for statement in _SCHEMA.split(";\n"):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?), ('id', ?)", (_FORMAT, uuid.uuid4().hex))
        found = db.execute("SELECT value FROM meta WHERE key='format'").fetchone()[0]
        if found != _FORMAT:
            raise InputError(f"{self.path}: a ledger of format {found}; this version reads {_FORMAT}")

    def open_ask(self, ask: Ask, lines: Sequence[Line], *, cap: float, delta: float, fresh_secret: bytes) -> Opened:
        """Charge a request, on disk, or refuse it; a question already answered is answered again for free."""
        with self._open(write=True) as db:
            secret = _job(db, ask, fresh_secret)
            before = db.execute(
                "SELECT id, digest, reply FROM asks WHERE job=? AND phase=? AND round=? ORDER BY id",
                (ask.job, ask.phase, ask.round),
            ).fetchall()
            same = [(number, reply) for number, digest, reply in before if digest == ask.digest]
            for number, reply in same:
                if reply is not None:
                    return Opened(number, secret, reply)
            if ask.in_order:
                _check_order(db, ask, only_question=len(same) == len(before))
            within_cap(_lines(db), lines, cap, delta)
            number = _insert(db, ask, lines)
        return Opened(number, secret, None)

    def close_ask(self, number: int, reply: bytes, memory: bytes) -> None:
        """Keep what is about to leave, and what the client remembers, before it leaves."""
        with self._open(write=True) as db:
            db.execute("UPDATE asks SET reply=?, memory=? WHERE id=?", (reply, memory, number))
            db.execute(
                "UPDATE asks SET reply=NULL, memory=NULL WHERE job=(SELECT job FROM asks WHERE id=?) AND round < "
                "(SELECT round FROM asks WHERE id=?) - ?",
                (number, number, _REPLIES_KEPT),
            )

    def memory(self, job: str, round: int) -> bytes | None:
        """What the client kept after a round of a job."""
        with self._open(write=True) as db:
            row = db.execute(
                "SELECT memory FROM asks WHERE job=? AND phase='round' AND round=? AND memory IS NOT NULL "
                "ORDER BY id DESC LIMIT 1",
                (job, round),
            ).fetchone()
        return row[0] if row else None

    def has_answered(self, digest: str) -> bool:
        """Is the reply to this question stored? Then asking it again is free."""
        with self._open(write=True) as db:
            query = "SELECT EXISTS (SELECT 1 FROM asks WHERE digest=? AND reply IS NOT NULL)"
            return bool(db.execute(query, (digest,)).fetchone()[0])

    def check(self, lines: Sequence[Line], *, cap: float, delta: float) -> float:
        """The epsilon spent once these are added; Refused above the cap. Nothing is written."""
        with self._open(write=True) as db:
            return within_cap(_lines(db), lines, cap, delta)

    def create(self) -> None:
        """An empty ledger, if there is none yet."""
        with self._open(write=True):
            pass

    def identity(self) -> str:
        with self._open() as db:
            return db.execute("SELECT value FROM meta WHERE key='id'").fetchone()[0]

    def entries(self, through: int | None = None) -> list[tuple[str, Line]]:
        """(job, line) of every charge up to the number `through`, oldest first."""
        with self._open() as db:
            return [(job, line) for _, job, line in _charges(db, through)]

    def last(self) -> int:
        """Number of the newest charge; 0 for an empty ledger."""
        with self._open() as db:
            return db.execute("SELECT COALESCE(MAX(id), 0) FROM charges").fetchone()[0]

    def terms(self) -> dict[str, dict[str, Any]]:
        """Each job's terms, oldest first."""
        with self._open() as db:
            return {job: json.loads(terms) for job, terms in db.execute("SELECT job, terms FROM jobs ORDER BY began")}


# --- rows ---------------------------------------------------------------------------------------------------


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
    columns = [f.name for f in fields(Line)]
    wanted = ", ".join(f"charges.{name}" for name in columns)
    rows = db.execute(
        f"SELECT charges.id, asks.job, {wanted} FROM charges JOIN asks ON charges.ask = asks.id "
        "WHERE ? IS NULL OR charges.id <= ? ORDER BY charges.id",
        (through, through),
    )
    return [(number, job, Line(**dict(zip(columns, rest, strict=True)))) for number, job, *rest in rows]


def _lines(db: sqlite3.Connection) -> list[Line]:
    return [line for _, _, line in _charges(db)]
