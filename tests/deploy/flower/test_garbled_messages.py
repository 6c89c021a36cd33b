"""Garbled messages: a node and a server take in anything, and nothing but a value or a refusal comes of it.

The long form is `scripts/fuzz_wire.py`, part of `make fuzz`.
"""

import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import ObjectTree

import garbled
from fake_grid import FakeGrid, numbered, told
from fedsofim.deploy.docket import visits
from fedsofim.deploy.flower import arrivals, node_loop
from fedsofim.deploy.flower.client_app import Incoming, respond
from fedsofim.deploy.flower.edge import MOST, RAW, head_of, tree_of
from fedsofim.deploy.flower.fleet import Fleet, Letter, UnreadableError
from fedsofim.deploy.flower.messages import FACTS, LARGE, content_of, opened, query_message, reply_from
from fedsofim.deploy.flower.strategy import RoundFailed
from fedsofim.deploy.flower.worker import packed
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from nodes import asked
from strange_inputs import MANY
from strategies import strategy


@pytest.fixture(scope="module")
def right(shared_nodes: list[Policy]) -> list[garbled.Message]:
    return garbled.right_messages(asked(shared_nodes))


def test_right_messages_pass(right: list[garbled.Message], monkeypatch):
    assert [garbled.node_bears(m) for m in right] == ["request", "refused", "request", "refused"]
    connected = connecting(monkeypatch)
    for reply in (right[1], right[3]):
        assert garbled.server_bears(reply, garbled.honest_reply(), connected) == "reply"


def connecting(monkeypatch) -> Any:
    """Lets a server reach a SuperLink in memory."""
    import contextlib

    @contextlib.contextmanager
    def connected(link: Any):
        monkeypatch.setattr(arrivals, "runtime_client_of", lambda grid: link)
        yield

    return connected


def test_nothing_escapes_at_a_node(right: list[garbled.Message]):
    dice, fates = random.Random(20), Counter()
    for _ in range(MANY):
        fates[garbled.node_bears(garbled.garbled(dice.choice(right), dice))] += 1
    assert fates["refused"] > MANY / 4 and fates["unreadable"] and fates["request"] and fates["gone"], fates


def test_nothing_escapes_at_a_server_and_the_others_are_heard(right: list[garbled.Message], monkeypatch):
    dice, fates, connected = random.Random(21), Counter(), connecting(monkeypatch)
    honest = garbled.honest_reply()
    for _ in range(MANY):
        bad = garbled.garbled(right[dice.choice((1, 3))], dice)
        fates[garbled.server_bears(bad, honest, connected)] += 1
    assert fates["error"] > MANY / 4 and fates["reply"], fates


# --- what was found by hand ---------------------------------------------------------------------------------


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


def _npy(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


HUGE = _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,), }")
LARGE_ARRAYS = {
    "nothing": b"", "half a beginning": b"\x93NU", "an archive": _npz(), "728 TiB": HUGE, "a pickle": b"\x80\x04abc",
    "an open bracket": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,"), "quotes": _npy("'''"),
    "a strange dtype": _npy("{'descr': 'f4,(2', 'fortran_order': False, 'shape': (1,), }"),
}  # fmt: skip
FORMS = [
    ["f4,(2", [1]],
    ["O", [1]],
    ["<f4", [10**30]],
    ["V4", [1]],
    ["U1", [1]],
    [["<f4"], [1]],
    ["<f4", 1],
    ["|b1", [4]],
]


@pytest.mark.parametrize("stype", ["numpy.ndarray", RAW, "pickle"])
@pytest.mark.parametrize("data", LARGE_ARRAYS.values(), ids=LARGE_ARRAYS)
def test_large_arrays_that_are_none(data: bytes, stype: str):
    array = Array(dtype="<f4", shape=(1,), stype=stype, data=data)
    content = RecordDict({FACTS: ConfigRecord({"json": '{"node": "n0"}'}), LARGE: ArrayRecord({"upload0": array})})
    message = Message(content=content, reply_to=garbled.question(1))
    sent = packed(message)
    assert opened(message).error
    assert reply_from(garbled.message_of(sent).tree.object_id, sent.contents, MOST).error


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_small_arrays_that_are_none(form: Any):
    record = {"json": '{"node": "n0"}', "forms": json.dumps({"upload0": form}), "array upload0": b"\xff\xff\xff\xff"}
    message = Message(content=RecordDict({FACTS: ConfigRecord(record)}), reply_to=garbled.question(1))
    with pytest.raises(InputError):
        content_of(message)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": NaN}', '{"a": 1' + "0" * 5000 + "}", '{"a": 1e999}', '{"a": "\\ud800"}', "7"]
)
def test_facts_that_are_none(text: str):
    message = Message(
        content=RecordDict({FACTS: ConfigRecord({"json": text, "forms": "{}"})}), reply_to=garbled.question(1)
    )
    with pytest.raises(InputError):
        content_of(message)


def test_a_chunk_that_is_named_a_million_times_is_not_joined(right: list[garbled.Message]):
    """It would be 600 GB: that their size is wrong is found before."""
    contents = dict(right[3].contents)
    for name, content in right[3].contents.items():
        head, _, body = content.partition(b"\0")
        kind, children = head.split(b" ")[:2]
        if kind == b"ArrayChunk":
            body = bytes(10**6)
        elif kind == b"Array":
            body = json.dumps({**json.loads(body), "arraychunk_ids": [0] * 600_000}).encode()
        contents[name] = b"%s %s %d\0" % (kind, children, len(body)) + body
    assert "bytes than its shape" in reply_from(right[3].tree.object_id, contents, MOST).error


def test_arrays_have_no_more_bytes_than_are_allowed(right: list[garbled.Message]):
    """However they come: small, large, or one array under many names, which takes no room on the way."""
    for message in (right[1], right[3]):
        size = sum(a.nbytes for a in reply_from(message.tree.object_id, message.contents, MOST).arrays.values())
        assert not reply_from(message.tree.object_id, message.contents, size).error
        assert "more bytes of arrays" in reply_from(message.tree.object_id, message.contents, size - 1).error
    for name, content in right[3].contents.items():
        head, _, body = content.partition(b"\0")
        if head.startswith(b"ArrayRecord "):
            (one,) = json.loads(body).values()
            many = json.dumps({f"upload{i}": one for i in range(100)}).encode()
            head = b" ".join([*head.split(b" ")[:2], str(len(many)).encode()])
            contents = {**right[3].contents, name: head + b"\0" + many}
            assert "more bytes of arrays" in reply_from(right[3].tree.object_id, contents, 99 * size).error
            assert len(reply_from(right[3].tree.object_id, contents, 100 * size).arrays) == 100


def test_an_answer_that_is_too_large_is_fetched_no_further(right: list[garbled.Message], monkeypatch):
    link = garbled.Client(right[3])
    right[3].head.metadata.reply_to_message_id = "x"
    monkeypatch.setattr(arrivals, "runtime_client_of", lambda grid: link)
    found = arrivals.Arrivals(None, most=100)  # type: ignore[arg-type]
    assert "larger than the 100 bytes" in found.pull(["x"])["x"].error
    assert found.whole, "the SuperLink need not keep it"


# --- what becomes of the sender -----------------------------------------------------------------------------


def _spoilt(node: int, question: Message, reply: Message) -> Message:
    """The second node sends arrays that are none in every round."""
    if node != 101 or question.metadata.message_type != "train":
        return reply
    array = Array(dtype="f4,(2", shape=(1,), stype="numpy.ndarray", data=HUGE)
    content = RecordDict({FACTS: ConfigRecord({"json": '{"node": "n1"}'}), LARGE: ArrayRecord({"upload0": array})})
    return Message(content=content, reply_to=question)


def test_a_job_goes_on_without_a_node_that_sends_garbage(tmp_path: Path, nodes: list[Policy], caplog):
    order = Order(method="fedgd", recipe="paper", rounds=2, min_clients=2)
    strategy(tmp_path, order).start(FakeGrid(numbered(nodes), _spoilt))
    assert "goes on without n1: no upload: the message is not one of fedsofim's" in caplog.text


def test_a_job_that_needs_everybody_names_the_node_that_sends_garbage(tmp_path: Path, nodes: list[Policy]):
    with pytest.raises(RoundFailed, match=r"checkpoint stands.*n1: no upload: the message is not one of fedsofim's"):
        strategy(tmp_path, Order(method="fedgd", recipe="paper", rounds=2)).start(FakeGrid(numbered(nodes), _spoilt))


def test_a_node_refuses_a_message_it_cannot_read_and_notes_it(nodes: list[Policy], caplog):
    message = query_message("hello", 1)
    message.content = RecordDict(
        {FACTS: ConfigRecord({"json": "{}", "forms": '{"a": ["f4,(2", [1]]}', "array a": b"1"})}
    )
    reply = told(nodes[0].data.parent / "policy.toml", message)
    assert set(reply.facts) == {"node", "refused"} and reply.facts["node"] == "n0"
    assert [v.verdict for v in visits(nodes[0].ledger, 9)] == ["refused"]
    assert "refused run 1 of" in caplog.text


@pytest.mark.parametrize("kind", ["", "evaluate", "train.x", "Query"])
def test_a_message_of_another_kind_is_refused_whatever_it_asks(nodes: list[Policy], kind: str):
    incoming = Incoming(kind, 1, content_of(query_message("hello", 1)))
    facts, arrays = respond(incoming, {"policy": str(nodes[0].data.parent / "policy.toml")})
    assert facts == {"node": "n0", "refused": "the message is of a kind that a node does not answer"} and not arrays


# --- heads and announcements at a node's own process --------------------------------------------------------


@pytest.mark.parametrize("change", [
    {"message_type": "bogus"}, {"message_type": ""}, {"message_type": "evaluate"}, {"message_type": "train.1 2"},
    {"ttl": -1.0}, {"ttl": float("nan")}, {"created_at": 1e300}, {"reply_to_message_id": "abc"}, {"dst_node_id": 0},
], ids=str)  # fmt: skip
def test_whatever_a_head_says_it_can_be_answered(
    right: list[garbled.Message], change: dict[str, Any], tmp_path, nodes, capsys
):
    for key, value in change.items():
        setattr(right[0].head.metadata, key, value)
    head = head_of(right[0].head, tree_of(right[0].tree).top)
    loop = node_loop.NodeLoop(Fleet(None, b"", False), nodes[0].data.parent / "policy.toml", tmp_path, "h:1")  # type: ignore[arg-type]
    answer = loop._answer(Letter(head, {}, "it is of no kind"), 1.0, 10)
    reply = garbled.message_of(answer)
    assert reply.head.metadata.ttl > 0 and "it is of no kind" in reply.head.error.reason
    said = capsys.readouterr().out
    assert "rejected: a message of run" in said and said.startswith("20"), "each with the time"


@pytest.mark.parametrize("depth, width", [(9, 1), (2, 20_000)])
def test_a_tree_that_is_larger_than_any_of_ours_is_not_walked(depth: int, width: int):
    part = top = ObjectTree(object_id="0" * 64)
    for _ in range(depth - 1):
        part = part.children.add(object_id="1" * 64)
    for _ in range(width):
        part.children.add(object_id="2" * 64)
    with pytest.raises(InputError, match="more parts than any of ours"):
        tree_of(top)


def test_an_announcement_without_a_tree_is_unreadable_and_does_not_end_the_node(right: list[garbled.Message]):
    class Bare(garbled.Client):
        def PullMessages(self, request: Any) -> Any:
            return PullMessagesResponse(messages_list=[right[0].head])

    with pytest.raises(UnreadableError):
        Fleet(Bare(), b"", False).fetch(10**6)  # type: ignore[arg-type]
