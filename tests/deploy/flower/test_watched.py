"""What a node and a job leave for their pages: every question with its verdict, every round with who was there."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import Message

from fake_grid import FakeGrid, is_round, numbered, told
from fedsofim.deploy import processes
from fedsofim.deploy.checkpoint import PROGRESS
from fedsofim.deploy.docket import Verdict, Visit, visits
from fedsofim.deploy.flower import messages, node_loop
from fedsofim.deploy.flower.fleet import Answer, Unreachable
from fedsofim.deploy.flower.messages import ask_message, query_message
from fedsofim.deploy.flower.strategy import RoundFailed
from fedsofim.deploy.order import Order
from fedsofim.deploy.pages.coordinators import job_view
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.round_notes import rounds_noted
from fedsofim.deploy.stopping import SAID, stop
from nodes import asked, charges, spent, started
from strategies import strategy


def noted(policy: Policy) -> list[Visit]:
    return list(reversed(visits(policy.ledger, 100)))


def test_every_question_is_noted_with_who_asked_and_what_became_of_it(nodes: list[Policy]):
    policy, request = nodes[0].data.parent / "policy.toml", asked(nodes)
    for message in (query_message("hello", 1), query_message("consider", 1, request.job), ask_message(request, 1),
                    ask_message(request, 1), ask_message(request._replace(round=7), 1),
                    query_message("account", 1)):  # fmt: skip
        told(policy, message)
    found = noted(nodes[0])
    assert [v.verdict for v in found] == ["allowed", "charged", "free", "refused", "stated"]
    assert {v.job for v in found[:4]} == {request.job.id}
    assert [(v.phase, v.round, v.ask) for v in found[1:4]] == [("round", 0, 1), ("round", 0, 1), ("round", 7, None)]
    assert found[1].spent == pytest.approx(spent(nodes[0]))
    assert found[3].why == "round 8 of a job of 2 rounds does not exist"
    assert all(v.who.startswith("run ") for v in found)


def test_a_question_cannot_call_itself_another_to_be_left_out(nodes: list[Policy]):
    request = asked(nodes)
    sly = ask_message(request, 1)
    facts = {"what": "hello", "job": request.job.text(), "phase": request.phase, "round": request.round}
    sly.content = messages._content(facts, request.arrays)
    assert "upload0" in told(nodes[0].data.parent / "policy.toml", sly).arrays
    assert charges(nodes[0]) == 1
    assert [v.verdict for v in noted(nodes[0])] == ["charged"]


def test_a_message_that_is_none_of_ours_is_noted_as_refused(nodes: list[Policy]):
    for what in ("secrets", "x" * 3000):
        told(nodes[0].data.parent / "policy.toml", query_message(what, 1))
    assert {v.verdict for v in noted(nodes[0])} <= {Verdict.REFUSED, Verdict.FAILED}
    assert len(noted(nodes[0])) == 2


def test_a_strange_question_cannot_keep_itself_out_of_the_docket(nodes: list[Policy]):
    jobs = ["[" * 100_000, "{}", '{"id": [1], "method": {}}', "x" * 10**6]
    strange = [(job, round) for job in jobs for round in (True, 10**400, -(10**400), "x", [[]], None)]
    for job, round in strange:
        message = query_message("hello", 1)
        message.metadata.message_type = "train"
        message.content = messages._content({"what": "hello", "job": job, "phase": ["x"], "round": round}, {})
        assert "refused" in told(nodes[0].data.parent / "policy.toml", message).facts
    assert len(noted(nodes[0])) == len(strange)
    assert {v.verdict for v in noted(nodes[0])} <= {Verdict.REFUSED, Verdict.FAILED}
    assert (nodes[0].data.parent / "ledger.db.docket").stat().st_size < 1_000 * len(strange)


def test_a_stopped_node_refuses_whatever_is_not_about_itself(nodes: list[Policy]):
    stop(nodes[0].ledger)
    policy, job = nodes[0].data.parent / "policy.toml", started(nodes).job
    for what in ("consider", "reveal", "anything new"):
        assert told(policy, query_message(what, 1, job)).facts == {"node": "n0", "refused": SAID}
    assert told(policy, query_message("hello", 1)).facts["size"] == 7
    assert told(policy, query_message("account", 1)).facts["epsilon"] == 0


def test_nothing_of_a_record_is_noted(nodes: list[Policy]):
    request = asked(nodes)
    nodes[0].data.write_bytes(b"Meier")
    told(nodes[0].data.parent / "policy.toml", ask_message(request, 1))
    assert [v.verdict for v in noted(nodes[0])] == ["refused"]
    assert "Meier" not in (nodes[0].data.parent / "ledger.db.docket").read_text()


# --- a stopped node, as a coordinator meets it --------------------------------------------------------------


def test_a_stopped_node_says_so_and_the_job_is_not_begun(tmp_path: Path, nodes: list[Policy]):
    stop(nodes[1].ledger)
    with pytest.raises(ValueError, match=f"nothing was spent.*n1: refused: {SAID}"):
        strategy(tmp_path, Order(method="fedgd", recipe="paper", rounds=2)).start(FakeGrid(numbered(nodes)))
    assert [charges(p) for p in nodes] == [0, 0, 0]


@pytest.mark.parametrize("enough", [None, 2])
def test_a_node_stopped_in_the_middle_is_done_without_or_ends_the_job(
    tmp_path: Path, nodes: list[Policy], enough: int | None
):
    grid = FakeGrid(numbered(nodes))

    def stop_one(node: int, question: Message, reply: Message) -> Message:
        if node == 101 and is_round(question, 0):
            stop(nodes[1].ledger)
        return reply

    grid.tamper = stop_one
    run = strategy(tmp_path, Order(method="fedgd", recipe="paper", rounds=3, min_clients=enough))
    if enough is None:
        with pytest.raises(RoundFailed, match=f"n1: refused: {SAID}"):
            run.start(grid)
        return
    run.start(grid)
    assert [charges(p) for p in nodes] == [3, 1, 3]
    view = job_view(tmp_path / "job")
    assert [note["absent"] for note in rounds_noted(tmp_path / "job", run.now.job.id)] == [[], ["n1"], ["n1"]]
    (clients,) = [t for t in view.tables if t.name == "clients"]
    assert [row[3].text for row in clients.rows] == ["3 of 3", "1 of 3", "3 of 3"]
    facts = {c["name"]: c for c in json.loads((tmp_path / "job" / PROGRESS).read_text())["clients"]}
    for policy in nodes:
        assert facts[policy.name]["epsilon"] == pytest.approx(spent(policy)), "as its ledger has it"
        assert facts[policy.name]["cap"] == policy.epsilon


class Away:
    """A connection that fails at first; meanwhile something happens."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile, self.sent, self.tries = meanwhile, [], 0

    def send(self, answer: object) -> None:
        self.tries += 1
        if self.tries == 1:
            self.meanwhile()
            raise Unreachable("gone")
        self.sent.append(answer)


@pytest.mark.parametrize("stopped", [False, True])
def test_an_answer_on_its_way_is_kept_back_when_the_node_is_stopped(
    nodes: list[Policy], tmp_path: Path, monkeypatch, stopped: bool
):
    monkeypatch.setattr(node_loop, "_AGAIN", 0.0)
    connection: Any = Away(lambda: stopped and stop(nodes[0].ledger))
    loop = node_loop.NodeLoop(connection, nodes[0].data.parent / "policy.toml", tmp_path, "h:1")
    answer, refusal = Answer(b"an answer", b"", {}), Answer(b"a refusal", b"", {})
    loop._send(answer, refusal, nodes[0].ledger)
    assert connection.sent == [refusal if stopped else answer]


# --- the page of a node's own process -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_a_nodes_page_is_there_while_the_node_is_and_ends_with_it(nodes: list[Policy], tmp_path: Path, how: int):
    policy = nodes[0].data.parent / "policy.toml"
    command = [*processes.node_command(policy, "127.0.0.1:1", None, None, tmp_path), "--page", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as node:
        assert node.stdout is not None
        said = next(line for line in node.stdout if line.startswith(("page: ", "error")))
        address = said.removeprefix("page: ").strip()
        assert (tmp_path / "page").read_text().strip() == address
        with urllib.request.urlopen(address, timeout=60) as page:
            assert "<h1>n0</h1>" in page.read().decode()
        os.kill(node.pid, how)
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=60)
    assert (tmp_path / "page").exists() == (how == signal.SIGKILL)
