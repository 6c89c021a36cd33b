"""What a node answers: a thin shell around node.py. Only answers and stated refusals get out, never a traceback.

The operator's policy is found by the node's own configuration, `--node-config 'policy="/path/policy.toml"'`; a server
cannot name another. A SuperNode runs code that the server sends: only under `fedsofim node` is it sure to be this.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedsofim.deploy.certificate import statement
from fedsofim.deploy.flower.asked import Asked, allowed, asked_in
from fedsofim.deploy.flower.edge import Opened
from fedsofim.deploy.flower.messages import content_of, job_in, reply_message, request_in
from fedsofim.deploy.holding import Holding, holding_of
from fedsofim.deploy.node import answer, consider, hello
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.recall import recalled
from fedsofim.deploy.records import DataProblem
from fedsofim.deploy.survivors import AGREE, REVEAL, NeverRevealed, agree, reveal
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError, Refused

_LOG = logging.getLogger("flwr")  # the operator's own log
_SILENT = "the node cannot answer; its operator's log says why"

_TOLD = deque[str](maxlen=100)  # remarks that were logged

Said = tuple[dict[str, Any], Arrays]


@dataclass(frozen=True)
class Incoming:
    """A message that arrived: its kind, its run, and what it says, or why that cannot be read."""

    kind: str  # "train" or "query"
    run: int
    opened: Opened | InputError


def make_client_app() -> ClientApp:
    """A ClientApp that answers any method of the library under the policy of the node it runs on."""
    app = ClientApp()

    def replied(kind: str, message: Message, context: Context) -> Message:
        facts, arrays = respond(_incoming(kind, message), context.node_config)
        return reply_message(facts, arrays, message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return replied("train", message, context)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return replied("query", message, context)

    return app


def _incoming(kind: str, message: Message) -> Incoming:
    try:
        return Incoming(kind, message.metadata.run_id, content_of(message))
    except InputError as error:
        return Incoming(kind, message.metadata.run_id, error)


def respond(incoming: Incoming, config: Mapping[str, Any]) -> Said:
    """The facts and arrays of a node's answer, or of its refusal.

    Args:
        incoming: The message.
        config: Of the node: `policy`, `key`, `instance` and `superlink`, as its operator gave them.
    """
    opened = incoming.opened
    who = f"run {incoming.run} of {config.get('superlink', 'this machine')}"
    facts = opened.facts if isinstance(opened, Opened) else {}
    asked = asked_in(facts, incoming.kind, who)

    if asked.note.why and (said := f"{asked.note.job}: {asked.note.why}") not in _TOLD:
        _TOLD.append(said)
        _LOG.warning("%s fedsofim: %s", _now(), asked.note.why)

    def act(policy: Policy) -> Said:
        if not isinstance(opened, Opened):
            raise opened
        if incoming.kind == "train":
            return asked.with_spending(policy, answer(policy, request_in(opened), asked.note.charged))
        if incoming.kind != "query":
            raise InputError("the message is of a kind that a node does not answer")
        return _queried(policy, opened, config)

    return _guarded(config, act, asked)


def _queried(policy: Policy, opened: Opened, config: Mapping[str, Any]) -> Said:
    key = Path(str(config["key"])) if config.get("key") else None
    instance = {"instance": str(config.get("instance", ""))}  # of the node's process: new with every start
    facts, arrays = opened
    what, digest, present = facts.get("what"), str(facts.get("digest", "")), facts.get("present")
    questions: dict[str, Callable[[], Said]] = {
        "hello": lambda: (hello(policy) | instance, {}),
        "holding": lambda: (_holding(policy, digest) | instance, {}),
        "account": lambda: (statement(policy, key), {}),
        "recall": lambda: (recalled(policy, facts.get("statement"), key), {}),
        "consider": lambda: (_considered(policy, opened), {}),
        AGREE: lambda: agree(policy, digest, present),
        REVEAL: lambda: ({}, reveal(policy, digest, present, arrays)),
    }
    if not isinstance(what, str) or what not in questions:
        raise InputError("the message asks for nothing that a node answers; do server and node run the same version?")
    return questions[what]()


def _considered(policy: Policy, opened: Opened) -> dict[str, Any]:
    """Of a whole job, or of what is left of it and a question that is to be asked anew."""
    if "attempt" not in opened.facts:
        return consider(policy, job_in(opened))
    return consider(policy, job_in(opened), request_in(opened), str(opened.facts.get("digest", "")))


def _holding(policy: Policy, digest: str) -> dict[str, Any]:
    """How the node stands to the request that is asked about; of questions that cost nothing it keeps nothing."""
    return {"holding": holding_of(policy.account, digest) if digest else Holding.NOTHING}


def _guarded(config: Mapping[str, Any], act: Callable[[Policy], Said], asked: Asked) -> Said:
    """Act under the policy. A refusal's reason depends on policy, ledger and request only, so it may be told."""
    name = "unknown"
    try:
        policy = read_policy(str(config.get("policy", "")))
        name = policy.name
        with allowed(policy, asked):
            facts, arrays = act(policy)
        return {"node": name, **facts}, arrays
    except DataProblem as error:
        _LOG.error("%s fedsofim: %s", _now(), error)
    except (Refused, InputError) as error:
        _LOG.warning("%s fedsofim: refused %s: %s", _now(), asked.who, error)
        never = {"never": True} if isinstance(error, NeverRevealed) else {}
        return {"node": name, "refused": str(error) if name != "unknown" else _SILENT} | never, {}
    except Exception:
        _LOG.exception("%s fedsofim: failed", _now())
    return {"node": name, "refused": _SILENT}, {}


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


app = make_client_app()
