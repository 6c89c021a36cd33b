"""Meeting the nodes: at a job's start, again when it is resumed, and at its end for the certificate."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nodes import SMALL, charges, make_node, records_of, same_bits, write_records

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import Message

from fake_grid import FakeGrid, answered, is_round, numbered
from fedsofim.deploy import certificate
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.flower.messages import what_of
from fedsofim.deploy.flower.strategy import RoundFailed
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from strategies import ORDER, replayed, strategy, theta

# --- starting -----------------------------------------------------------------------------------------------


def test_too_few_nodes(tmp_path: Path, nodes: list[Policy]):
    with pytest.raises(InputError, match=r"2 nodes answered.*n0, n1.*for 3"):
        strategy(tmp_path, patience=5.0).start(FakeGrid(numbered(nodes[:2])))
    assert not (tmp_path / "job" / CHECKPOINT).exists()


def test_of_more_nodes_than_a_job_is_for_the_first_by_name_take_part(tmp_path: Path, nodes: list[Policy], caplog):
    order = Order(recipe="paper", method="fedgd", clients=2, rounds=1)
    strategy(tmp_path, order).start(FakeGrid(dict(reversed(numbered(nodes).items()))))
    assert [client.name for client in restore(tmp_path / "job" / CHECKPOINT).clients] == ["n0", "n1"]
    assert "takes the first by name, n0, n1; without n2" in caplog.text
    assert [charges(policy) for policy in nodes] == [1, 1, 0]


def test_an_order_names_its_nodes(tmp_path: Path, nodes: list[Policy]):
    order = Order(recipe="paper", method="fedgd", rounds=1)
    strategy(tmp_path, order, nodes="n2, n0").start(FakeGrid(numbered(nodes)))
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert [client.name for client in found.clients] == ["n0", "n2"] and found.order.clients == 2
    with pytest.raises(InputError, match="n7 is not connected"):
        strategy(tmp_path / "other", order, nodes="n2,n7", patience=5.0).start(FakeGrid(numbered(nodes)))


def refusing(node: Policy) -> None:
    """From here on this node refuses to introduce itself."""
    write_records(node.data.parent, np.ones((3, 3)), np.array([0, 1, 77]))


@pytest.mark.parametrize("order", [Order(recipe="paper", method="fedgd", clients=2, rounds=1),
                                   Order(recipe="paper", method="fedgd", min_clients=2, rounds=1)])  # fmt: skip
def test_a_node_that_refuses_keeps_nobody_else_from_the_job(tmp_path, nodes: list[Policy], order: Order, caplog):
    refusing(nodes[0])
    strategy(tmp_path, order).start(FakeGrid(numbered(nodes)))
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and [client.name for client in found.clients] == ["n1", "n2"]
    assert "n0 does not take part: the node cannot answer" in caplog.text


def test_a_node_that_refuses_does_not_keep_a_job_from_being_resumed(tmp_path: Path, nodes: list[Policy]):
    order = Order(recipe="paper", method="fedgd", min_clients=2, rounds=2)
    strategy(tmp_path, order).start(FakeGrid(numbered(nodes)), num_rounds=1)
    refusing(nodes[0])
    strategy(tmp_path, order, resume=True).start(FakeGrid(numbered(nodes)))
    assert restore(tmp_path / "job" / CHECKPOINT).absent == {1: ("n0",)}


def test_an_introduction_that_makes_no_sense_keeps_nobody_else_from_the_job(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        return answered(question, reply, facts={"node": "n1", "size": -3}) if node == 101 else reply

    order = Order(recipe="paper", method="fedgd", clients=2, rounds=1)
    strategy(tmp_path, order).start(FakeGrid(numbered(nodes), tamper))
    assert [c.name for c in restore(tmp_path / "job" / CHECKPOINT).clients] == ["n0", "n2"]


def test_two_nodes_of_one_name(tmp_path: Path, nodes: list[Policy]):
    twin = make_node(tmp_path / "twin", SMALL.dataset.x_train[:7], SMALL.dataset.y_train[:7], "n0")
    with pytest.raises(InputError, match="two nodes call themselves n0"):
        strategy(tmp_path).start(FakeGrid(numbered([*nodes[:2], twin])))


def test_a_node_that_cannot_take_part_says_so_without_its_data(tmp_path: Path, nodes: list[Policy]):
    write_records(nodes[2].data.parent, np.ones((3, 3)), np.array([0, 1, 77]))
    with pytest.raises(InputError, match="n2 does not take part") as caught:
        strategy(tmp_path).start(FakeGrid(numbered(nodes)))
    assert "77" not in str(caught.value)


@pytest.mark.slow
def test_a_second_job_in_the_same_folder(tmp_path: Path, nodes: list[Policy]):
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), num_rounds=0)
    with pytest.raises(InputError, match="a job is here already"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes)))


# --- resuming -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_resuming_after_a_failure_goes_on_bit_by_bit(tmp_path: Path, nodes: list[Policy]):
    down = True

    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        return None if down and node == 101 and is_round(question, 1) else reply

    grid = FakeGrid(numbered(nodes), tamper)
    with pytest.raises(RoundFailed):
        strategy(tmp_path, timeout=60.0).start(grid)
    before = {k: dict(v) for k, v in grid.uploads.items()}
    down = False
    grid.nodes = {200 + i: policy for i, policy in enumerate(reversed(nodes))}  # other numbers after a restart
    result = strategy(tmp_path, Order(recipe="paper", method="fedgd", rounds=9), resume=True).start(grid)
    assert same_bits(grid.uploads["round", 1], before["round", 1])  # every node kept its release
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
    for policy in nodes:
        assert charges(policy) == 3


def test_nothing_to_resume(tmp_path: Path, nodes: list[Policy]):
    with pytest.raises(InputError, match="no checkpoint"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered(nodes)))


@pytest.mark.slow
def test_resuming_without_a_client_or_with_its_records_changed(tmp_path: Path, nodes: list[Policy]):
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), num_rounds=1)
    stranger = make_node(tmp_path / "stranger", SMALL.dataset.x_train[:7], SMALL.dataset.y_train[:7], "stranger")
    with pytest.raises(InputError, match="n2 is not connected"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered([*nodes[:2], stranger])))
    write_records(nodes[0].data.parent, SMALL.dataset.x_train[:6], SMALL.dataset.y_train[:6])
    with pytest.raises(InputError, match="n0 has other records"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered(nodes)))


@pytest.mark.slow
def test_resuming_with_two_nodes_of_one_name(tmp_path: Path, nodes: list[Policy]):
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), num_rounds=1)
    twin = make_node(tmp_path / "twin", *records_of(0), "n0")
    with pytest.raises(InputError, match="two nodes call themselves n0"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered([*nodes, twin])))


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_node_that_does_not_state_its_account_is_left_out(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        return None if node == 101 and what_of(question) == "account" else reply

    strategy(tmp_path, Order(recipe="paper", method="fedgd", rounds=1), timeout=60.0).start(
        FakeGrid(numbered(nodes), tamper)
    )
    assert set(certificate.read(tmp_path / "job" / "certificate.json")["clients"]) == {"n0", "n2"}


@pytest.mark.slow
def test_every_answer_that_came_in_time_counts(tmp_path: Path, nodes: list[Policy]):
    """Patience that ends while the last node answers is no reason to turn all of them away."""
    ticks = itertools.count(0, 10)
    clock: Any = SimpleNamespace(monotonic=lambda: next(ticks), sleep=int)
    strategy(tmp_path, Order(recipe="paper", method="fedgd", rounds=1), clock=clock, patience=25.0).start(
        FakeGrid(numbered(nodes))
    )


@pytest.mark.slow
def test_a_node_that_states_nonsense_does_not_spoil_the_certificate(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        if node == 101 and what_of(question) == "account":
            return answered(question, reply, facts={"node": "n1", "ledger": "mine"})
        return reply

    strategy(tmp_path, Order(recipe="paper", method="fedgd", rounds=1)).start(FakeGrid(numbered(nodes), tamper))
    assert {"n0", "n2"} <= set(certificate.read(tmp_path / "job" / "certificate.json")["clients"])
