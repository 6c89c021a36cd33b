"""Messages as Flower carries them: what goes in comes out, in as few parts as can be."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fake_grid import delivered
from fedsofim.deploy.flower import messages
from fedsofim.deploy.flower.messages import ask_message, opened, query_message, reply_message, request_of
from fedsofim.deploy.policy import Policy
from nodes import asked

ARRAYS: dict[str, Any] = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "number": np.float64(2.5),
    "words": np.array([2**64 - 1], np.uint64),
    "none": np.zeros((3, 0), np.float32),
    "flags": np.array([True, False]),
}


def replied(arrays: dict[str, Any]) -> Any:
    return reply_message({"node": "a"}, arrays, delivered(query_message("hello", 1)))


@pytest.mark.parametrize("small", [0, 10**6], ids=["in chunks", "with the facts"])
def test_arrays_come_out_as_they_went_in(small: int, monkeypatch):
    monkeypatch.setattr(messages, "_SMALL", small)
    reply = opened(replied(ARRAYS))
    assert reply.facts == {"node": "a"} and not reply.error
    assert list(reply.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        found = reply.arrays[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
        assert found.flags.writeable or not small


def test_a_small_message_is_three_parts_each_of_which_is_a_call(nodes: list[Policy]):
    request = asked(nodes)
    message = delivered(ask_message(request, 1))
    assert len(get_all_nested_objects(message)) == 3  # message, its records, and one record
    assert request_of(message).digest() == request.digest()


def test_what_is_large_goes_in_flowers_chunks():
    large = replied({"a": np.zeros(10**6, np.float32)})
    assert "arrays" in large.content
    assert opened(large).arrays["a"].shape == (10**6,)


@pytest.mark.parametrize("phase", [None, 3, ["round"], {"a": 1}, "rounds"])
def test_a_phase_that_is_none_is_an_error_in_words(nodes: list[Policy], phase: Any):
    request = asked(nodes)
    facts = {"what": "ask", "job": request.job.text(), "phase": phase, "round": 0}
    with pytest.raises(messages.InputError, match="names no phase and round"):
        request_of(reply_message(facts, request.arrays, delivered(query_message("hello", 1))))


def test_no_message_to_a_node_has_an_id_that_another_can_guess(nodes: list[Policy]):
    """The SuperLink gives what has an id to any node that names it; all but the group is known to other nodes."""
    request = asked(nodes)
    hello = query_message("hello", 1)
    every = [ask_message(request, 1), ask_message(request, 1), hello, messages.holding_message(hello)]
    every += [messages.again(every[0]), messages.recall_message({}, 1), messages.sum_message("agree", 1, {}, {})]
    groups = [message.metadata.group_id for message in every]
    assert len(set(groups)) == len(groups) and {len(bytes.fromhex(group)) for group in groups} == {16}
