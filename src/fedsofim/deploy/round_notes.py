"""What a job's folder says of its rounds, for whoever looks: one line for each, and how it stands now.

Nothing is decided by it. What a node states it has spent is as the node said it; certificates are signed, this is not.
"""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsofim.core.budget import WITHOUT
from fedsofim.core.summary import spent_in_words
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.wire import Job
from fedsofim.errors import is_number
from fedsofim.protection import PROTECTED

ROUNDS = "rounds.jsonl"  # beside the checkpoint
_TOLD = ("epsilon", "cap")


def standing_of(now: JobState, spent: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Who takes part, under which terms, and what each has spent, as plain data."""
    return {
        "id": now.job.id,
        "trust": now.job.trust,
        "protects": PROTECTED[now.job.unit],
        "epsilon": now.order.epsilon,
        "own_budgets": bool(now.job.own_stds),
        "delta": now.order.delta,
        "enough": now.order.min_clients or len(now.clients),
        "clients": [{"name": c.name, "size": c.size, **spent.get(c.name, {})} for c in now.clients],
    }


def spending_in(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a node says in its answer that it has spent; what makes no sense is left out."""
    return {name: facts[name] for name in _TOLD if facts.get(name) == WITHOUT or is_number(facts.get(name))}


def note_round(folder: Path, now: JobState, why: Mapping[str, str], metrics: Mapping[str, Any]) -> None:
    """One line for the round that was just averaged; `why` somebody was left out of it, by name."""
    absent = list(now.absent.get(now.round - 1, ()))
    line = {"job": now.job.id, "round": now.round, "at": time.time(), "absent": absent, "metrics": dict(metrics)}
    line["why"] = {name: why[name] for name in absent if name in why}
    with contextlib.suppress(OSError), (folder / ROUNDS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def rounds_noted(folder: Path, job: str) -> list[dict[str, Any]]:
    """The rounds of a job in their order; of a round that was noted twice the later, damaged lines left out."""
    found: dict[int, dict[str, Any]] = {}
    try:
        lines = (folder / ROUNDS).read_bytes().splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            note = json.loads(line)
            if isinstance(note, dict) and note.get("job") == job and isinstance(note.get("round"), int):
                found[note["round"]] = note
    return [found[round] for round in sorted(found)]


def job_in_words(job: Job) -> str:
    """What is trained, for people."""
    steps = " > ".join(table["step"] for table in job.preparation) or "records as they come"
    return f"{job.method}, {job.rounds} rounds, clip {job.clip:g}, weights {job.weights}, {steps}"


def plan_in_words(now: JobState) -> list[str]:
    """What the job costs, and why it is as it is: a line for each choice."""
    p = now.plan
    cost = f"{spent_in_words(p)} for {PROTECTED[p.unit]}" if math.isfinite(p.epsilon) else WITHOUT
    first = f"job {now.job.id}: {p.method.name}, {len(p.sizes)} clients, {p.rounds} rounds, {cost}"
    return [first, *(f"recipe {now.order.recipe}: {what}: {why}" for what, why in now.choices.why)]
