"""Right answers counted at the nodes of a job: when they are asked for, and what their uploads say.

A node counts on the records that it holds out, or on those it trains on if it holds out none; both sizes are public.
Its upload (core/evaluation.py) is (right - m/2)/m + noise/m for its m records; the accuracy is over all records alike.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedsofim.core.evaluation import Measured
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.presence import noise_std_of
from fedsofim.errors import InputError


def check_counting(plan: Plan) -> None:
    """An error where a sum of masked counts would not be one over all records alike."""
    if Phase.EVALUATION in plan.programs and plan.trust == "secure-sum" and plan.weights != "size":
        raise InputError(
            "private evaluation under secure sum needs weights size: under uniform ones the masked sum is no count of "
            "records; use --weights size, or trust local"
        )


def next_question(now: JobState) -> JobState:
    """After a round: the count that is due now, or the next round."""
    due = _after(now, len(now.measured)) if len(now.measured) < now.job.evaluations else None
    return replace(now, phase=Phase.EVALUATION) if now.round == due else now


def _after(now: JobState, number: int) -> int:
    """How many rounds are done when the accuracy is counted for the so-manieth time, from 0."""
    every = now.order.evaluate_every or now.job.rounds
    return min((number + 1) * every, now.job.rounds)


def counted(now: JobState, average: Any, present: Sequence[str]) -> JobState:
    """The job with one more accuracy, and on to its next round."""
    clients = [c for c in now.clients if c.name in present]
    records, std = sum(c.counted for c in clients), now.job.stds[Phase.EVALUATION][0]
    excess, error = float(average["right"][0]), std * math.sqrt(len(clients)) / records
    if now.masked:  # over the records that are trained on, whichever were counted
        scale = sum(c.size for c in clients) / records
        excess *= scale
        error = scale * now.plan.mean_std(Phase.EVALUATION) * noise_std_of(now, present) / now.plan.noise_std
    found = Measured(
        after=now.round,
        accuracy=100 * (0.5 + excess),
        error=100 * error,
        records=records,
        held_out=all(c.held_out for c in clients),
        clients=tuple(c.name for c in clients),
        unit=now.job.unit,
    )
    return replace(now, measured=(*now.measured, found), phase=Phase.ROUND)
