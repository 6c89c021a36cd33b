"""The coordinator's loop when clients are lost: rounds go on with those who are enough, and stop with fewer."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodes import charges

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import Message

from fake_grid import FakeClock, FakeGrid, is_round, numbered
from fedsofim.deploy import certificate
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.docket import visits
from fedsofim.deploy.flower.messages import what_of
from fedsofim.deploy.flower.strategy import RoundFailed
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from strategies import strategy

ORDER = Order(method="fedgd", recipe="paper", epsilon=1.0, rounds=3, min_clients=2)


def test_a_job_goes_on_without_a_client_that_is_lost_and_with_it_when_it_is_back(tmp_path: Path, nodes: list[Policy]):
    grid = FakeGrid(numbered(nodes))
    lost = grid.nodes[102]

    def leave_and_come_back(node: int, question: Message, reply: Message) -> Message:
        if node == 102 and is_round(question, 0):
            del grid.nodes[102]
        if node == 101 and is_round(question, 1):
            grid.nodes[202] = lost  # under another number
        return reply

    grid.tamper = leave_and_come_back
    strategy(tmp_path, ORDER).start(grid)
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished
    assert found.absent == {1: ("n2",)}
    assert [charges(policy) for policy in nodes] == [3, 3, 2]
    document = certificate.read(tmp_path / "job" / "certificate.json")
    assert document["absent"] == {"n2": [2]}


def test_a_client_that_does_not_answer_is_waited_for_a_moment_only(tmp_path: Path, nodes: list[Policy]):
    clock = FakeClock()
    grid = FakeGrid(numbered(nodes), accept=lambda node, message: not (node == 101 and is_round(message, 1)))
    strategy(tmp_path, ORDER, clock=clock).start(grid)
    assert restore(tmp_path / "job" / CHECKPOINT).absent == {1: ("n1",)}
    assert clock.now < 30


def test_with_fewer_than_enough_the_round_fails_by_name(tmp_path: Path, nodes: list[Policy]):
    grid = FakeGrid(numbered(nodes), accept=lambda node, message: not (node != 100 and is_round(message, 1)))
    with pytest.raises(RoundFailed, match="n1: no upload"):
        strategy(tmp_path, ORDER, timeout=20.0).start(grid)
    assert restore(tmp_path / "job" / CHECKPOINT).round == 1


# --- late clients -------------------------------------------------------------------------------------------


def test_a_client_that_still_works_on_an_old_round_is_not_asked_the_next_ones(tmp_path, nodes: list[Policy], caplog):
    """It would be charged for each, and none of its answers would be in time."""
    grid, kept = FakeGrid(numbered(nodes)), list[Message]()

    def slow(node: int, message: Message) -> bool:
        """n1 takes as long for its first round as the others take for four, and for one message at a time."""
        if node == 101 and (is_round(message, 0) or kept):
            kept.append(message)
        if is_round(message, 4):
            for late in kept:
                grid.work(101, late)
            kept.clear()
        return not any(message is one for one in kept) and not (node == 101 and is_round(message, 4))

    grid.accept = slow
    strategy(tmp_path, replace(ORDER, rounds=8)).start(grid)
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and found.late == {"n1": (0,)}
    assert charges(nodes[0]) == 8
    assert charges(nodes[1]) == 8 - len(found.absent) + 1  # the one round that it was late for
    assert "the answer of n1 to round 1 came too late: it was charged" in caplog.text
    assert "it still works on an earlier round" in caplog.text
    text = (tmp_path / "job" / "certificate.txt").read_text()
    assert f"It was charged for {charges(nodes[1])} rounds and used in {charges(nodes[1]) - 1}" in text
    said = [visit.why for visit in visits(nodes[1].ledger, 100)]
    assert sum("did not use 1 of this node's answers" in why for why in said) >= 2
    lines = [json.loads(line) for line in (tmp_path / "job" / "rounds.jsonl").read_text().splitlines()]
    assert lines[1]["absent"] == ["n1"] and "still works" in lines[1]["why"]["n1"]


# --- the end: a certificate is about everybody --------------------------------------------------------------


def test_a_statement_that_got_lost_is_asked_for_again(tmp_path: Path, nodes: list[Policy]):
    lost = []

    def lose_the_first(node: int, question: Message, reply: Message) -> Message | None:
        if node == 101 and what_of(question) == "account" and not lost:
            return lost.append(node)
        return reply

    strategy(tmp_path, ORDER).start(FakeGrid(numbered(nodes), lose_the_first))
    assert lost
    assert not certified(tmp_path, nodes)[1]


def left_after_round_two(nodes: list[Policy], then: Callable[[FakeGrid, Policy], None]) -> FakeGrid:
    """The last node is gone once it has answered round 2."""
    grid = FakeGrid(numbered(nodes))
    away = grid.nodes[102]

    def leave(node: int, question: Message, reply: Message) -> Message:
        if node == 102 and is_round(question, 1):
            del grid.nodes[102]
            then(grid, away)
        return reply

    grid.tamper = leave
    return grid


def certified(tmp_path: Path, nodes: list[Policy]) -> tuple[dict[str, Any], list[str]]:
    """The job's certificate, and what does not hold of it."""
    document = certificate.read(tmp_path / "job" / "certificate.json")
    return document, certificate.verify(document, [policy.ledger for policy in nodes])


def test_a_node_that_was_away_at_the_end_states_its_account_when_it_is_back(tmp_path: Path, nodes: list[Policy]):
    """A soak's certificates were without those who had been away, and did not verify."""
    clock = FakeClock()
    back = lambda grid, away: clock.after(30.0, lambda: grid.nodes.update({202: away}))  # noqa: E731  another number
    strategy(tmp_path, ORDER, clock=clock).start(left_after_round_two(nodes, back))
    document, wrong = certified(tmp_path, nodes)
    assert document["absent"] == {"n2": [3]} and sorted(document["clients"]) == ["n0", "n1", "n2"]
    assert not wrong


def test_who_never_comes_back_is_named_and_the_job_still_ends(tmp_path: Path, nodes: list[Policy]):
    clock, grid = FakeClock(), left_after_round_two(nodes, lambda grid, away: None)
    away = grid.nodes[102]
    strategy(tmp_path, ORDER, clock=clock).start(grid)
    document, wrong = certified(tmp_path, nodes)
    assert document["silent"] == ["n2"] and wrong
    assert "Nothing is stated of n2" in (tmp_path / "job" / "certificate.txt").read_text()
    grid.nodes[102] = away
    strategy(tmp_path, ORDER, clock=clock, resume=True).start(grid)  # as the certificate says
    document, wrong = certified(tmp_path, nodes)
    assert "silent" not in document and not wrong
