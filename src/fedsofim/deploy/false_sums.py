"""Secure sums that came out false: whom the next attempt leaves out, and what is known about who spoiled them.

A masked sum tells that somebody in it answered falsely and not who. Where rounds can do without a client, each attempt
leaves one of those out who were in every false sum of the question; if the sum is right without it, it is the likely
cause, and the job goes on without it. That is a guess: a client that lies only in its first answer frames another.
"""

from collections.abc import Sequence

from fedsofim.core.phase import Phase
from fedsofim.deploy.job_state import FalseSum, JobState
from fedsofim.deploy.presence import fewest


def left_out(now: JobState) -> tuple[str, ...]:
    """Clients that are not asked the present question."""
    room = len(now.clients) - fewest(now)
    if now.attempt:
        return tuple(_in_all(now.false_so_far)[: min(1, room)])
    return tuple(likely(now)[max(0, len(likely(now)) - room) :])  # the latest: an earlier one may have been framed


def likely(now: JobState) -> list[str]:
    """Clients without which a false sum came out right, in the order of the rounds."""
    found: list[str] = []
    for round in sorted({false.round for false in now.false_sums if false.phase is Phase.ROUND}):
        of_round = [false for false in now.false_sums if (false.phase, false.round) == (Phase.ROUND, round)]
        missing = [name for name in _in_all(of_round) if name in now.absent.get(round, ())]
        found += [name for name in missing if len(missing) == 1 and name not in found]
    return found


def in_words(now: JobState) -> str:
    """Who took part in the false sums of the present question."""
    said = [", ".join(false.present) for false in now.false_so_far]
    accused = sorted({name for false in now.false_so_far for name in false.accused})
    known = f"; the pieces of {', '.join(accused)} do not fit" if accused else ""
    return f"false sums were over {'; '.join(said)}{known}"


def _in_all(false_sums: Sequence[FalseSum]) -> list[str]:
    """Who was in every one of these, those who are accused first."""
    first, *rest = false_sums
    accused = [name for false in false_sums for name in false.accused]
    names = [name for name in first.present if all(name in false.present for false in rest)]
    return sorted(names, key=lambda name: (name not in accused, name))
