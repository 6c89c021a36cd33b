"""The ClientApp: a thin shell around node.py. Nothing but answers and stated refusals gets out, never a traceback.

The operator's policy is found by the node's own configuration, `--node-config 'policy="/path/policy.toml"'`; a server
cannot name another. A SuperNode runs code that the server sends: only under `fedsofim node` is it sure to be this.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedsofim.deploy.certificate import statement
from fedsofim.deploy.flower.asked import Asked, allowed, asked_in
from fedsofim.deploy.flower.messages import (
    digest_of,
    job_of,
    reply_message,
    request_of,
    statement_of,
    sum_of,
    what_of,
)
from fedsofim.deploy.holding import Holding, holding_of
from fedsofim.deploy.node import answer, consider, hello
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.recall import recalled
from fedsofim.deploy.records import DataProblem
from fedsofim.deploy.survivors import AGREE, REVEAL, agree, reveal
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError, Refused

_LOG = logging.getLogger("flwr")  # the operator's own log
_SILENT = "the node cannot answer; its operator's log says why"


def make_client_app() -> ClientApp:
    """A ClientApp that answers any method of the library under the policy of the node it runs on."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        asked = asked_in(message, context)
        return _guarded(message, context, lambda policy: _answer(policy, message, asked), asked)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        key = str(context.node_config.get("key", ""))
        instance = {"instance": str(context.node_config.get("instance", ""))}  # of the SuperNode: new with every start
        questions: dict[str, Callable[[Policy], tuple[dict[str, Any], Arrays]]] = {
            "hello": lambda policy: (hello(policy) | instance, {}),
            "holding": lambda policy: (_holding(policy, digest_of(message)) | instance, {}),
            "account": lambda policy: (statement(policy, Path(key) if key else None), {}),
            "recall": lambda policy: (recalled(policy, statement_of(message), Path(key) if key else None), {}),
            "consider": lambda policy: (consider(policy, job_of(message)), {}),
            AGREE: lambda policy: agree(policy, *sum_of(message)[:2]),
            REVEAL: lambda policy: ({}, reveal(policy, *sum_of(message))),
        }
        return _guarded(message, context, lambda policy: questions[what_of(message)](policy))

    return app


def _answer(policy: Policy, message: Message, asked: Asked) -> tuple[dict[str, Any], Arrays]:
    return asked.with_spending(policy, answer(policy, request_of(message), asked.note.charged))


def _holding(policy: Policy, digest: str) -> dict[str, Any]:
    """How the node stands to the request that is asked about; of questions that cost nothing it keeps nothing."""
    return {"holding": holding_of(policy.account, digest) if digest else Holding.NOTHING}


def _guarded(
    message: Message,
    context: Context,
    act: Callable[[Policy], tuple[dict[str, Any], Arrays]],
    asked: Asked | None = None,
) -> Message:
    """Act under the policy. A refusal's reason depends on policy, ledger and request only, so it may be told."""
    name = "unknown"
    try:
        policy = read_policy(str(context.node_config.get("policy", "")))
        name = policy.name
        with allowed(policy, asked or asked_in(message, context)):
            facts, arrays = act(policy)
        return reply_message({"node": name, **facts}, arrays, message)
    except DataProblem as error:
        _LOG.error("fedsofim: %s", error)
    except (Refused, InputError) as error:
        _LOG.warning("fedsofim: refused: %s", error)
        return reply_message({"node": name, "refused": str(error) if name != "unknown" else _SILENT}, {}, message)
    except Exception:
        _LOG.exception("fedsofim: failed")
    return reply_message({"node": name, "refused": _SILENT}, {}, message)


app = make_client_app()
