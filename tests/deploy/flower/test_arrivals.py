"""Answers as they arrive: nobody waits for another's parts, and what follows from what was told is not fetched."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import Message
from flwr.proto.message_pb2 import Message as Proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fake_grid import delivered
from fedsofim.deploy.flower import arrivals as arrivals_module
from fedsofim.deploy.flower.arrivals import Arrivals
from fedsofim.deploy.flower.edge import MOST, Tree, known, missing, tree_of
from fedsofim.deploy.flower.fleet import Answer, Fleet
from fedsofim.deploy.flower.messages import query_message, reply_from, reply_message
from fedsofim.deploy.flower.worker import packed


def answer(node: int, size: int = 3) -> Answer:
    """What a node sends to a question to it."""
    question = delivered(query_message("hello", node))
    question.metadata.__dict__["_message_id"] = f"question {node}"
    return packed(reply_message({"node": f"n{node}"}, {"theta": np.arange(float(size))}, question))


def announced(sent: Answer) -> tuple[Proto, ObjectTree]:
    """As the SuperLink announces it: it keeps no note of which task a message is from."""
    head = Proto.FromString(sent.head)
    head.metadata.ClearField("src_task_id")
    return head, ObjectTree.FromString(sent.tree)


def as_told(sent: Answer) -> tuple[Proto, Tree]:
    head, tree = announced(sent)
    return head, tree_of(tree)


class Link:
    """A grid's connection: answers are announced at once, parts are there from when they are given."""

    def __init__(self, *answers: Answer) -> None:
        self.told = {Proto.FromString(a.head).metadata.reply_to_message_id: announced(a) for a in answers}
        self.parts: dict[str, bytes | None] = {name: b"" for a in answers for name in a.contents}
        self.calls: list[str] = []

    def give(self, sent: Answer) -> None:
        self.parts |= sent.contents

    def PullMessages(self, request: Any) -> Any:
        self.calls.append("look")
        found = [self.told.pop(number) for number in request.message_ids if number in self.told]
        heads, trees = [head for head, _ in found], [tree for _, tree in found]
        return SimpleNamespace(messages_list=heads, message_object_trees=trees)

    def PullObject(self, request: Any) -> PullObjectResponse:
        self.calls.append("part")
        content = self.parts[request.object_id]
        return PullObjectResponse(
            object_found=content is not None, object_available=bool(content), object_content=content or b""
        )

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.calls.append("confirm")


@pytest.fixture(autouse=True)
def a_link_is_a_grid_with_a_connection(monkeypatch):
    monkeypatch.setattr(arrivals_module, "runtime_client_of", lambda grid: grid if isinstance(grid, Link) else None)


def test_of_a_small_message_one_part_is_fetched_and_of_a_large_one_all_that_tell_something():
    sent = answer(1)
    head, tree = as_told(sent)
    (left,) = missing(tree, contents := known(head, tree))
    found = reply_from(tree.top, {**contents, left: sent.contents[left]}, MOST)
    meant = reply_from(tree.top, sent.contents, MOST)
    assert not found.error
    assert found.facts == meant.facts and np.array_equal(found.arrays["theta"], meant.arrays["theta"])
    large = answer(1, size=600_000)
    head, tree = as_told(large)
    assert len(large.contents) - 1 == len(missing(tree, known(head, tree))) > 3  # all but its head


def test_a_dictionary_that_holds_something_else_is_not_guessed():
    head, told = announced(answer(1))
    told.children[0].object_id = "0" * 64  # another than the one with our facts alone
    tree = tree_of(told)
    assert missing(tree, known(head, tree)) == [told.children[0].children[0].object_id, "0" * 64]


def test_nobody_waits_for_anothers_parts():
    """Flower's grid would have slept for a second here, then for two, with the second node's answer in its hands."""
    slow, quick = answer(1), answer(2)
    link = Link(slow, quick)
    arrivals = Arrivals(link)  # type: ignore[arg-type]
    link.give(quick)
    assert {n: r.facts for n, r in arrivals.pull(["question 1", "question 2"]).items()} == {
        "question 2": {"node": "n2"}
    }
    assert arrivals.pull(["question 1"]) == {} and link.calls.count("look") == 1  # it was announced: no need to look
    link.give(slow)
    (late,) = arrivals.pull(["question 1"]).values()
    assert np.array_equal(late.arrays["theta"], np.arange(3.0)) and arrivals.announced == {}
    arrivals.confirm()
    assert "confirm" not in link.calls  # parts that nobody needs may still be on their way
    arrivals.confirm()
    arrivals.confirm()
    assert link.calls.count("confirm") == 2


def test_an_answer_of_which_a_part_is_gone_is_an_error_and_not_for_ever():
    sent = answer(1)
    link = Link(sent)
    link.parts = dict.fromkeys(sent.contents)
    (came,) = Arrivals(link).pull(["question 1"]).values()  # type: ignore[arg-type]
    assert "not all of its parts came" in came.error


def test_a_grid_without_a_connection_is_asked_as_flower_means_it():
    sent = answer(1)
    whole: Any = inflate_object_from_contents(ObjectTree.FromString(sent.tree).object_id, dict(sent.contents))
    grid = SimpleNamespace(pull_messages=lambda numbers: [whole] if "question 1" in numbers else [])
    arrivals = Arrivals(grid)  # type: ignore[arg-type]
    assert arrivals.pull(["question 1"])["question 1"].facts == {"node": "n1"}
    arrivals.confirm()
    assert isinstance(whole, Message)


def test_a_node_confirms_a_message_when_the_next_one_of_its_run_has_come():
    """Confirmed at once, a message was deleted while its server still pushed it, and that was the end of the server."""
    first, second, other = ("a", 7), ("b", 7), ("c", 8)
    confirmed: list[str] = []
    client = SimpleNamespace(ConfirmMessageReceived=lambda request: confirmed.append(request.message_object_id))
    fleet = Fleet(client, b"", registers=False)  # type: ignore[arg-type]
    for (name, run), so_far in ((first, []), (other, []), (second, ["a"])):
        fleet._note(run, name)
        fleet.confirm()
        assert confirmed == so_far
