"""What a message asks of a node, and who sent it: noted with what becomes of it, refused while the node is stopped."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedsofim.core.budget import stated
from fedsofim.deploy.docket import Note, Verdict, noted
from fedsofim.deploy.flower.messages import ASK
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.stopping import unless_stopped
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import is_whole

#: Questions about the node and its account, which tell nothing new about a record: answered also while it is stopped.
_ABOUT_ITSELF = ("hello", "holding", "account", "recall")
_QUIET = ("hello", "holding")  # asked all the time: noted only if they fail
_VERDICTS = {ASK: Verdict.CHARGED, "account": Verdict.STATED, "recall": Verdict.STATED}  # of the others: allowed


@dataclass
class Asked:
    """A question, and the charge for it once there is one."""

    what: str
    who: str
    note: Note

    def with_spending(self, policy: Policy, arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """The upload with what has been spent by it; of a question that was charged before no more is said."""
        spent = self.note.spent
        return {} if spent is None else {"epsilon": stated(spent), "cap": stated(policy.epsilon)}, arrays


@contextlib.contextmanager
def allowed(policy: Policy, asked: Asked) -> Iterator[None]:
    """Act on a question inside: nothing is said while the node is stopped, and the docket hears of it either way."""
    verdict = None if asked.what in _QUIET else _VERDICTS.get(asked.what, Verdict.ALLOWED)
    going = contextlib.nullcontext() if asked.what in _ABOUT_ITSELF else unless_stopped(policy.ledger)
    with noted(policy.ledger, asked.who, asked.what, verdict, asked.note), going:
        yield


def asked_in(facts: Mapping[str, Any], kind: str, who: str) -> Asked:
    """Who asks and for what, as far as the message says it; nothing is believed of it, it is for the docket.

    Args:
        facts: What the message says; nothing where it could not be read.
        kind: Of the message. One to train on costs something, whatever it calls itself.
        who: Run and SuperLink.
    """
    job = _job(facts.get("job"))
    round = facts.get("round")
    sane = isinstance(round, int) and is_whole(round) and abs(round) < 10**9
    note = Note(job=str(job.get("id", "")), method=str(job.get("method", "")), phase=str(facts.get("phase", "")),
                round=round if sane else None, why=_remark(facts.get("unused")))  # fmt: skip
    return Asked(ASK if kind == "train" else str(facts.get("what", "unreadable")), who, note)


def _remark(unused: Any) -> str:
    """What the coordinator says of answers that came too late for it."""
    if not is_whole(unused) or not 0 < unused < 10**6:
        return ""
    return (f"the coordinator says that it did not use {unused} of this node's answers to the job, because they came "
            "too late; they stay charged")  # fmt: skip


def _job(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(str(text)[:1_000_000])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
