"""A ledger as its operator sees it: all lines, the last requests with theirs; in one look, nothing is written."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from fedsofim.deploy import ledger_file
from fedsofim.deploy.ledger_file import COLUMNS
from fedsofim.deploy.lines import Line
from fedsofim.deploy.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One charged request."""

    number: int
    job: str
    phase: str
    round: int
    at: float
    answered: bool
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class JobSeen:
    """What a job has cost so far."""

    job: str
    terms: dict[str, Any]
    requests: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Look:
    ledger: str  # its identity
    entries: int
    lines: tuple[Line, ...]  # of everything, oldest first
    asked: tuple[Asked, ...]  # newest first
    requests: int  # how many there are altogether
    jobs: tuple[JobSeen, ...]  # newest first


def look_at(policy: Policy, last: int) -> Look:
    """The ledger with its last so many requests; an error where the node itself would not use it."""
    with ledger_file.looked_at(policy.ledger, policy.witness) as db:
        charges = _charges(db)
        rows = db.execute(
            "SELECT id, job, phase, round, at, answer IS NOT NULL FROM asks ORDER BY id DESC LIMIT ?", (last,)
        ).fetchall()
        counts = dict(db.execute("SELECT job, COUNT(*) FROM asks GROUP BY job"))
        jobs = db.execute("SELECT job, terms FROM jobs ORDER BY began DESC").fetchall()
        entries, identity = ledger_file.last_link(db).number, _identity(db)
    by_ask: dict[int, list[Line]] = {}
    by_job: dict[str, list[Line]] = {}
    for ask, job, line in charges:
        by_ask.setdefault(ask, []).append(line)
        by_job.setdefault(job, []).append(line)
    return Look(
        ledger=identity,
        entries=entries,
        lines=tuple(line for _, _, line in charges),
        asked=tuple(
            Asked(number=n, job=j, phase=p, round=r, at=at, answered=bool(a), lines=tuple(by_ask.get(n, ())))
            for n, j, p, r, at, a in rows
        ),
        requests=sum(counts.values()),
        jobs=tuple(
            JobSeen(job=job, terms=json.loads(terms), requests=counts.get(job, 0), lines=tuple(by_job.get(job, ())))
            for job, terms in jobs[:last]
        ),
    )


def _identity(db: sqlite3.Connection) -> str:
    return db.execute("SELECT value FROM meta WHERE key='id'").fetchone()[0]


def _charges(db: sqlite3.Connection) -> list[tuple[int, str, Line]]:
    wanted = ", ".join(f"charges.{name}" for name in COLUMNS)
    rows = db.execute(f"SELECT asks.id, asks.job, {wanted} FROM charges JOIN asks ON charges.ask = asks.id "
                      "ORDER BY charges.id")  # fmt: skip
    return [(ask, job, Line(**dict(zip(COLUMNS, rest, strict=True)))) for ask, job, *rest in rows]
