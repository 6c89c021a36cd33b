"""Messages as nobody should send them, as the SuperLink would bring them: heads, announcements and the parts' bytes.

Each is a right message with populated arrays, garbled in one place or several. `node_bears` and `server_bears` take one
in as a node and as a server would, and raise only if something escapes.
"""

import contextlib
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import Message as Proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.recorddict_pb2 import ConfigRecord

from fake_grid import delivered
from fedsofim.deploy.flower import messages
from fedsofim.deploy.flower.arrivals import Arrivals
from fedsofim.deploy.flower.client_app import Incoming
from fedsofim.deploy.flower.edge import MOST, unpacked
from fedsofim.deploy.flower.fleet import Answer, Fleet, Letter, UnreadableError
from fedsofim.deploy.flower.messages import query_message, reply_message, request_in
from fedsofim.deploy.flower.worker import failed, packed
from fedsofim.deploy.wire import Request
from fedsofim.errors import InputError
from strange_inputs import STRANGE, exchanged, mutated

DTYPES = [
    "O",
    "f4,(2",
    "(2,3f4",
    "V4",
    "f4,f4",
    "M8[s]",
    "S4",
    "U1",
    "<f4",
    ">f4",
    "<f8",
    "|b1",
    "",
    "x" * 99,
    "<c8",
    3,
]
SHAPES: list[Any] = [[10**30], [-1], [1] * 70, [2**40, 2**40], [0, 10**18], [True], [1.0], "3", None, [[1]], []]
BODIES = [b"", b"\x93NUM", b"PK\x03\x04" + b"x" * 40, b"\x80\x04abc", b"\xff" * 9, b"[" * 9000, b"{" * 9000, b"null"]
TYPES = ["bogus", "", "evaluate", "train.x", "train.1 2", "query", "\u202e" * 99]
TIMES = [float("nan"), float("inf"), -1.0, 0.0, 1e300, -1e300, 5e-324]


class Message(NamedTuple):
    """What the SuperLink announces and has."""

    head: Proto
    tree: ObjectTree
    contents: dict[str, bytes]


def message_of(sent: Answer) -> Message:
    head = Proto.FromString(sent.head)
    head.metadata.ClearField("src_task_id")
    return Message(head, ObjectTree.FromString(sent.tree), dict(sent.contents))


def right_messages(request: Request) -> list[Message]:
    """A request and a reply, each small and in chunks."""
    out, small = [], messages._SMALL
    try:
        for most in (small, 0):
            messages._SMALL = most
            asked = delivered(messages.ask_message(request, 7))
            arrays = {f"upload{i}": np.asarray(a) for i, a in enumerate(request.arrays.values())}
            out += [packed(asked), packed(reply_message({"node": "n0", "epsilon": 0.5}, arrays, asked))]
    finally:
        messages._SMALL = small
    return [message_of(each) for each in out]


def honest_reply() -> Message:
    """Another node's reply, which shares no part with the others."""
    return message_of(packed(reply_message({"node": "honest"}, {"upload0": np.arange(5.0)}, question(9))))


# --- garbling -----------------------------------------------------------------------------------------------


def garbled(right: Message, dice: random.Random) -> Message:
    """The same, with something in it that should not be there."""
    head, tree = Proto(), ObjectTree()
    head.CopyFrom(right.head)
    tree.CopyFrom(right.tree)
    found = Message(head, tree, dict(right.contents))
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        with contextlib.suppress(Exception):  # what is garbled already may mean nothing any more
            dice.choice(WAYS)(found, dice)
    return found


def _head(message: Message, dice: random.Random) -> None:
    meta = message.head.metadata
    match dice.randrange(6):
        case 0:
            meta.message_type = dice.choice(TYPES)
        case 1:
            meta.ttl = dice.choice(TIMES)
        case 2:
            meta.created_at = dice.choice(TIMES)
        case 3:
            meta.run_id = dice.choice((0, 1, 2**63, 2**64 - 1))
        case 4:
            meta.group_id = "\x1b[2J" * dice.randrange(99)
        case _:
            message.head.error.code = dice.randrange(-5, 99)
            message.head.error.reason = "\x1b[2J\n" * dice.randrange(99)


def _tree(message: Message, dice: random.Random) -> None:
    part = message.tree
    while part.children and dice.random() < 0.6:
        part = dice.choice(part.children)
    match dice.randrange(6):
        case 0:
            part.object_id = dice.choice(("", "0" * 64, "x" * 64, "0" * 10_000, message.tree.object_id))
        case 1:
            whole = ObjectTree()
            whole.CopyFrom(message.tree)  # a copy: nothing can hold itself
            part.children.add().CopyFrom(whole)
        case 2:
            del part.children[:]
        case 3:
            for _ in range(dice.choice((9, 40))):
                part = part.children.add(object_id="1" * 64)
        case 4:
            for _ in range(200):
                part.children.add(object_id="2" * 64)
        case _:
            message.tree.Clear()


def _bytes(message: Message, dice: random.Random) -> None:
    name = dice.choice(list(message.contents))
    old = message.contents[name]
    match dice.randrange(5):
        case 0:
            message.contents[name] = mutated(old, dice)
        case 1:
            message.contents[name] = dice.choice(BODIES)
        case 2:
            message.contents[name] = message.contents[dice.choice(list(message.contents))]
        case 3:
            kind, _, body = old.partition(b"\0")
            new = mutated(body, dice)
            message.contents[name] = b" ".join([*kind.split(b" ")[:2], str(len(new)).encode()]) + b"\0" + new
        case _:
            del message.contents[name]


def _meaning(message: Message, dice: random.Random) -> None:
    """What a part means is exchanged, and its length is right again."""
    name = dice.choice(list(message.contents))
    head, _, body = message.contents[name].partition(b"\0")
    kind = head.split(b" ")[0]
    if kind == b"ConfigRecord":
        body = _config(body, dice)
    elif kind in (b"Array", b"RecordDict", b"ArrayRecord"):
        found = json.loads(body)
        if kind == b"Array":
            found[dice.choice(list(found))] = dice.choice([*DTYPES, *SHAPES, [0] * 100_000, [-1], [99], ["0"]])
        else:
            found = exchanged(found, dice)
        body = json.dumps(found).encode()
    message.contents[name] = b" ".join([*head.split(b" ")[:2], str(len(body)).encode()]) + b"\0" + body


def _config(body: bytes, dice: random.Random) -> bytes:
    record = ConfigRecord.FromString(body)
    for item in record.items:
        if item.key == "json" and dice.random() < 0.5:
            facts = json.loads(item.value.string)
            if "job" in facts and dice.random() < 0.5:
                facts["job"] = json.dumps(exchanged(json.loads(facts["job"]), dice))
            item.value.string = json.dumps(exchanged(facts, dice))
        elif item.key == "forms" and dice.random() < 0.7:
            forms = json.loads(item.value.string)
            if forms and dice.random() < 0.7:
                forms[dice.choice(list(forms))] = [dice.choice(DTYPES), dice.choice(SHAPES)]
            item.value.string = json.dumps(exchanged(forms, dice) if dice.random() < 0.4 else forms)
        elif item.key.startswith("array") and dice.random() < 0.3:
            item.value.bytes = dice.choice(BODIES)
        elif dice.random() < 0.1:
            item.value.sint64 = 3
    if dice.random() < 0.1:
        record.items.add(key=str(dice.choice(STRANGE))[:50])
    return record.SerializeToString()


WAYS: list[Callable[[Message, random.Random], None]] = [_head, _tree, _bytes, _meaning, _meaning, _meaning]


# --- both sides ---------------------------------------------------------------------------------------------


class Client:
    """A SuperLink with such messages, for a node and for a server."""

    def __init__(self, *found: Message) -> None:
        self.found = found

    def PullMessages(self, request: Any) -> Any:
        heads, trees = [m.head for m in self.found], [m.tree for m in self.found]
        return PullMessagesResponse(messages_list=heads, message_object_trees=trees)

    def PullObject(self, request: Any) -> PullObjectResponse:
        for message in self.found:
            if (content := message.contents.get(request.object_id)) is not None:
                return PullObjectResponse(object_found=True, object_available=bool(content), object_content=content)
        return PullObjectResponse(object_found=False)


def node_bears(message: Message, most: int = MOST) -> str:
    """Take a message in as a node does, up to its request; what became of it."""
    fleet = Fleet(Client(message), b"", registers=False, pause=lambda seconds: None)  # type: ignore[arg-type]
    try:
        letter = fleet.fetch(most)
    except UnreadableError:
        return "unreadable"
    except Exception as error:
        if type(error).__name__ == "Gone":  # a part is not there
            return "gone"
        raise
    assert isinstance(letter, Letter)
    assert isinstance(failed(letter.head, 5, "why"), Answer)
    try:
        opened = unpacked(letter.head.message, letter.contents, most) if not letter.trouble else None
        if opened is None:
            return "refused"
        request_in(Incoming(letter.head.kind, letter.head.run, opened).opened)  # type: ignore[arg-type]
    except InputError as error:
        assert "\n" not in str(error)
        return "refused"
    return "request"


def server_bears(message: Message, honest: Message, monkeyed: Any) -> str:
    """Take an answer in as a server does, beside an honest one that must come out unharmed; what became of it."""
    message.head.metadata.reply_to_message_id = "bad"
    other = Message(Proto(), honest.tree, honest.contents)
    other.head.CopyFrom(honest.head)
    other.head.metadata.reply_to_message_id = "good"
    link = SimpleNamespace(_link=Client(message, other))
    arrivals = Arrivals(link)  # type: ignore[arg-type]
    with monkeyed(link._link):
        came = arrivals.pull(["bad", "good"])
    assert not came["good"].error and came["good"].facts == {"node": "honest"} and came["good"].arrays
    if "bad" not in came:
        return "waits"
    assert all(c.isprintable() for c in came["bad"].error)
    return "error" if came["bad"].error else "reply"


def question(node: int) -> Any:
    """Any question, to reply to."""
    return delivered(query_message("hello", node))
