"""A ledger asked directly, as a node's processes would: what the tests of the account share."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from fedsofim.core.phase import Phase
from fedsofim.deploy.account import Account, Ask, Opened
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.errors import InputError

DELTA = 1e-5
SECRET = bytes(range(32))


def line(multiplier: float = 5.0, sample: float = 1.0, weight: float = 1.0, coordinates: int = 12) -> Line:
    return Line(
        label="gradient", clip=10.0, ratio=2.0, multiplier=multiplier, releases=1, weight=weight, sample=sample,
        coordinates=coordinates,
    )  # fmt: skip


def ask(
    round: int = 0, question: str = "q", job: str = "job",
    terms: str = '{"method": "fedgd", "rounds": 3, "clients": 2}', data: str = "d", phase: Phase = Phase.ROUND,
    in_order: bool = False,
) -> Ask:  # fmt: skip
    digest = f"{job} {phase} {round} {question}"
    return Ask(job=job, terms=terms, data=data, phase=phase, round=round, digest=digest, in_order=in_order)


def cap_of(rounds: int, multiplier: float = 5.0) -> float:
    """Epsilon of so many releases."""
    return epsilon_of_lines([line(multiplier)] * rounds, DELTA)


def open_(
    path: Path, what: Ask, lines: Sequence[Line] | None = None, cap: float = 1e9, secret: bytes = SECRET
) -> Opened:
    """As a new process would: an Account of its own each time."""
    given = [line()] if lines is None else lines
    made(path)
    return Account(path).open_ask(what, given, cap=cap, delta=DELTA, fresh_secret=secret)


def made(path: Path) -> Path:
    """A ledger in this place, made now if nothing is there; of processes that come at once, one makes it."""
    with contextlib.suppress(InputError):
        if not path.exists() and path.parent.is_dir():
            Account(path).create()
    return path


def charged(path: Path) -> int:
    return len(Account(path).entries())
