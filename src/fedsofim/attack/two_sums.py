"""A coordinator that wants two sums of one request, with the victim and without: their difference is the victim alone.

It asks for everything twice. First every node reveals for the sum over all; then it says that the victim was lost, asks
the nodes to agree to that, and to reveal again. Right nodes stand by what they were told first, so it has one sum.
`Forgetful` nodes are broken on purpose, as nodes without a ledger would be: they reveal for any set they are told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from fedsofim.deploy.account import Account
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.survivors import AGREE, agree, reveal
from fedsofim.deploy.unmasking import Exchange, FalseSumError, OpenSum, Said, TooFew, open_sum_of, unmasked
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError, Refused


def helped_by(policies: Sequence[Policy]) -> Exchange:
    """How the coordinator asks these nodes for help."""

    def exchange(what: str, questions: Mapping[str, Said], enough: int) -> dict[str, Said]:
        return {policy.name: _said(policy, what, questions[policy.name]) for policy in policies}

    return exchange


def _said(policy: Policy, what: str, question: Said) -> Said:
    digest, present = question.facts["digest"], question.facts["present"]
    try:
        if what == AGREE:
            return Said(*agree(policy, digest, present))
        return Said({}, reveal(policy, digest, present, question.arrays))
    except (Refused, InputError) as error:
        return Said({"refused": str(error)}, {})


def sums_got(
    policies: Sequence[Policy], at: JobState, uploads: Mapping[str, Arrays]
) -> dict[tuple[str, ...], np.ndarray]:
    """Every sum that the coordinator gets open, by the clients in it; the victim is the first client."""
    whole, help = open_sum_of(at, uploads), helped_by(policies)
    if whole is None:
        raise InputError("this sum needs all its clients, so there is nothing to ask for twice")
    victim, *others = whole.present
    without: OpenSum = replace(whole, present=tuple(others), total=whole.total - uploads[victim]["upload0"])
    found = {}
    for wanted in (whole, without, whole):
        try:
            found[wanted.present] = unmasked(wanted, help)
        except (TooFew, FalseSumError):
            continue
    return found


def as_seen(policies: Sequence[Policy], at: JobState, uploads: Mapping[str, Arrays]) -> tuple[np.ndarray, list[str]]:
    """The least noisy sum with the victim in it that the coordinator can make of them, and who is in it."""
    got = sums_got(policies, at, uploads)
    everybody = tuple(c.name for c in at.clients)
    if everybody[1:] in got:
        return got[everybody] - got[everybody[1:]], [everybody[0]]
    return got[everybody], list(everybody)


# --- nodes without a memory ---------------------------------------------------------------------------------


class _NoMemory(Account):
    def tell(self, digest: str, present: Sequence[str]) -> tuple[str, ...]:
        return tuple(present)


class Forgetful(Policy):
    """The policy of a node that does not remember whom a sum was said to be over."""

    @property
    def account(self) -> Account:
        return _NoMemory(self.ledger, self.witness)


def forgetful(policy: Policy) -> Policy:
    return Forgetful(**{f.name: getattr(policy, f.name) for f in fields(policy)})
