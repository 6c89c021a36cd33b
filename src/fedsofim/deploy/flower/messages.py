"""Flower messages: the only file that turns wire.py's requests and replies into Flower records and back."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from fedsofim.core.phase import Phase
from fedsofim.deploy.flower.parts import FACTS
from fedsofim.deploy.sane import check_plain
from fedsofim.deploy.wire import Arrays, Job, Request
from fedsofim.errors import InputError

ASK = "ask"  # the only question that costs anything
_SMALL = 2_000_000  # bytes of arrays that travel with the facts


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


def recall_message(statement: Mapping[str, Any], node: int) -> Message:
    """What the node signed last, given back before it is asked for anything."""
    return _query({"what": "recall", "statement": dict(statement)}, node)


def sum_message(what: str, node: int, facts: Mapping[str, Any], arrays: Arrays) -> Message:
    """A question about a secure sum that is being opened."""
    content = _content({**facts, "what": what}, arrays)
    return Message(content=content, message_type=MessageType.QUERY, dst_node_id=node)


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
    if not isinstance(phase, str) or phase not in set(Phase) or type(round) is not int or round < 0:
        raise InputError("the request names no phase and round; do server and node run the same version?")
    return Request(Job.read(str(facts.get("job"))), Phase(phase), round, arrays)


def facts_of(message: Message) -> dict[str, Any]:
    """What a message says beside its arrays, as it says it."""
    return _opened(message.content)[0]


def job_of(message: Message) -> Job:
    return Job.read(str(_opened(message.content)[0].get("job")))


def what_of(message: Message) -> str:
    return str(_opened(message.content)[0].get("what"))


def statement_of(message: Message) -> Any:
    return _opened(message.content)[0].get("statement")


def digest_of(message: Message) -> str:
    """Which request a question about holding means; empty for none."""
    return str(_opened(message.content)[0].get("digest", ""))


def sum_of(message: Message) -> tuple[str, Any, Arrays]:
    """Which request's sum is meant, whom it is said to be over, and the arrays that came."""
    facts, arrays = _opened(message.content)
    check_plain(facts)
    return str(facts.get("digest", "")), facts.get("present"), arrays


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
    """Facts and arrays as Flower's records.

    Each record, array and chunk of a message is a call of its own, at the server, at the SuperLink and at the node. So
    what is small travels with the facts, in one record; what is large in the chunks that Flower makes of it.
    """
    whole = {name: np.asarray(a) for name, a in arrays.items()}
    if sum(a.nbytes for a in whole.values()) > _SMALL:
        large = ArrayRecord({name: Array(a) for name, a in whole.items()})
        return RecordDict({FACTS: ConfigRecord({"json": json.dumps(facts)}), "arrays": large})
    forms = json.dumps({name: [a.dtype.str, a.shape] for name, a in whole.items()})
    small: dict[str, Any] = {f"array {name}": a.tobytes() for name, a in whole.items()}
    return RecordDict({FACTS: ConfigRecord({"json": json.dumps(facts), "forms": forms, **small})})


def _opened(content: RecordDict) -> tuple[dict[str, Any], Arrays]:
    try:
        record = content.config_records[FACTS]
        facts = json.loads(str(record["json"]))
        if "arrays" in content:
            arrays = {str(name): array.numpy() for name, array in content.array_records["arrays"].items()}
        else:
            forms = json.loads(str(record["forms"])).items()
            arrays = {name: _array(record[f"array {name}"], *form) for name, form in forms}
    except (KeyError, ValueError, TypeError, AttributeError, OSError, RecursionError, OverflowError) as error:
        raise InputError("the message is not one of fedsofim's") from error
    if not isinstance(facts, dict):
        raise InputError("the message is not one of fedsofim's")
    return facts, arrays


def _array(data: Any, kind: Any, shape: Any) -> np.ndarray:
    """An array from its bytes, which say how large it is; never more than came."""
    if not isinstance(data, bytes) or not isinstance(kind, str) or not isinstance(shape, list):
        raise TypeError("not an array")
    return np.frombuffer(data, np.dtype(kind)).reshape([int(n) for n in shape]).copy()
