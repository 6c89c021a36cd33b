"""Flower messages: the only file that turns wire.py's requests and replies into Flower records and back."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from fedsofim.core.phase import Phase
from fedsofim.deploy.sane import check_plain
from fedsofim.deploy.wire import Arrays, Job, Request
from fedsofim.errors import InputError

ASK = "ask"  # the only question that costs anything


class Reply(NamedTuple):
    """What one node sent back: facts (its name, or why it refused) and arrays; `error` if nothing came."""

    facts: dict[str, Any]
    arrays: Arrays
    error: str = ""


# --- questions ----------------------------------------------------------------------------------------------


def ask_message(request: Request, node: int) -> Message:
    facts = {"what": ASK, "job": request.job.text(), "phase": request.phase, "round": request.round}
    return Message(content=_content(facts, request.arrays), message_type=MessageType.TRAIN, dst_node_id=node)


def query_message(what: str, node: int, job: Job | None = None) -> Message:
    return _query({"what": what} | ({"job": job.text()} if job is not None else {}), node)


def holding_message(about: Message) -> Message:
    """Does the node still hold this question? It cannot say for one that costs nothing: nothing is kept of it."""
    digest = request_of(about).digest() if what_of(about) == ASK else ""
    return _query({"what": "holding", "digest": digest}, about.metadata.dst_node_id)


def again(message: Message) -> Message:
    """The same question, to be sent once more."""
    meta = message.metadata
    return Message(content=message.content, message_type=meta.message_type, dst_node_id=meta.dst_node_id)


def _query(facts: Mapping[str, Any], node: int) -> Message:
    return Message(content=_content(facts, {}), message_type=MessageType.QUERY, dst_node_id=node)


# --- as a node receives them --------------------------------------------------------------------------------


def request_of(message: Message) -> Request:
    """The request in a message as a node receives it."""
    facts, arrays = _opened(message.content)
    phase, round = facts.get("phase"), facts.get("round")
    if phase not in set(Phase) or not isinstance(round, int) or round < 0:
        raise InputError("the request names no phase and round; do server and node run the same version?")
    return Request(Job.read(str(facts.get("job"))), Phase(phase), round, arrays)


def job_of(message: Message) -> Job:
    return Job.read(str(_opened(message.content)[0].get("job")))


def what_of(message: Message) -> str:
    return str(_opened(message.content)[0].get("what"))


def digest_of(message: Message) -> str:
    """Which request a question about holding means; empty for none."""
    return str(_opened(message.content)[0].get("digest", ""))


# --- replies ------------------------------------------------------------------------------------------------


def reply_message(facts: Mapping[str, Any], arrays: Arrays, to: Message) -> Message:
    return Message(content=_content(facts, arrays), reply_to=to)


def opened(message: Message) -> Reply:
    """A node's reply as the server receives it; whatever is wrong with it becomes its `error`."""
    if message.has_error():
        return Reply({}, {}, message.error.reason or f"Flower's error {message.error.code}")
    try:
        facts, arrays = _opened(message.content)
        check_plain(facts)  # it goes into logs, files and onto screens
        return Reply(facts, arrays)
    except InputError as error:
        return Reply({}, {}, str(error))


def _content(facts: Mapping[str, Any], arrays: Arrays) -> RecordDict:
    record = ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})
    return RecordDict({"facts": ConfigRecord({"json": json.dumps(facts)}), "arrays": record})


def _opened(content: RecordDict) -> tuple[dict[str, Any], Arrays]:
    try:
        facts = json.loads(str(content.config_records["facts"]["json"]))
        arrays = {str(name): array.numpy() for name, array in content.array_records["arrays"].items()}
    except (KeyError, ValueError, TypeError, OSError, RecursionError) as error:
        raise InputError("the message is not one of fedsofim's") from error
    if not isinstance(facts, dict):
        raise InputError("the message is not one of fedsofim's")
    return facts, arrays
