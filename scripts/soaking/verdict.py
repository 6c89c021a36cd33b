"""After a soak: what was promised, held against taps, ledgers, jobs and the machine."""

import contextlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsofim.deploy import certificate, processes
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from soak_invariants import broken_by_job, broken_by_uploads, broken_in_ledger, broken_on_the_way, rows_in
from soak_taps import noted, uploads_of
from soaking.faults import left_over
from soaking.federation import Federation
from soaking.found import about
from soaking.lanes import Work

_ENDS = 20.0  # seconds that processes have to end when they were told to


def left_running(federation: Federation) -> list[str]:
    """Processes, an open port and files of a federation that was stopped."""
    with contextlib.suppress(InputError):
        processes.wait_for(lambda: not about(federation.folder), _ENDS, "the end of every process")
    broken = [f"left running: {' '.join(found.command)[:120]}" for found in about(federation.folder)]
    if processes.listening(federation.where.port):
        broken.append(f"port {federation.where.port} is still open")
    return broken + [f"left lying: {name}" for name in left_over(federation.folder)]


def states(works: list[Work]) -> dict[Path, JobState]:
    return {w.folder: restore(w.folder / CHECKPOINT) for w in works if (w.folder / CHECKPOINT).exists()}


def broken_promises(federation: Federation, works: list[Work]) -> list[str]:
    """Everything that did not hold; empty is what a soak is for."""
    lines, policies = list(noted(federation.taps)), federation.policies()
    left, received = uploads_of(lines, "left"), uploads_of(lines, "received")
    ledgers = {name: rows_in(policy.ledger) for name, policy in policies.items()}
    broken = broken_by_uploads([*left, *received], ledgers) + broken_on_the_way(left, received)
    for policy in policies.values():
        broken += broken_in_ledger(policy)
    for state in states(works).values():
        broken += broken_by_job(state, policies)
    for work in works:
        broken += _broken_by_end(work, {name: policy.ledger for name, policy in policies.items()})
    return broken


def _broken_by_end(work: Work, ledgers: Mapping[str, Path]) -> list[str]:
    """Finished with a certificate that holds, or ended with a reason that a person can read."""
    name = work.folder.name
    bad = [why for why in work.reasons if not why.startswith("error: ") or "Traceback" in why or "\n" in why.strip()]
    broken = [f"job {name} stopped without a plain reason: {why[-300:]}" for why in bad]
    if work.finished:
        try:
            document = certificate.read(work.folder / "certificate.json")
            everybody = [*document["clients"], *document.get("silent", [])]
            found = certificate.verify(document, [ledgers[name] for name in everybody])
        except InputError as error:
            found = [str(error)]
        broken += [f"job {name}: {problem}" for problem in found]
    return broken


def figures(federation: Federation, works: list[Work]) -> dict[str, Any]:
    """What happened, in numbers."""
    lines, policies = list(noted(federation.taps)), federation.policies()
    rows = [row for policy in policies.values() for row in rows_in(policy.ledger)]
    found = states(works).values()
    return {
        "nodes": len(federation.names),
        "jobs": len(works),
        "jobs finished": sum(work.finished for work in works),
        "jobs ended with a reason": sum(not work.finished for work in works),
        "times a job was resumed": sum(work.tries - 1 for work in works),
        "rounds": sum(state.round for state in found),
        "rounds without somebody": sum(len(state.absent) for state in found),
        "uploads that left": len(uploads_of(lines, "left")),
        "different ones": len(set(uploads_of(lines, "left"))),
        "uploads received": len(uploads_of(lines, "received")),
        "requests charged": len(rows),
        "charged and never answered": sum(row.answer is None for row in rows),
        "epsilon of the node that spent most": round(max(_spent(policy) for policy in policies.values()), 4),
    }


def _spent(policy: Policy) -> float:
    return epsilon_of_lines([line for _, line in policy.account.entries()], policy.delta)


def reasons(works: list[Work]) -> dict[str, int]:
    """Why jobs stopped before their end, shortened to what is the same in many."""
    return dict(Counter(_kind(why) for work in works for why in work.reasons).most_common())


_KINDS = (
    "could not be kept", "is gone; start it again", "ended without a word", "the smallest allowed here",
    "nodes answered in", "no SuperLink answers", "did not take the run", "did not take the key", "is not connected",
    "lost the request", "the ledger cannot be used", "no answer came", "the process that worked on it was ended",
    "did not end in time",
)  # fmt: skip


def _kind(why: str) -> str:
    return next((kind for kind in _KINDS if kind in why), why.removeprefix("error: ")[:100])
