"""The Strategy over a Grid in memory: trains, rejects by name, asks again, stops with a reason, resumes."""

import itertools
import json
import math
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nodes import REHEARSAL, SMALL, charges, make_node, make_nodes, same_bits, spent, write_records

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fake_grid import FakeGrid, answered, context_for, delivered, is_round
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from fedsofim.deploy import certificate, processes, server
from fedsofim.deploy.checkpoint import CHECKPOINT, OUTCOME, PROGRESS, restore
from fedsofim.deploy.flower import messages, server_app
from fedsofim.deploy.flower.client_app import client_app
from fedsofim.deploy.flower.messages import ask_message, opened, query_message, what_of
from fedsofim.deploy.flower.strategy import MethodStrategy, RoundFailed
from fedsofim.deploy.node import hello
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import Order
from fedsofim.errors import InputError

ORDER = Order("fedsofim", epsilon=1.0, rounds=3)


@pytest.fixture(autouse=True)
def prompt(monkeypatch):
    monkeypatch.setattr(messages, "_POLL", 0.01)


@pytest.fixture
def nodes(tmp_path: Path) -> list[Policy]:
    return make_nodes(tmp_path / "nodes")


def numbered(nodes: list[Policy]) -> dict[int, Policy]:
    return {100 + i: policy for i, policy in enumerate(nodes)}


def strategy(tmp_path: Path, order: Order = ORDER, **more: Any) -> MethodStrategy:
    return MethodStrategy(order, tmp_path / "job", **{"patience": 5.0, "attempts": 2} | more)


def theta(result: Any) -> np.ndarray:
    return result.arrays["params0"].numpy()


def replayed(order: Order, nodes: list[Policy], grid: FakeGrid) -> np.ndarray:
    """The parameters after every upload that was sent, in one go."""
    progress = server.begin(order, server.clients_of([hello(p) for p in nodes], order))
    while not progress.finished:
        progress = server.advance(progress, grid.uploads[progress.phase, progress.round])
    return np.asarray(progress.params)


# --- training -----------------------------------------------------------------------------------------------


def test_trains_and_certifies(tmp_path: Path, nodes: list[Policy]):
    grid, measured = FakeGrid(numbered(nodes)), []

    def measure(round: int, arrays: ArrayRecord) -> MetricRecord:
        measured.append((round, arrays["params0"].numpy()))
        return MetricRecord({"accuracy": 0.25 * round})

    result = strategy(tmp_path).start(grid, timeout=1, evaluate_fn=measure)
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


def test_a_method_with_one_shot_releases_and_memory(tmp_path: Path):
    nodes = make_nodes(tmp_path / "nodes", **REHEARSAL)
    order = Order("scaffold", epsilon=math.inf, rounds=2, standardize=0.1)
    grid = FakeGrid(numbered(nodes))
    result = strategy(tmp_path, order).start(grid, timeout=1)
    assert same_bits(theta(result), replayed(order, nodes, grid))
    assert ("moments", 0) in grid.uploads


def test_some_rounds_now_and_the_rest_later(tmp_path: Path, nodes: list[Policy]):
    grid = FakeGrid(numbered(nodes))
    strategy(tmp_path).start(grid, num_rounds=1, timeout=1)
    assert restore(tmp_path / "job" / CHECKPOINT).round == 1
    assert not (tmp_path / "job" / "certificate.json").exists()
    result = strategy(tmp_path, resume=True).start(grid, timeout=1)
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
    assert (tmp_path / "job" / "certificate.json").exists()
    for policy in nodes:
        assert charges(policy) == 3


def test_from_parameters_of_ones_own(tmp_path: Path, nodes: list[Policy]):
    mine = ArrayRecord({"params0": Array(np.full((4, 3), 0.5, np.float32))})
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), mine, num_rounds=0, timeout=1)
    assert same_bits(restore(tmp_path / "job" / CHECKPOINT).params, np.full((4, 3), 0.5, np.float32))
    for wrong in (np.zeros((4, 2), np.float32), np.zeros((4, 3), np.float64)):
        with pytest.raises(InputError, match="initial parameters"):
            other = MethodStrategy(ORDER, tmp_path / "other", patience=5)
            other.start(FakeGrid(numbered(nodes)), ArrayRecord({"params0": Array(wrong)}), timeout=1)


# --- what is wrong with a round -----------------------------------------------------------------------------


def test_a_node_that_sends_nan_is_rejected_by_name_and_nothing_is_averaged(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node == 101 and is_round(question, 1):
            return answered(question, reply, arrays={"upload0": np.full((4, 3), np.nan, np.float32)})
        return reply

    grid = FakeGrid(numbered(nodes), tamper)
    with pytest.raises(RoundFailed, match=r"round 2 failed, nothing was averaged.*n1: its upload0 holds NaN") as caught:
        strategy(tmp_path).start(grid, timeout=1)
    assert "n0" not in str(caught.value)
    assert restore(tmp_path / "job" / CHECKPOINT).round == 1
    assert grid.asked.count(("round 1", 101)) == 2  # asked again, in vain
    assert grid.asked.count(("round 1", 100)) == 1
    assert charges(nodes[1]) == 2  # and asking again was free
    assert ("round 2", 100) not in grid.asked


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
    result = strategy(tmp_path).start(grid, timeout=0.2)
    assert failed
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
    for policy in nodes:
        assert charges(policy) == 3


def test_a_node_that_never_answers_ends_the_round_by_name(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        return None if node == 100 and what_of(question) == "ask" else reply

    with pytest.raises(RoundFailed, match=r"round 1 failed.*n0: no upload: no answer came"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes), tamper), timeout=0.1)
    assert restore(tmp_path / "job" / CHECKPOINT).round == 0


def stingy(nodes: list[Policy], client: int = 1) -> None:
    """A node whose cap is half the job."""
    make_node(nodes[client].data.parent, *records_of(client), f"n{client}", epsilon=0.5)


def records_of(client: int) -> tuple[np.ndarray, np.ndarray]:
    part = SMALL.parts[client]
    return SMALL.data.x_train[part], SMALL.data.y_train[part]


def test_a_node_that_would_refuse_later_is_known_before_anything_is_spent(tmp_path: Path, nodes: list[Policy]):
    stingy(nodes)
    with pytest.raises(InputError, match=r"nothing was spent.*n1: refused: .*above the cap of 0\.5"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes)), timeout=1)
    assert [charges(policy) for policy in nodes] == [0, 0, 0]
    assert not (tmp_path / "job" / CHECKPOINT).exists()


def test_a_node_that_refuses_ends_the_round_with_its_reason(tmp_path: Path, nodes: list[Policy]):
    stingy(nodes)
    grid = FakeGrid(numbered(nodes))
    with pytest.raises(RoundFailed, match=r"n1: refused: .*above the cap of 0\.5"):
        strategy(tmp_path, ask_first=False).start(grid, timeout=1)
    done = restore(tmp_path / "job" / CHECKPOINT).round
    assert grid.asked.count((f"round {done}", 101)) == 1  # a policy does not change its mind
    assert spent(nodes[1]) <= 0.5 * (1 + 1e-6)


def test_a_reply_in_anothers_name_is_rejected(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node == 102 and what_of(question) == "ask":
            return answered(question, reply, facts={"node": "n0"})
        return reply

    with pytest.raises(RoundFailed, match=r"n2: its reply calls itself n0"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes), tamper), timeout=1)


def test_an_absurd_upload_is_rejected_by_name(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node == 100 and what_of(question) == "ask":
            return answered(question, reply, arrays={"upload0": np.full((4, 3), 1e30, np.float32)})
        return reply

    with pytest.raises(RoundFailed, match=r"n0: its upload has norm"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes), tamper), timeout=1)


# --- beginning ----------------------------------------------------------------------------------------------


def test_too_few_nodes(tmp_path: Path, nodes: list[Policy]):
    with pytest.raises(InputError, match=r"2 nodes answered.*'n0', 'n1'.*for 3"):
        strategy(tmp_path, patience=0.1).start(FakeGrid(numbered(nodes[:2])), timeout=1)
    assert not (tmp_path / "job" / CHECKPOINT).exists()


def test_too_many_nodes(tmp_path: Path, nodes: list[Policy]):
    with pytest.raises(InputError, match="3 nodes are here"):
        strategy(tmp_path, Order("fedgd", clients=2)).start(FakeGrid(numbered(nodes)), timeout=1)


def test_two_nodes_of_one_name(tmp_path: Path, nodes: list[Policy]):
    twin = make_node(tmp_path / "twin", SMALL.data.x_train[:7], SMALL.data.y_train[:7], "n0")
    with pytest.raises(InputError, match="two nodes call themselves n0"):
        strategy(tmp_path).start(FakeGrid(numbered([*nodes[:2], twin])), timeout=1)


def test_a_node_that_cannot_take_part_says_so_without_its_data(tmp_path: Path, nodes: list[Policy]):
    write_records(nodes[2].data.parent, np.ones((3, 3)), np.array([0, 1, 77]))
    with pytest.raises(InputError, match="n2 does not take part") as caught:
        strategy(tmp_path).start(FakeGrid(numbered(nodes)), timeout=1)
    assert "77" not in str(caught.value)


def test_a_second_job_in_the_same_folder(tmp_path: Path, nodes: list[Policy]):
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), num_rounds=0, timeout=1)
    with pytest.raises(InputError, match="a job is here already"):
        strategy(tmp_path).start(FakeGrid(numbered(nodes)), timeout=1)


# --- resuming -----------------------------------------------------------------------------------------------


def test_resuming_after_a_failure_goes_on_bit_by_bit(tmp_path: Path, nodes: list[Policy]):
    down = True

    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        return None if down and node == 101 and is_round(question, 1) else reply

    grid = FakeGrid(numbered(nodes), tamper)
    with pytest.raises(RoundFailed):
        strategy(tmp_path).start(grid, timeout=0.1)
    before = {k: dict(v) for k, v in grid.uploads.items()}
    down = False
    grid.nodes = {200 + i: policy for i, policy in enumerate(reversed(nodes))}  # other numbers after a restart
    result = strategy(tmp_path, Order("fedgd", rounds=9), resume=True).start(grid, timeout=1)
    assert same_bits(grid.uploads["round", 1], before["round", 1])  # every node kept its release
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))
    for policy in nodes:
        assert charges(policy) == 3


def test_nothing_to_resume(tmp_path: Path, nodes: list[Policy]):
    with pytest.raises(InputError, match="no checkpoint"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered(nodes)), timeout=1)


def test_resuming_without_a_client_or_with_its_records_changed(tmp_path: Path, nodes: list[Policy]):
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), num_rounds=1, timeout=1)
    stranger = make_node(tmp_path / "stranger", SMALL.data.x_train[:7], SMALL.data.y_train[:7], "stranger")
    with pytest.raises(InputError, match="n2 is not connected"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered([*nodes[:2], stranger])), timeout=1)
    write_records(nodes[0].data.parent, SMALL.data.x_train[:6], SMALL.data.y_train[:6])
    with pytest.raises(InputError, match="n0 has other records"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered(nodes)), timeout=1)


def test_resuming_with_two_nodes_of_one_name(tmp_path: Path, nodes: list[Policy]):
    strategy(tmp_path).start(FakeGrid(numbered(nodes)), num_rounds=1, timeout=1)
    twin = make_node(tmp_path / "twin", *records_of(0), "n0")
    with pytest.raises(InputError, match="two nodes call themselves n0"):
        strategy(tmp_path, resume=True).start(FakeGrid(numbered([*nodes, twin])), timeout=1)


# --- the end ------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_state_its_account_is_left_out(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        return None if node == 101 and what_of(question) == "account" else reply

    strategy(tmp_path, Order("fedgd", rounds=1)).start(FakeGrid(numbered(nodes), tamper), timeout=0.2)
    assert set(certificate.read(tmp_path / "job" / "certificate.json")["clients"]) == {"n0", "n2"}


def test_every_answer_that_came_in_time_counts(tmp_path: Path, nodes: list[Policy], monkeypatch):
    """Patience that ends while the last node answers is no reason to turn all of them away."""
    clock = itertools.count(0, 10)
    monkeypatch.setattr("fedsofim.deploy.flower.strategy.time", SimpleNamespace(monotonic=lambda: next(clock), sleep=int))
    strategy(tmp_path, Order("fedgd", rounds=1)).start(FakeGrid(numbered(nodes)), timeout=1)


def test_a_node_that_states_nonsense_does_not_spoil_the_certificate(tmp_path: Path, nodes: list[Policy]):
    def tamper(node: int, question: Message, reply: Message) -> Message | None:
        if node == 101 and what_of(question) == "account":
            return answered(question, reply, facts={"node": "n1", "ledger": "mine"})
        return reply

    strategy(tmp_path, Order("fedgd", rounds=1)).start(FakeGrid(numbered(nodes), tamper), timeout=0.2)
    assert {"n0", "n2"} <= set(certificate.read(tmp_path / "job" / "certificate.json")["clients"])


# --- Flower's own loop --------------------------------------------------------------------------------------


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


def test_flowers_own_steps_never_average_fewer(tmp_path: Path, nodes: list[Policy]):
    grid, mine = FakeGrid(numbered(nodes)), strategy(tmp_path)
    replies = list(grid.send_and_receive(mine.configure_train(1, ArrayRecord(), {}, grid)))  # type: ignore[arg-type]
    with pytest.raises(RoundFailed, match="n2: no upload"):
        mine.aggregate_train(1, replies[:2])
    assert restore(tmp_path / "job" / CHECKPOINT).round == 0
    assert mine.aggregate_train(1, replies)[0] is not None


def test_flowers_own_loop_trains_the_same(tmp_path: Path, nodes: list[Policy]):
    grid = FakeGrid(numbered(nodes))
    result = Strategy.start(strategy(tmp_path), grid, ArrayRecord(), num_rounds=3, timeout=1)
    assert same_bits(theta(result), replayed(ORDER, nodes, grid))


# --- the apps -----------------------------------------------------------------------------------------------


def config(folder: Path, **changed: Any) -> dict[str, Any]:
    """The run-config that Flower makes of the app's defaults and what was changed."""
    app = tomllib.loads((processes.APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    small = {"method": "fedgd", "settings": "lr=0.5", "rounds": 1, "folder": str(folder), "timeout": 1.0}
    assert set(small) <= set(app["config"])
    return app["config"] | small | changed


def test_the_server_app_writes_how_it_ended(tmp_path: Path, nodes: list[Policy]):
    server_app.run(FakeGrid(numbered(nodes)), config(tmp_path / "job"))
    assert json.loads((tmp_path / "job" / OUTCOME).read_text()) == {"finished": 1}
    assert restore(tmp_path / "job" / CHECKPOINT).order.settings == (("lr", "0.5"),)
    with pytest.raises(SystemExit):
        server_app.run(FakeGrid(numbered(nodes)), config(tmp_path / "job"))
    assert "a job is here already" in json.loads((tmp_path / "job" / OUTCOME).read_text())["failed"]


@pytest.mark.parametrize("key", ["weights", "trust"])
def test_a_misspelt_setting_of_a_run_is_an_error(tmp_path: Path, key: str):
    with pytest.raises(InputError, match=key):
        server_app.order_of(config(tmp_path, **{key: "siez"}))


def told(policy_file: Path | str | None, message: Message) -> Any:
    """What a node's ClientApp sends back."""
    return opened(client_app()(delivered(message), context_for(policy_file)))


def test_a_client_app_tells_a_refusals_reason(tmp_path: Path, nodes: list[Policy]):
    request = server.begin(ORDER, server.clients_of([hello(p) for p in nodes], ORDER)).request()
    reply = told(nodes[0].data.parent / "policy.toml", ask_message(request._replace(round=7), 1))
    assert reply.facts == {"node": "n0", "refused": "round 8 of a job of 3 rounds does not exist"}
    assert reply.arrays == {}


@pytest.mark.parametrize("what", ["hello", "ask"])
@pytest.mark.parametrize("kind", ["labels", "text", "missing", "policy"])
def test_a_client_app_says_nothing_about_its_records(tmp_path: Path, nodes: list[Policy], what: str, kind: str, caplog):
    request = server.begin(ORDER, server.clients_of([hello(p) for p in nodes], ORDER)).request()
    folder = nodes[0].data.parent
    if kind == "labels":
        write_records(folder, np.ones((2, 3)), np.array([0, 77]))
    elif kind == "text":
        write_records(folder, np.array([["Meier", "1", "2"]]), np.array([0]))
    elif kind == "missing":
        nodes[0].data.unlink()
    else:
        (folder / "policy.toml").write_text("[node]\nname = 'Meier'\n")
    message = ask_message(request, 1) if what == "ask" else query_message("hello", 1)
    reply = told(folder / "policy.toml", message)
    assert set(reply.facts) == {"node", "refused"}
    assert reply.facts["refused"] == "the node cannot answer; its operator's log says why"
    assert reply.arrays == {}
    assert charges(nodes[0]) == 0


@pytest.mark.parametrize("policy_file", [None, "/nowhere/policy.toml"])
def test_a_client_app_without_a_policy_answers_nothing(policy_file: str | None):
    reply = told(policy_file, query_message("hello", 1))
    assert reply.facts == {"node": "unknown", "refused": "the node cannot answer; its operator's log says why"}


@pytest.mark.parametrize("what", ["secrets", "ask", "policy", "None"])
def test_a_client_app_answers_no_other_question(nodes: list[Policy], what: str):
    reply = told(nodes[0].data.parent / "policy.toml", query_message(what, 1))
    assert set(reply.facts) == {"node", "refused"}
    assert reply.arrays == {}


def test_a_failure_inside_a_node_sends_no_traceback(nodes: list[Policy], monkeypatch):
    def broken(*a: Any) -> Any:
        raise ZeroDivisionError("record 17 is Meier")

    monkeypatch.setattr("fedsofim.deploy.flower.client_app.answer", broken)
    request = server.begin(ORDER, server.clients_of([hello(p) for p in nodes], ORDER)).request()
    reply = told(nodes[0].data.parent / "policy.toml", ask_message(request, 1))
    assert reply.facts["refused"] == "the node cannot answer; its operator's log says why"


@pytest.mark.parametrize(
    "facts",
    [{}, {"what": "ask"}, {"what": "ask", "phase": "round", "round": -1}, {"what": "ask", "phase": "x", "round": 0},
     {"what": "ask", "phase": "round", "round": "0"}, {"what": "ask", "phase": "round", "round": 0, "job": "{}"}],
    ids=str,
)  # fmt: skip
def test_a_senseless_request_is_refused(nodes: list[Policy], facts: dict[str, Any]):
    question = query_message("hello", 1)
    question.metadata.message_type = "train"
    question.content = messages._content(facts, {})
    reply = told(nodes[0].data.parent / "policy.toml", question)
    assert "refused" in reply.facts
    assert charges(nodes[0]) == 0


def test_a_request_arrives_as_it_was_sent(nodes: list[Policy]):
    request = server.begin(ORDER, server.clients_of([hello(p) for p in nodes], ORDER)).request()
    arrived = messages.request_of(ask_message(request, 1))
    assert arrived.digest() == request.digest()
    assert arrived.job == request.job
