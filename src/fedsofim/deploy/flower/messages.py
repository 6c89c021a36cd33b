"""Flower messages: the only file that turns wire.py's requests and replies into Flower records and back."""

import json
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from fedsofim.core.phase import Phase
from fedsofim.deploy.flower.edge import (
    DTYPES,
    FACTS,
    LARGE,
    MOST,
    RAW,
    Opened,
    Raw,
    at_the_edge,
    opened_from,
    unpacked,
    words,
)
from fedsofim.deploy.sane import is_name
from fedsofim.deploy.wire import MOST_ATTEMPTS, Arrays, Job, Request
from fedsofim.errors import InputError

ASK = "ask"  # the only question that costs anything
_SMALL = 2_000_000  # bytes of arrays that travel with the facts
MOST_OF_A_REPLY = 16_000_000  # bytes of a reply beside the arrays that were asked for
_REPLIES = {
    "node": is_name,
    "refused": lambda found: isinstance(found, str),
    "never": lambda found: isinstance(found, bool),
    "instance": lambda found: isinstance(found, str) and len(found) <= 64,
    "holding": lambda found: isinstance(found, str),
    "recalled": lambda found: isinstance(found, str),
}  # what replies say of themselves, where they say it


class Reply(NamedTuple):
    """What one node sent back: facts (its name, or why it refused) and arrays; `error` if nothing came."""

    facts: dict[str, Any]
    arrays: Arrays
    error: str = ""


# --- questions ----------------------------------------------------------------------------------------------


def ask_message(request: Request, node: int, unused: int = 0) -> Message:
    """A round's question.

    Args:
        request: The question.
        node: Flower's number of the node.
        unused: How many answers of this node came too late to be used, which its operator should know.
    """
    facts = _facts_of(request) | ({"unused": unused} if unused else {})
    return _addressed(_content(facts, request.arrays), node, MessageType.TRAIN)


def anew_message(request: Request, node: int) -> Message:
    """Would the node answer this question, and what the job asks after it? Costs nothing, and brings no arrays."""
    return _query(_facts_of(request) | {"what": "consider"}, node)


def _facts_of(request: Request) -> dict[str, Any]:
    facts = {"what": ASK, "job": request.job.text(), "phase": request.phase, "round": request.round}
    return facts | ({"attempt": request.attempt, "digest": request.digest()} if request.attempt else {})


def query_message(what: str, node: int, job: Job | None = None, unused: int = 0) -> Message:
    facts = {"what": what} | ({"job": job.text()} if job is not None else {})
    return _query(facts | ({"unused": unused} if unused else {}), node)


def recall_message(statement: Mapping[str, Any], node: int) -> Message:
    """What the node signed last, given back before it is asked for anything."""
    return _query({"what": "recall", "statement": dict(statement)}, node)


def sum_message(what: str, node: int, facts: Mapping[str, Any], arrays: Arrays) -> Message:
    """A question about a secure sum that is being opened."""
    return _addressed(_content({**facts, "what": what}, arrays), node, MessageType.QUERY)


def holding_message(about: Message) -> Message:
    """Does the node still hold this question? It cannot say for one that costs nothing: nothing is kept of it."""
    digest = request_of(about).digest() if what_of(about) == ASK else ""
    return _query({"what": "holding", "digest": digest}, about.metadata.dst_node_id)


def again(message: Message) -> Message:
    """The same question, to be sent once more."""
    return _addressed(message.content, message.metadata.dst_node_id, message.metadata.message_type)


def _query(facts: Mapping[str, Any], node: int) -> Message:
    return _addressed(_content(facts, {}), node, MessageType.QUERY)


def _addressed(content: RecordDict, node: int, kind: str) -> Message:
    """A message whose id no other node can guess.

    The SuperLink finds messages by the digest of what is in them, and lets any node ask for any id. Without a random
    part a node could work out the ids of the messages to the others, which differ in the address and the time only.
    """
    return Message(content=content, message_type=kind, dst_node_id=node, group_id=secrets.token_hex(16))


# --- as a node receives them --------------------------------------------------------------------------------


def request_in(opened: Opened) -> Request:
    """The request in what a node received."""
    facts, arrays = opened
    phase, round, attempt = facts.get("phase"), facts.get("round"), facts.get("attempt", 0)
    if not isinstance(phase, str) or phase not in set(Phase) or type(round) is not int or round < 0:
        raise InputError("the request names no phase and round; do server and node run the same version?")
    if type(attempt) is not int or not 0 <= attempt <= MOST_ATTEMPTS:
        raise InputError(f"the request's attempt makes no sense; expected a whole number from 0 to {MOST_ATTEMPTS}")
    return Request(job_in(opened), Phase(phase), round, arrays, attempt)


def job_in(opened: Opened) -> Job:
    """The terms of the job that is asked about."""
    with at_the_edge("what is said of a job"):
        return Job.read(str(opened.facts.get("job")))


def request_of(message: Message) -> Request:
    """The request in a message of Flower's."""
    return request_in(content_of(message))


def what_of(message: Message) -> str:
    return str(content_of(message).facts.get("what"))


# --- replies ------------------------------------------------------------------------------------------------


def reply_message(facts: Mapping[str, Any], arrays: Arrays, to: Message) -> Message:
    return Message(content=_content(facts, arrays), reply_to=to)


def opened(message: Message, most: int = MOST) -> Reply:
    """A node's reply as the server receives it; whatever is wrong with it becomes its `error`."""
    if message.has_error():
        return Reply({}, {}, words(message.error.reason) or f"Flower's error {message.error.code}")
    try:
        return reply_in(content_of(message, most))
    except InputError as error:
        return Reply({}, {}, str(error))


def reply_from(top: str, contents: Mapping[str, bytes], most: int) -> Reply:
    """The same from the contents of a reply's parts."""
    try:
        return reply_in(unpacked(top, contents, most))
    except InputError as error:
        return Reply({}, {}, str(error))


def reply_in(opened: Opened) -> Reply:
    """A reply whose name, reasons and figures are what they should be; they go into logs, files and onto screens."""
    for key, right in _REPLIES.items():
        if key in opened.facts and not right(opened.facts[key]):
            raise InputError(f"the reply says something strange for {key!r}")
    return Reply(*opened)


def _content(facts: Mapping[str, Any], arrays: Arrays) -> RecordDict:
    """Facts and arrays as Flower's records.

    Each record, array and chunk of a message is a call of its own, at the server, at the SuperLink and at the node. So
    what is small travels with the facts, in one record; what is large in the chunks that Flower makes of it.
    """
    whole = {name: np.asarray(a) for name, a in arrays.items()}
    if strange := {a.dtype.str for a in whole.values()} - DTYPES:
        raise TypeError(f"arrays of {', '.join(sorted(strange))} do not travel")
    text = json.dumps(facts)
    if sum(a.nbytes for a in whole.values()) > _SMALL:
        large = ArrayRecord({
            name: Array(dtype=a.dtype.str, shape=a.shape, stype=RAW, data=a.tobytes()) for name, a in whole.items()
        })  # fmt: skip
        return RecordDict({FACTS: ConfigRecord({"json": text}), LARGE: large})
    forms = json.dumps({name: [a.dtype.str, a.shape] for name, a in whole.items()})
    small: dict[str, Any] = {f"array {name}": a.tobytes() for name, a in whole.items()}
    return RecordDict({FACTS: ConfigRecord({"json": text, "forms": forms, **small})})


def content_of(message: Message, most: int = MOST) -> Opened:
    """What is in a message that Flower put together, as under a plain SuperNode."""
    with at_the_edge("the message"):
        content = message.content
        if FACTS not in content.config_records or not set(content) <= {FACTS, LARGE}:
            raise InputError("the message is not one of fedsofim's: it has other records")
        large = None
        if LARGE in content:
            found = content.array_records[LARGE]
            if any(array.stype != RAW for array in found.values()):
                raise InputError("the message is not one of fedsofim's: an array in it is none")
            large = {name: Raw(a.dtype, tuple(a.shape), bytes(a.data)) for name, a in found.items()}
        return opened_from(content.config_records[FACTS], large, most)
