"""The Strategy over a Grid in memory: trains, rejects by name, asks again, stops with a reason."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nodes import REHEARSAL, charges, make_node, make_nodes, records_of, same_bits, spent

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from fake_grid import FakeGrid, answered, is_round, numbered
from fedsofim.core.budget import WITHOUT
from fedsofim.deploy import certificate
from fedsofim.deploy.checkpoint import CHECKPOINT, PROGRESS, restore
from fedsofim.deploy.flower.messages import what_of
from fedsofim.deploy.flower.strategy import MethodStrategy, RoundFailed
from fedsofim.deploy.order import Conduct, Order
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from strategies import ORDER, replayed, strategy, theta

# --- training -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_trains_and_certifies(tmp_path: Path, nodes: list[Policy]):
    grid, measured = FakeGrid(numbered(nodes)), []

    def measure(round: int, arrays: ArrayRecord) -> MetricRecord:
        measured.append((round, arrays["params0"].numpy()))
        return MetricRecord({"accuracy": 0.25 * round})

    result = strategy(tmp_path).start(grid, evaluate_fn=measure)
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
    assert [round for round, _ in measured] == [1, 2, 3]
    assert same_bits(measured[-1][1], theta(result))
    assert result.evaluate_metrics_serverapp[3]["accuracy"] == 0.75
    assert json.loads((tmp_path / "job" / PROGRESS).read_text())["round"] == 3
    assert same_bits(restore(tmp_path / "job" / CHECKPOINT).params, theta(result))
    document = certificate.read(tmp_path / "job" / "certificate.json")
    assert certificate.verify(document, [p.ledger for p in nodes]) == []
    assert set(document["clients"]) == {"n0", "n1", "n2"}
    for policy in nodes:
        assert spent(policy) == pytest.approx(1.0, rel=1e-6)
        assert document["clients"][policy.name]["epsilon"] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.slow
def test_a_method_with_one_shot_releases_and_memory(tmp_path: Path):
    nodes = make_nodes(tmp_path / "nodes", **REHEARSAL)
    order = Order(recipe="paper", method="scaffold", epsilon=WITHOUT, rounds=2, standardize=0.1)
    grid = FakeGrid(numbered(nodes))
    result = strategy(tmp_path, order).start(grid)
    assert same_bits(theta(result), replayed(order, nodes, grid))
    assert ("moments", 0) in grid.uploads


@pytest.mark.slow
def test_some_rounds_now_and_the_rest_later(tmp_path: Path, nodes: list[Policy]):
    grid = FakeGrid(numbered(nodes))
    strategy(tmp_path).start(grid, num_rounds=1)
    assert restore(tmp_path / "job" / CHECKPOINT).round == 1
    assert not (tmp_path / "job" / "certificate.json").exists()
    result = strategy(tmp_path, resume=True).start(grid)
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
    assert (tmp_path / "job" / "certificate.json").exists()
    for policy in nodes:
        assert charges(policy) == 3


@pytest.mark.slow
def test_from_parameters_of_ones_own(tmp_path: Path, nodes: list[Policy]):
    mine = ArrayRecord({"params0": Array(np.full((4, 3), 0.5, np.float32))})
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), mine, num_rounds=0)
    assert same_bits(restore(tmp_path / "job" / CHECKPOINT).params, np.full((4, 3), 0.5, np.float32))
    for wrong in (np.zeros((4, 2), np.float32), np.zeros((4, 3), np.float64)):
        with pytest.raises(InputError, match="initial parameters"):
            other = MethodStrategy(ORDER, Conduct(folder=str(tmp_path / "other")))
            other.start(FakeGrid(numbered(nodes)), ArrayRecord({"params0": Array(wrong)}))


# --- what is wrong with a round -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_node_that_sends_nan_is_rejected_by_name_and_nothing_is_averaged(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node == 101 and is_round(question, 1):
            return answered(question, reply, arrays={"upload0": np.full((4, 3), np.nan, np.float32)})
        return reply

    grid = FakeGrid(numbered(nodes), tamper)
    with pytest.raises(RoundFailed, match=r"round 2 failed, nothing was averaged.*n1: its upload0 holds NaN") as caught:
        strategy(tmp_path).start(grid)
    assert "n0" not in str(caught.value)
    assert restore(tmp_path / "job" / CHECKPOINT).round == 1
    assert grid.asked.count(("round 1", 101)) == 2  # asked again, in vain
    assert grid.asked.count(("round 1", 100)) == 1
    assert charges(nodes[1]) == 2  # and asking again was free
    assert ("round 2", 100) not in grid.asked


@pytest.mark.slow
@pytest.mark.parametrize("how", ["silent", "Flower's error", "not ours", "NaN"])
def test_a_node_that_fails_once_is_asked_again(tmp_path: Path, nodes: list[Policy], how: str):
    failed: list[int] = []

    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        if node != 102 or not is_round(question, 1) or failed:
            return reply
        failed.append(node)
        return {
            "silent": lambda: None,
            "Flower's error": lambda: Message(Error(code=3, reason="worker died"), reply_to=question),
            "not ours": lambda: Message(RecordDict({}), reply_to=question),
            "NaN": lambda: answered(question, reply, arrays={"upload0": np.full((4, 3), np.nan, np.float32)}),
        }[how]()

    grid = FakeGrid(numbered(nodes), tamper)
    result = strategy(tmp_path).start(grid)
    assert failed
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
    for policy in nodes:
        assert charges(policy) == 3


@pytest.mark.slow
def test_a_node_that_never_answers_ends_the_round_by_name(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        return None if node == 100 and what_of(question) == "ask" else reply

    with pytest.raises(RoundFailed, match=r"round 1 failed.*n0: no upload: no answer came"):
        strategy(tmp_path, timeout=60.0).start(FakeGrid(numbered(nodes), tamper))
    assert restore(tmp_path / "job" / CHECKPOINT).round == 0


def stingy(nodes: list[Policy], client: int = 1) -> None:
    """A node whose cap is half the job."""
    make_node(nodes[client].data.parent, *records_of(client), f"n{client}", epsilon=0.5)


def test_a_node_that_would_refuse_later_is_known_before_anything_is_spent(tmp_path: Path, nodes: list[Policy]):
    stingy(nodes)
    with pytest.raises(InputError, match=r"nothing was spent.*n1: refused: .*above the cap of 0\.5"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes)))
    assert [charges(policy) for policy in nodes] == [0, 0, 0]
    assert not (tmp_path / "job" / CHECKPOINT).exists()


def test_a_node_that_refuses_ends_the_round_with_its_reason(tmp_path: Path, nodes: list[Policy]):
    stingy(nodes)
    grid = FakeGrid(numbered(nodes))
    with pytest.raises(RoundFailed, match=r"n1: refused: .*above the cap of 0\.5"):
        strategy(tmp_path, ask_first=False).start(grid)
    done = restore(tmp_path / "job" / CHECKPOINT).round
    assert grid.asked.count((f"round {done}", 101)) == 1  # a policy does not change its mind
    assert spent(nodes[1]) <= 0.5 * (1 + 1e-6)


@pytest.mark.slow
def test_a_reply_in_anothers_name_is_rejected(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node == 102 and what_of(question) == "ask":
            return answered(question, reply, facts={"node": "n0"})
        return reply

    with pytest.raises(RoundFailed, match=r"n2: its reply calls itself n0"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes), tamper))


@pytest.mark.slow
def test_an_absurd_upload_is_rejected_by_name(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node == 100 and what_of(question) == "ask":
            return answered(question, reply, arrays={"upload0": np.full((4, 3), 1e30, np.float32)})
        return reply

    with pytest.raises(RoundFailed, match=r"n0: its upload has norm"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes), tamper))


# --- Flower's own loop --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_flowers_own_steps_train_the_same(tmp_path: Path, nodes: list[Policy]):
    grid, mine = FakeGrid(numbered(nodes)), strategy(tmp_path)
    arrays: Any = ArrayRecord()
    for round in range(1, 4):
        sent = list(mine.configure_train(round, arrays, {}, grid))  # type: ignore[arg-type]
        assert sorted(m.metadata.dst_node_id for m in sent) == [100, 101, 102]
        arrays, metrics = mine.aggregate_train(round, grid.send_and_receive(sent))
        assert metrics is None
        assert list(mine.configure_evaluate(round, arrays, {}, grid)) == []  # type: ignore[arg-type]
        assert mine.aggregate_evaluate(round, []) is None
    assert same_bits(arrays["params0"].numpy(), replayed(ORDER, nodes, grid))
    assert restore(tmp_path / "job" / CHECKPOINT).finished


@pytest.mark.slow
def test_flowers_own_steps_never_average_fewer(tmp_path: Path, nodes: list[Policy]):
    grid, mine = FakeGrid(numbered(nodes)), strategy(tmp_path)
    replies = list(grid.send_and_receive(mine.configure_train(1, ArrayRecord(), {}, grid)))  # type: ignore[arg-type]
    with pytest.raises(RoundFailed, match="n2: no upload"):
        mine.aggregate_train(1, replies[:2])
    assert restore(tmp_path / "job" / CHECKPOINT).round == 0
    assert mine.aggregate_train(1, replies)[0] is not None


@pytest.mark.slow
def test_flowers_own_loop_trains_the_same(tmp_path: Path, nodes: list[Policy]):
    grid = FakeGrid(numbered(nodes))
    result = Strategy.start(strategy(tmp_path), grid, ArrayRecord(), num_rounds=3)
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
