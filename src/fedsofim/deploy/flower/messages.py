"""Flower messages: the only file that turns wire.py's requests and replies into Flower records and back."""

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedsofim.deploy.wire import PHASES, Arrays, Job, Phase, Request
from fedsofim.errors import InputError

_POLL = 0.1  # seconds. Flower tells of a lost message only to who asks while its node is away, which may be short
_NUDGE = 20.0  # seconds after which a node that has not answered is asked something easy


class Reply(NamedTuple):
    """What one node sent back: facts (its name, or why it refused) and arrays; `error` if nothing came."""

    facts: dict[str, Any]
    arrays: Arrays
    error: str = ""


def ask_message(request: Request, node: int) -> Message:
    facts = {"what": "ask", "job": request.job.text(), "phase": request.phase, "round": request.round}
    return Message(content=_content(facts, request.arrays), message_type=MessageType.TRAIN, dst_node_id=node)


def query_message(what: str, node: int, job: Job | None = None) -> Message:
    facts = {"what": what} | ({"job": job.text()} if job is not None else {})
    return Message(content=_content(facts, {}), message_type=MessageType.QUERY, dst_node_id=node)


def request_of(message: Message) -> Request:
    """The request in a message as a node receives it."""
    facts, arrays = _opened(message.content)
    phase, round = facts.get("phase"), facts.get("round")
    if phase not in PHASES or not isinstance(round, int) or round < 0:
        raise InputError("the request names no phase and round; do server and node run the same version?")
    return Request(Job.read(str(facts.get("job"))), cast(Phase, phase), round, arrays)


def job_of(message: Message) -> Job:
    return Job.read(str(_opened(message.content)[0].get("job")))


def what_of(message: Message) -> str:
    return str(_opened(message.content)[0].get("what"))


def reply_message(facts: Mapping[str, Any], arrays: Arrays, to: Message) -> Message:
    return Message(content=_content(facts, arrays), reply_to=to)


def exchange(grid: Grid, messages: list[Message], timeout: float) -> dict[int, Reply]:
    """Send, and wait for every reply or the end of patience; keyed by the node that was asked.

    A SuperNode sends what is ready only after it has received something: a reply that was overtaken by an old run's
    stays with it. So whoever is late gets a question it may answer at once, one at a time.
    """
    if not messages:
        return {}
    waiting = _pushed(grid, messages)
    replies = {m.metadata.dst_node_id: Reply({}, {}, "no answer came") for m in messages}
    end, nudge_at, nudges = time.monotonic() + timeout, time.monotonic() + _NUDGE, dict[str, int]()
    while waiting and time.monotonic() < end:
        for message in grid.pull_messages([*waiting, *nudges]):
            nudges.pop(message.metadata.reply_to_message_id, None)
            node = waiting.pop(message.metadata.reply_to_message_id, None)
            if node is not None:  # an error's own source is not the node that failed
                replies[node] = opened(message)
        if waiting and time.monotonic() > nudge_at:
            nudge_at = time.monotonic() + _NUDGE
            nudges |= _pushed(grid, [query_message("hello", n) for n in set(waiting.values()) - set(nudges.values())])
        if waiting:
            time.sleep(_POLL)
    return replies


def _pushed(grid: Grid, messages: list[Message]) -> dict[str, int]:
    """The node asked, by the number of its message."""
    numbers = list(grid.push_messages(messages)) if messages else []
    return {number: m.metadata.dst_node_id for number, m in zip(numbers, messages, strict=True) if number}


def opened(message: Message) -> Reply:
    """A node's reply as the server receives it; whatever is wrong with it becomes its `error`."""
    if message.has_error():
        return Reply({}, {}, message.error.reason or f"Flower's error {message.error.code}")
    try:
        return Reply(*_opened(message.content))
    except InputError as error:
        return Reply({}, {}, str(error))


def _content(facts: Mapping[str, Any], arrays: Arrays) -> RecordDict:
    record = ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})
    return RecordDict({"facts": ConfigRecord({"json": json.dumps(facts)}), "arrays": record})


def _opened(content: RecordDict) -> tuple[dict[str, Any], Arrays]:
    try:
        facts = json.loads(str(content.config_records["facts"]["json"]))
        arrays = {str(name): array.numpy() for name, array in content.array_records["arrays"].items()}
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InputError("the message is not one of fedsofim's") from error
    if not isinstance(facts, dict):
        raise InputError("the message is not one of fedsofim's")
    return facts, arrays
