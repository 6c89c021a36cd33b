"""What arrives is parsed here, once, into checked values: heads, trees, facts and arrays, on both sides.

Whatever is not such a value is one InputError. Nothing is allocated before its size was checked, nothing is unpickled,
and no other exception gets out, whatever the bytes are. Contents are read here and not by Flower, whose arrays may name
one chunk a million times and are read by numpy's own file format.
"""

import contextlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedsofim.deploy.flower.flower_api import get_object_id, message_pb2, recorddict_pb2
from fedsofim.deploy.sane import LONGEST, check_plain
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError

FACTS = "facts"  # the name of the record that every message of ours has, and small ones only
LARGE = "arrays"  # and of the record with arrays that do not fit there
RAW = "fedsofim.raw"  # how the bytes of these arrays are to be understood: as they lie in memory
DTYPES = frozenset({"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"})
MOST = 2_000_000_000  # bytes of a message's arrays where nobody says how many
_ARRAYS, _DIMENSIONS, _LENGTH = 4096, 32, 2**40  # at most: arrays of a message, axes of one, length of an axis
_PARTS, _DEPTH = 20_000, 8  # at most: parts of a message, and how deep they lie in each other
_TABLE = 2_000_000  # letters of a list of names
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._: -]{0,99}")
_ID = re.compile(r"[0-9a-f]{64}")
_KINDS = ("train", "query")
_DAY = 86_400.0


class Opened(NamedTuple):
    """What a message says: facts, and arrays by name."""

    facts: dict[str, Any]
    arrays: Arrays


class Raw(NamedTuple):
    """An array as it came: its stated dtype and shape, and its bytes."""

    dtype: Any
    shape: Any
    data: Any


class Tree(NamedTuple):
    """The ids of a message's parts, each once and children first."""

    top: str
    parts: tuple[str, ...]
    children: tuple["Tree", ...]


class Head(NamedTuple):
    """Who asks, in which run, and what a reply needs to find its way. `kind` is empty for one that is none of ours."""

    run: int
    message: str
    sender: int
    group: str
    kind: str
    created: float
    ttl: float


@contextlib.contextmanager
def at_the_edge(what: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into one InputError; also too deep a nesting and too little memory."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} is not one of fedsofim's ({type(error).__name__})") from error


def words(text: Any, most: int = 200) -> str:
    """Text from elsewhere, fit for a log and a terminal.

    >>> words("gone\\x1b[2J")
    'gone?[2J'
    """
    return "".join(c if c.isprintable() else "?" for c in str(text)[:most])


# --- heads and trees ----------------------------------------------------------------------------------------


def tree_of(proto: Any) -> Tree:
    """The tree that announces a message."""
    with at_the_edge("the announcement of a message"):
        count = 0

        def read(part: Any, depth: int) -> Tree:
            nonlocal count
            count += 1
            if depth > _DEPTH or count > _PARTS:
                raise InputError("a message was announced that has more parts than any of ours")
            name = part.object_id
            if not _ID.fullmatch(name):
                raise InputError("a message was announced that has a part without an id")
            children = tuple(read(child, depth + 1) for child in part.children)
            below = [each for child in children for each in child.parts]
            return Tree(name, tuple(dict.fromkeys([*below, name])), children)

        return read(proto, 0)


def head_of(proto: Any, top: str) -> Head:
    """The head of an announced message, of which only the run is believed as it is.

    Times that make no sense become an hour from now, so that a refusal can be sent.
    """
    with at_the_edge("the head of a message"):
        meta, now = proto.metadata, time.time()
        created, ttl = float(meta.created_at), float(meta.ttl)
        if not (math.isfinite(created) and math.isfinite(ttl) and 0 < ttl <= 30 * _DAY and created + ttl > now
                and created < now + _DAY):  # fmt: skip
            created, ttl = now, 3600.0
        kind = meta.message_type if meta.message_type in _KINDS else ""
        return Head(int(meta.run_id), top, int(meta.src_node_id), words(meta.group_id, 64), kind, created, ttl)


# --- contents -----------------------------------------------------------------------------------------------


def unpacked(top: str, contents: Mapping[str, bytes], most: int = MOST) -> Opened:
    """A message from the contents of its parts, of at most so many bytes of arrays."""
    with at_the_edge("the message"):
        _, (whole,), _ = _part(contents, top, "Message")
        _, _, body = _part(contents, whole, "RecordDict")
        names = _table(body)
        if FACTS not in names or not set(names) <= {FACTS, LARGE}:
            raise InputError("the message is not one of fedsofim's: it has other records")
        _, _, body = _part(contents, names[FACTS], "ConfigRecord")
        record = _config(body)
        if LARGE not in names:
            return opened_from(record, None, most)
        _, _, body = _part(contents, names[LARGE], "ArrayRecord")
        arrays = {name: _chunks(contents, number, most) for name, number in _table(body).items()}
        return opened_from(record, arrays, most)


def error_in(contents: Mapping[str, bytes], top: str) -> str | None:
    """What a message says that is nothing but an error; None for one with content."""
    with at_the_edge("the message"):
        _, children, body = _part(contents, top, "Message")
        if children:
            return None
        found = message_pb2.Message.FromString(bytes(body))
        return words(found.error.reason) or f"Flower's error {found.error.code}"


def _part(contents: Mapping[str, bytes], name: str, kind: str) -> tuple[str, list[str], memoryview]:
    """Kind, children's ids and body of one part, which must be of that kind."""
    content = contents[name]
    end = content.find(b"\0", 0, _TABLE)
    found, children, length = content[:end].decode("ascii").split(" ") if end > 0 else ("", "", "")
    body = memoryview(content)[end + 1 :]
    if found != kind or length != str(len(body)):
        raise InputError(f"the message is not one of fedsofim's: a part of it is no {kind}")
    return found, children.split(",") if children else [], body


def _json(text: str | memoryview, most: int) -> Any:
    if len(text) > most:
        raise InputError(f"a message with a text of {len(text)} letters came; expected at most {most}")

    def refuse(name: str) -> None:
        raise InputError(f"a message came that has {name} for a number")

    return json.loads(text if isinstance(text, str) else bytes(text), parse_constant=refuse)


def _table(body: memoryview) -> dict[str, str]:
    """Names with ids."""
    found = _json(body, _TABLE)
    if not isinstance(found, dict) or len(found) > _ARRAYS or not all(isinstance(v, str) for v in found.values()):
        raise InputError("the message is not one of fedsofim's: a list of names in it is none")
    return found


def _config(body: memoryview) -> dict[str, str | bytes]:
    """Texts and bytes of Flower's ConfigRecord; there is nothing else in ours."""
    found: dict[str, str | bytes] = {}
    for item in recorddict_pb2.ConfigRecord.FromString(bytes(body)).items:
        kind = item.value.WhichOneof("value")
        if kind not in ("string", "bytes") or item.key in found:
            raise InputError("the message is not one of fedsofim's: its facts hold something strange")
        found[item.key] = getattr(item.value, kind)
    return found


def _chunks(contents: Mapping[str, bytes], name: str, most: int) -> Raw:
    """An array in Flower's chunks, each of which may come more than once; joined when their size is right."""
    _, children, body = _part(contents, name, "Array")
    said = _json(body, _TABLE)
    bodies = {number: _part(contents, number, "ArrayChunk")[2] for number in children}
    order = [children[place] for place in said["arraychunk_ids"] if type(place) is int and 0 <= place < len(children)]
    if said["stype"] != RAW or len(order) != len(said["arraychunk_ids"]) or set(order) != set(children):
        raise InputError("the message is not one of fedsofim's: an array in it is none")
    size = _bytes_of(said["dtype"], said["shape"], most)
    if sum(len(bodies[number]) for number in order) != size:
        raise InputError("an array came with more or fewer bytes than its shape says")
    return Raw(said["dtype"], said["shape"], b"".join(bodies[number] for number in order))


def opened_from(record: Mapping[str, Any], large: Mapping[str, Raw] | None, most: int = MOST) -> Opened:
    """Facts and arrays of a message, from the record that has its facts and the arrays beside it."""
    with at_the_edge("the message"):
        text = record["json"]
        if not isinstance(text, str):
            raise InputError("the message is not one of fedsofim's: its facts are no text")
        facts = _json(text, 2 * LONGEST)  # a job's terms are a text within this one
        if not isinstance(facts, dict):
            raise InputError("the message is not one of fedsofim's: its facts have no names")
        job = facts.get("job")
        check_plain({k: v for k, v in facts.items() if k != "job"} if isinstance(job, str) else facts)
        if large is None:
            forms = _json(str(record["forms"]), _TABLE)
            large = {name: _form_of(form, record[f"array {name}"]) for name, form in forms.items()}
        if len(large) > _ARRAYS or not all(isinstance(n, str) and _NAME.fullmatch(n) for n in large):
            raise InputError("a message came with too many arrays, or arrays with strange names")
        left, arrays = most, {}
        for name, raw in large.items():
            left -= _bytes_of(raw.dtype, raw.shape, left)
            arrays[name] = _array(raw)
        return Opened(facts, arrays)


def _form_of(form: Any, data: Any) -> Raw:
    dtype, shape = form
    return Raw(dtype, shape, data)


def _bytes_of(dtype: Any, shape: Any, most: int) -> int:
    """How many bytes such an array has; an error if it is none, or larger than allowed."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError("an array came of a kind that no message of ours has")
    if not isinstance(shape, list | tuple) or len(shape) > _DIMENSIONS:
        raise InputError("an array came without a shape")
    if not all(type(n) is int and 0 <= n <= _LENGTH for n in shape):
        raise InputError("an array came with a shape that is none")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > most:
        raise InputError(f"a message came with more bytes of arrays than are allowed here ({most})")
    return size


def _array(raw: Raw) -> np.ndarray:
    size = _bytes_of(raw.dtype, raw.shape, _LENGTH)
    if not isinstance(raw.data, bytes) or len(raw.data) != size:
        raise InputError("an array came with more or fewer bytes than its shape says")
    if raw.dtype == "|b1" and size and np.frombuffer(raw.data, np.uint8).max() > 1:
        raise InputError("an array of truth values came that holds something else")
    return np.frombuffer(raw.data, np.dtype(raw.dtype)).reshape(raw.shape).copy()


# --- parts that need not be fetched -------------------------------------------------------------------------
#
# Flower keeps a message as a tree of parts, and each part is a call to the SuperLink, which is what a round's time goes
# to (docs/performance.md). Two of them follow from the announcement. The head comes with it. A dictionary has an id,
# the SHA-256 of its content, and children: what has the id *is* the content, whoever put it together.


def known(head: Any, tree: Tree) -> dict[str, bytes]:
    """Contents of parts of an announced message, by their ids; whatever does not come out right is fetched."""
    with at_the_edge("the announcement of a message"):
        guesses = [_form("RecordDict", each, _only_facts(each)) for each in tree.children if len(each.children) == 1]
        wanted = {each.top for each in tree.children}
        right = {name: guess for guess in guesses if (name := get_object_id(guess)) in wanted}
        return {tree.top: _form("Message", tree, _message_body(head)), **right}


def missing(tree: Tree, contents: Mapping[str, bytes]) -> list[str]:
    """Ids of parts that are not there yet, each once, children first."""
    return [name for name in tree.parts if name not in contents]


def _message_body(head: Any) -> bytes:
    """A head as Flower writes it into a message's own part: without its id, which is the part's, or contents."""
    metadata = type(head.metadata)()
    metadata.CopyFrom(head.metadata)
    metadata.message_id = ""
    error = head.error if head.HasField("error") else None
    return message_pb2.Message(metadata=metadata, error=error).SerializeToString(deterministic=True)


def _only_facts(tree: Tree) -> bytes:
    return json.dumps({FACTS: tree.children[0].top}).encode()


def _form(kind: str, tree: Tree, body: bytes) -> bytes:
    """A part of that kind with these children, as Flower writes it."""
    children = ",".join(dict.fromkeys(child.top for child in tree.children))
    return f"{kind} {children} {len(body)}".encode() + b"\0" + body
