"""The apps: the server's writes how it ended; a client's answers its policy's questions and tells nothing else."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nodes import SMALL, allowing, charges, make_nodes, start, write_records

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fake_grid import FIRST, FakeClock, FakeGrid, delivered, numbered, told
from fedsofim.deploy import processes
from fedsofim.deploy.checkpoint import CHECKPOINT, OUTCOME, PROGRESS, restore
from fedsofim.deploy.flower import messages, server_app
from fedsofim.deploy.flower.messages import ask_message, holding_message, query_message
from fedsofim.deploy.node import answer
from fedsofim.deploy.policy import Policy
from strategies import ORDER


def config(folder: Path, **changed: Any) -> dict[str, Any]:
    """The run-config that Flower makes of the app's defaults and what was changed."""
    app = tomllib.loads((processes.APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    small = {"method": "fedgd", "settings": "lr=0.5", "rounds": 1, "folder": str(folder)}
    assert set(small) <= set(app["config"])
    return app["config"] | small | changed


@pytest.mark.slow
def test_the_server_app_writes_how_it_ended(tmp_path: Path, nodes: list[Policy]):
    server_app.run(FakeGrid(numbered(nodes)), config(tmp_path / "job"), FakeClock())
    assert json.loads((tmp_path / "job" / OUTCOME).read_text()) == {"finished": 1}
    assert restore(tmp_path / "job" / CHECKPOINT).order.settings == (("lr", "0.5"),)
    with pytest.raises(SystemExit):
        server_app.run(FakeGrid(numbered(nodes)), config(tmp_path / "job"), FakeClock())
    assert "a job is here already" in json.loads((tmp_path / "job" / OUTCOME).read_text())["failed"]


@pytest.mark.slow
def test_the_recipes_model_is_measured_on_records_as_they_come(tmp_path: Path):
    """Its preparation is applied to the coordinator's test records too; the file of the job is all that one needs."""
    d, nodes = SMALL.dataset, make_nodes(tmp_path / "nodes", epsilon=100.0)
    np.savez(tmp_path / "d.npz", x_train=d.x_train, y_train=d.y_train, x_test=d.x_test, y_test=d.y_test)
    order = {"recipe": "auto", "method": "", "settings": "", "epsilon": 100.0, "rounds": 2}
    folder = tmp_path / "job"
    server_app.run(FakeGrid(numbered(nodes)), config(folder, test=str(tmp_path / "d.npz"), **order), FakeClock())
    assert json.loads((folder / OUTCOME).read_text()) == {"finished": 2}
    end = restore(folder / CHECKPOINT)
    assert [table["step"] for table in end.job.preparation] == ["ColumnScales", "UnitNorm", "Centred"]
    accuracy = 100 * float(np.mean(end.predict(d.x_test) == d.y_test))
    progress = json.loads((folder / PROGRESS).read_text())
    assert f"accuracy {round(accuracy, 4)}" in progress["text"]
    assert (progress["round"], progress["rounds"]) == (2, 2)
    assert "fedsofim, 2 rounds, clip 3, weights size, ColumnScales > UnitNorm > Centred" in progress["job"]


@pytest.mark.slow
def test_another_model_is_trained_measured_and_counted(tmp_path: Path):
    d, nodes, folder = SMALL.dataset, allowing(tmp_path / "nodes", ["mlp"], epsilon=100.0), tmp_path / "job"
    np.savez(tmp_path / "d.npz", x_train=d.x_train, y_train=d.y_train, x_test=d.x_test, y_test=d.y_test)
    order = {"model": "mlp", "model-settings": "hidden=4", "recipe": "paper", "epsilon": 50.0, "evaluate": "private"}
    server_app.run(FakeGrid(numbered(nodes)), config(folder, test=str(tmp_path / "d.npz"), **order), FakeClock())
    end = restore(folder / CHECKPOINT)
    assert [layer["w"].shape for layer in end.params] == [(3, 4), (4, 3)]
    assert len(end.measured) == 1
    assert all(np.isfinite(np.asarray(layer["w"])).all() for layer in end.params)


def test_what_the_nodes_counted_is_told_where_the_coordinator_looks(tmp_path: Path, nodes: list[Policy]):
    folder = tmp_path / "job"
    server_app.run(FakeGrid(numbered(nodes)), config(folder, evaluate="private"), FakeClock())
    (told,) = json.loads((folder / OUTCOME).read_text())["measured"]
    text = json.loads((folder / PROGRESS).read_text())["text"]
    assert told == f"after round 1: {text}" and text == str(restore(folder / CHECKPOINT).measured[-1])
    assert "private count on 39 records" in told
    assert "right answers" in (folder / "certificate.txt").read_text()


@pytest.mark.parametrize("key", ["weights", "trust"])
def test_a_misspelt_setting_of_a_run_is_an_error(tmp_path: Path, nodes: list[Policy], key: str):
    with pytest.raises(SystemExit):
        server_app.run(FakeGrid(numbered(nodes)), config(tmp_path / "job", **{key: "siez"}), FakeClock())
    assert key in json.loads((tmp_path / "job" / OUTCOME).read_text())["failed"]


@pytest.mark.parametrize("error, said", [
    (OSError(28, "No space left on device", "/job/checkpoint.npz"), "/job/checkpoint.npz: the job could not be kept"),
    (ZeroDivisionError("x"), "an error in the server's process (ZeroDivisionError: x)"),
])  # fmt: skip
def test_whatever_ends_a_job_is_written_where_the_coordinator_looks(
    tmp_path: Path, nodes: list[Policy], monkeypatch, error: Exception, said: str
):
    def full(*a: Any) -> None:
        raise error

    monkeypatch.setattr("fedsofim.deploy.flower.strategy.save", full)
    with pytest.raises((SystemExit, ZeroDivisionError)):
        server_app.run(FakeGrid(numbered(nodes)), config(tmp_path / "job"), FakeClock())
    assert said in json.loads((tmp_path / "job" / OUTCOME).read_text())["failed"]


def test_a_client_app_introduces_itself(nodes: list[Policy]):
    reply = told(nodes[1].data.parent / "policy.toml", query_message("hello", 1))
    assert set(reply.facts) == {"node", "size", "unit", "shape", "classes", "allows", "ledger", "version", "instance"}
    assert (reply.facts["node"], reply.facts["size"], reply.facts["instance"]) == ("n1", 20, FIRST)


def test_a_client_app_says_how_it_stands_to_a_request_and_nothing_else(nodes: list[Policy]):
    """Nothing of it depends on a record: it is the same where there are none."""
    policy, request = nodes[0].data.parent / "policy.toml", start(nodes, ORDER).request()
    question = ask_message(request, 1)
    assert told(policy, holding_message(question)).facts == {"node": "n0", "holding": "nothing", "instance": FIRST}
    answer(nodes[0], request)
    nodes[0].data.unlink()
    assert told(policy, holding_message(question)).facts == {"node": "n0", "holding": "answered", "instance": FIRST}
    about_nothing = holding_message(query_message("account", 1))
    assert told(policy, about_nothing).facts == {"node": "n0", "holding": "nothing", "instance": FIRST}


@pytest.mark.parametrize("digest", ["../../policy.toml", "/etc/passwd", "0" * 63, "A" * 64, "é"])
def test_a_client_app_looks_for_no_file_that_a_server_names(nodes: list[Policy], digest: str):
    question = query_message("holding", 1)
    question.content = messages._content({"what": "holding", "digest": digest}, {})
    reply = told(nodes[0].data.parent / "policy.toml", question)
    assert set(reply.facts) == {"node", "refused"}
    assert "digest" in reply.facts["refused"]


def test_a_job_that_names_a_file_is_refused_by_every_question(nodes: list[Policy], tmp_path: Path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w').close()")
    request = start(nodes, ORDER).request()
    job = replace(request.job, method=str(tmp_path / "evil.py"))
    for message in (ask_message(request._replace(job=job), 1), query_message("consider", 1, job)):
        reply = told(nodes[0].data.parent / "policy.toml", message)
        assert set(reply.facts) == {"node", "refused"}
        assert "not installed here" in reply.facts["refused"]
    assert not (tmp_path / "loaded").exists()


def test_a_client_app_tells_a_refusals_reason(tmp_path: Path, nodes: list[Policy]):
    request = start(nodes, ORDER).request()
    reply = told(nodes[0].data.parent / "policy.toml", ask_message(request._replace(round=7), 1))
    assert reply.facts == {"node": "n0", "refused": "round 8 of a job of 3 rounds does not exist"}
    assert reply.arrays == {}


@pytest.mark.parametrize("what", ["hello", "ask"])
@pytest.mark.parametrize("kind", ["labels", "text", "missing", "policy"])
def test_a_client_app_says_nothing_about_its_records(tmp_path: Path, nodes: list[Policy], what: str, kind: str, caplog):
    request = start(nodes, ORDER).request()
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
    request = start(nodes, ORDER).request()
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


@pytest.mark.parametrize(
    "facts", [{"node": "n0\x1b[2J"}, {"node": "n0", "size": float("nan")}, {"node": ["x"] * 60_000}]
)
def test_a_server_takes_no_strange_words_from_a_node(nodes: list[Policy], facts: dict[str, Any]):
    reply = messages.opened(messages.reply_message(facts, {}, delivered(query_message("hello", 1))))
    assert reply.error and reply.facts == {}


def test_a_request_arrives_as_it_was_sent(nodes: list[Policy]):
    request = start(nodes, ORDER).request()
    arrived = messages.request_of(ask_message(request, 1))
    assert arrived.digest() == request.digest()
    assert arrived.job == request.job
