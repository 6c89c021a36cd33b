"""What must hold after any amount of killing, dropping, repeating and full disks: each broken promise in words.

Uploads are noted outside of what is judged: where a node hands one on, and where the coordinator takes it in
(soak_taps.py). They are held against the ledgers, which are read here by SQL of its own.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from fedsofim.core.gaussian import epsilon_of
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError

_SLACK = 1e-4  # relative, of two ways to add up one epsilon


class Upload(NamedTuple):
    """A noisy sum that left a node."""

    node: str
    job: str
    phase: str
    round: int
    question: str  # digest of what was asked
    answer: str  # digest of what left


class Row(NamedTuple):
    """One request as a ledger has it."""

    job: str
    phase: str
    round: int
    question: str
    answer: str | None
    releases: int  # that were charged for it


def rows_in(ledger: Path) -> list[Row]:
    """All requests of a ledger, as they stand on the disk."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db, db:
        found = db.execute(
            "SELECT job, phase, round, digest, answer, (SELECT COALESCE(SUM(releases), 0) FROM charges "
            "WHERE charges.ask = asks.id) FROM asks ORDER BY id"
        ).fetchall()
    db.close()
    return [Row(*row) for row in found]


def broken_by_uploads(uploads: Iterable[Upload], ledgers: Mapping[str, Sequence[Row]]) -> list[str]:
    """No release without a charge, and of one question one answer, for ever."""
    broken, answers = [], dict[tuple[str, str], str]()
    charged = {(node, row.question): row for node, rows in ledgers.items() for row in rows}
    for upload in dict.fromkeys(uploads):
        what = f"{upload.node}, job {upload.job}, {upload.phase} {upload.round}"
        row = charged.get((upload.node, upload.question))
        if row is None or row.releases < 1:
            broken.append(f"{what}: it left without a charge")
            continue
        if (row.job, row.phase, row.round) != (upload.job, upload.phase, upload.round):
            broken.append(f"{what}: it was charged as job {row.job}, {row.phase} {row.round}")
        if row.answer != upload.answer:
            broken.append(f"{what}: what left is not what the ledger keeps as its answer")
        if answers.setdefault((upload.node, upload.question), upload.answer) != upload.answer:
            broken.append(f"{what}: two answers to one question have left")
    return broken


def broken_on_the_way(left: Iterable[Upload], received: Iterable[Upload]) -> list[str]:
    """What arrived must have left: else something left where nobody looked."""
    known = set(left)
    return [
        f"{u.node}, job {u.job}, {u.phase} {u.round}: it arrived, and nobody saw it leave"
        for u in dict.fromkeys(received)
        if u not in known
    ]


def broken_in_ledger(policy: Policy) -> list[str]:
    """Whole, its own history, as new as its witness, every request charged, and within the cap."""
    try:
        policy.account.standing()
        lines = [line for _, line in policy.account.entries()]
    except InputError as error:
        return [f"{policy.name}: {error}"]
    broken = [f"{policy.name}: {row.phase} {row.round} of job {row.job} is in the ledger without a charge"
              for row in rows_in(policy.ledger) if row.releases < 1]  # fmt: skip
    spent = epsilon_of_lines(lines, policy.delta)
    if spent > policy.epsilon * (1 + _SLACK):
        broken.append(f"{policy.name}: epsilon {spent:g} was spent, above the cap of {policy.epsilon:g}")
    return broken


def broken_by_job(now: JobState, policies: Mapping[str, Policy]) -> list[str]:
    """No ledger short: whoever took part in a step was charged for it, and for a whole job no less than it was priced.

    The step that is open counts for nobody: it may have been asked or not.
    """
    broken = []
    for client in now.clients:
        policy = policies[client.name]
        answered = {(r.phase, r.round) for r in rows_in(policy.ledger) if r.job == now.job.id and r.answer}
        missed = {round for round, names in now.absent.items() if client.name in names}
        steps = {step for step in _taken(now) if step[1] not in missed or step[0] != "round"}
        broken += [f"{client.name} took part in {phase} {round} of job {now.job.id}, and its ledger has no such answer"
                   for phase, round in sorted(steps - answered)]  # fmt: skip
        spent = epsilon_of_lines(_lines_of(policy, now.job.id), now.order.delta)
        if now.finished and not missed and spent < (price := _price(now, client.name)) * (1 - _SLACK):
            broken.append(f"{client.name}: the whole job {now.job.id} costs {price:g}, its ledger says {spent:g}")
    return broken


def _price(now: JobState, client: str) -> float:
    """What the whole job costs a client. Under secure sum all have one noise, on the mean: who counts for less in it,
    by a_i = w_i/|D_i|, pays that much less in mu."""
    if now.plan.trust != "secure-sum":
        return now.plan.epsilon
    a = now.plan.factors
    mine = a[[c.name for c in now.clients].index(client)]
    return epsilon_of((now.plan.mu or 0.0) * float(mine / a.max()), now.plan.delta)


def _lines_of(policy: Policy, job: str) -> list[Line]:
    """Of a ledger that was changed none counts; that is told elsewhere."""
    try:
        return [line for of, line in policy.account.entries() if of == job]
    except InputError:
        return []


def _taken(now: JobState) -> set[tuple[str, int]]:
    """The steps that a job has behind it: (phase, round)."""
    phases = list(now.programs.by_phase)
    behind = phases[: phases.index(now.phase)]
    done = {(str(phase), 0) for phase in behind}
    return done | {(str(now.phase), round) for round in range(now.round)}
