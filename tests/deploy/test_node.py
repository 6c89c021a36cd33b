"""A node's answer: what its policy allows, charged first, and the reason where it does not; no record in any of it."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nodes import (
    METHODS,
    REHEARSAL,
    SMALL,
    ask_all,
    begin,
    charges,
    finish,
    leaves,
    make_node,
    make_nodes,
    same_bits,
    spent,
    write_records,
)

from fedsofim.deploy import node, server
from fedsofim.deploy.account import Account
from fedsofim.deploy.node import DataProblem, answer, hello
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.server import Order, Progress
from fedsofim.deploy.wire import Job, Request, from_bytes, to_bytes
from fedsofim.errors import InputError, Refused

X, Y = SMALL.data.x_train, SMALL.data.y_train


@pytest.fixture
def nodes(tmp_path: Path) -> list[Policy]:
    return make_nodes(tmp_path)


def started(nodes: list[Policy], method: str = "fedgd", **order: Any) -> Progress:
    return begin(nodes, Order(method, **{"epsilon": 1.0, "rounds": 2, "clients": len(nodes)} | order))


def asked(nodes: list[Policy], method: str = "fedgd", **order: Any) -> Request:
    return started(nodes, method, **order).request()


def with_terms(request: Request, **changed: Any) -> Request:
    """The request of a job under other terms, as a server may send it."""
    return request._replace(job=Job.read(replace(request.job, **changed).text()))


def refusal(policy: Policy, request: Request) -> str:
    """Why a request is refused; nothing may be charged for it."""
    before = charges(policy)
    with pytest.raises((Refused, InputError)) as caught:
        answer(policy, request)
    assert not isinstance(caught.value, DataProblem)
    assert charges(policy) == before
    return str(caught.value)


def rewritten(policy: Policy, **changed: Any) -> Policy:
    """The node after its operator changed the policy file."""
    return make_node(policy.data.parent, *node.read_data(policy)[:2], policy.name, **changed)


# --- what it answers ----------------------------------------------------------------------------------------


def test_the_same_question_has_the_same_answer_and_is_charged_once(nodes: list[Policy]):
    request = asked(nodes)
    first = answer(nodes[0], request)
    once = spent(nodes[0])
    assert once > 0
    assert same_bits(first, answer(nodes[0], request))
    assert same_bits(first, answer(read_policy(nodes[0].data.parent / "policy.toml"), request))
    assert spent(nodes[0]) == once


def test_another_question_has_other_noise_and_is_charged(nodes: list[Policy]):
    request = asked(nodes)
    first = answer(nodes[0], request)["upload0"]
    arrays = {k: a.copy() for k, a in request.arrays.items()}
    arrays["params0"][0, 0] += np.float32(1e-6)
    second = answer(nodes[0], request._replace(arrays=arrays))["upload0"]
    assert charges(nodes[0]) == 2
    std = request.job.stds["round"][0] / len(node.read_data(nodes[0]).y)
    assert np.std(second - first) == pytest.approx(std * math.sqrt(2), rel=0.8)  # 12 coordinates
    assert not np.any(first == second)


def test_nodes_of_equal_records_have_different_noise(tmp_path: Path):
    twins = [make_node(tmp_path / name, X[:9], Y[:9], name) for name in ("a", "b")]
    request = asked(twins)
    first, second = (answer(policy, request)["upload0"] for policy in twins)
    assert not np.any(first == second)


def test_the_charge_is_on_disk_when_noise_is_drawn_and_stays_after_a_crash(nodes: list[Policy], monkeypatch):
    request, policy = asked(nodes, rounds=3), nodes[0]
    seen: list[int] = []

    def crash(*a: Any, **k: Any) -> Any:
        seen.append(len(Account(policy.ledger).entries()))
        raise MemoryError("killed")

    monkeypatch.setattr(node, "run", crash)
    for _ in range(2):
        with pytest.raises(MemoryError):
            answer(policy, request)
    assert seen == [1, 2]
    monkeypatch.undo()
    answer(policy, request)
    assert charges(policy) == 3
    answer(policy, request)
    assert charges(policy) == 3


def test_a_crash_while_the_reply_is_stored_sends_nothing_and_is_charged_again(nodes: list[Policy], monkeypatch):
    request, policy = asked(nodes), nodes[0]

    def crash(*a: Any, **k: Any) -> Any:
        raise OSError("disk full")

    monkeypatch.setattr(Account, "close_ask", crash)
    with pytest.raises(OSError, match="disk full"):
        answer(policy, request)
    monkeypatch.undo()
    answer(policy, request)
    assert charges(policy) == 2


def test_a_damaged_ledger_releases_nothing(nodes: list[Policy], monkeypatch):
    request, policy = asked(nodes), nodes[0]
    answer(policy, request)
    policy.ledger.write_bytes(b"no database" * 100)
    monkeypatch.setattr(node, "run", lambda *a: pytest.fail("noise was drawn"))
    with pytest.raises(InputError, match="nothing is released"):
        answer(policy, request)


@pytest.mark.parametrize("name", METHODS)
def test_at_a_jobs_end_the_ledger_has_spent_what_the_plan_says(tmp_path: Path, name: str):
    nodes = make_nodes(tmp_path)
    progress = finish(nodes, started(nodes, name, rounds=3))
    for policy in nodes:
        assert spent(policy) == pytest.approx(progress.plan.epsilon, rel=1e-6)
        assert spent(policy) == pytest.approx(1.0, rel=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in leaves(progress.params))
    request = started(nodes, name, rounds=1).request()  # and a new job finds nothing left
    for policy in nodes:
        assert "above the cap of 1 " in refusal(policy, request)


def test_private_moments_are_charged_too(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    progress = finish(nodes, started(nodes, "fedgd", standardize=0.1))
    labels = {line.label for _, line in Account(nodes[0].ledger).entries()}
    assert len(labels) > 1
    assert spent(nodes[0]) == pytest.approx(progress.plan.epsilon, rel=1e-6)


def test_one_round_more_than_the_cap_allows_is_refused_by_every_node(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    request = started(nodes, rounds=7).request()
    for policy in nodes:
        for t in range(7):
            answer(policy, request._replace(round=t))
        assert spent(policy) == pytest.approx(1.0, rel=1e-6)
        assert "round 8 of a job of 7 rounds" in refusal(policy, request._replace(round=7))
        longer = with_terms(request, rounds=8, id="longer")
        assert "above the cap of 1 " in refusal(policy, longer._replace(round=7))


# --- what it refuses ----------------------------------------------------------------------------------------


def test_a_method_not_allowed(nodes: list[Policy]):
    policy = rewritten(nodes[0], methods=["fedsofim", "fedadam"])
    message = refusal(policy, asked(nodes))
    for word in ("fedgd", "fedsofim", "fedadam"):
        assert word in message


def test_a_larger_clip(nodes: list[Policy]):
    request = asked(nodes, clip=10.5)
    for policy in nodes:
        message = refusal(policy, request)
        assert "10.5" in message
        assert "10" in message.replace("10.5", "")
    answer(rewritten(nodes[0], largest_clip=10.5), request)


def test_the_clip_of_a_second_moment_is_that_of_its_vectors(nodes: list[Policy]):
    request = asked(nodes, "fedfc", clip=11.0)  # at 10 it is answered: the ledger's tests have it
    assert request.phase == "setup"
    assert "clips at 11;" in refusal(nodes[0], request)


def test_a_smaller_multiplier(nodes: list[Policy]):
    request = asked(nodes)
    multiplier = request.job.stds["round"][0] / 10.0
    for policy in nodes:
        strict = rewritten(policy, smallest_multiplier=multiplier * 1.01, epsilon=1e6)
        message = refusal(strict, request)
        assert f"{multiplier:.6g}" in message
        assert f"{multiplier * 1.01:g}" in message
    answer(rewritten(nodes[0], smallest_multiplier=multiplier), request)


def test_less_noise_than_the_servers_own_plan(nodes: list[Policy]):
    request = asked(nodes)
    lowered = with_terms(request, stds={"round": [request.job.stds["round"][0] / 3]})
    assert "above the cap" in refusal(nodes[0], lowered)
    silent = with_terms(request, stds={"round": [0.0]})
    assert "multiplier 0" in refusal(nodes[0], silent)
    assert "multiplier 0" in refusal(rewritten(nodes[0], epsilon=1e9), silent)


@pytest.mark.parametrize("stds", [[], [1e3, 1e3]])
def test_stds_that_do_not_fit_the_program(nodes: list[Policy], stds: list[float]):
    assert "noise stds" in refusal(nodes[0], with_terms(asked(nodes), stds={"round": stds}))
    assert "noise stds" in refusal(nodes[0], with_terms(asked(nodes), stds={}))


@pytest.mark.parametrize("std", [math.inf, 1e15])
def test_noise_beyond_all_measure_is_no_way_around(nodes: list[Policy], std: float):
    with pytest.raises(Refused):
        answer(nodes[0], with_terms(asked(nodes), stds={"round": [std]}))


def test_the_price_is_the_nodes_own_whatever_the_server_says(nodes: list[Policy]):
    request = asked(nodes)
    answer(nodes[0], request)
    answer(nodes[1], with_terms(request, noise_std=1e9, clients=1000))
    assert spent(nodes[0]) == spent(nodes[1])


@pytest.mark.parametrize("round", [2, 3, 10**6])
def test_a_round_that_does_not_exist(nodes: list[Policy], round: int):
    assert f"round {round + 1} of a job of 2 rounds" in refusal(nodes[0], asked(nodes)._replace(round=round))
    assert "does not exist" in refusal(nodes[0], asked(nodes)._replace(round=-1))


@pytest.mark.parametrize("phase", ["setup", "moments"])
def test_a_phase_the_method_does_not_have(nodes: list[Policy], phase: Any):
    assert phase in refusal(nodes[0], asked(nodes)._replace(phase=phase))


@pytest.mark.parametrize("changed", [{"shape": (4,)}, {"shape": (3, 1)}, {"classes": 4}, {"classes": 2}])
def test_records_of_another_form(nodes: list[Policy], changed: dict[str, Any]):
    message = refusal(nodes[0], with_terms(asked(nodes), **changed))
    assert "shape [3] in 3" in message


def arrays_with(request: Request, name: str, value: np.ndarray | None) -> Request:
    kept = {k: a for k, a in request.arrays.items() if k != name}
    return request._replace(arrays=kept if value is None else {**kept, name: value})


def test_wrong_arrays(nodes: list[Policy]):
    request = asked(nodes, "scaffold")
    for name in request.arrays:
        right = request.arrays[name]
        for wrong in (None, right.astype(np.float64), right[..., :-1], right[None]):
            assert name in refusal(nodes[0], arrays_with(request, name, wrong))


@pytest.mark.parametrize("name", ["moments_first", "moments_second"])
def test_wrong_moments(nodes: list[Policy], name: str):
    progress = started(nodes, standardize=0.1)
    progress = server.advance(progress, ask_all(nodes, progress))
    request = progress.request()
    assert request.phase == "round"
    right = request.arrays[name]
    for wrong in (None, right[:-1], np.full_like(right, np.nan), np.full_like(right, np.inf)):
        assert name in refusal(nodes[0], arrays_with(request, name, wrong))


def test_records_that_changed_under_a_job(nodes: list[Policy]):
    request, policy = asked(nodes), nodes[0]
    answer(policy, request)
    x, y, _ = node.read_data(policy)
    x = x.copy()
    x[0, 0] += 1
    write_records(policy.data.parent, x, y)
    for again in (request, request._replace(round=1)):
        assert "records changed" in refusal(policy, again)
    answer(policy, with_terms(request, id="new"))


def test_other_terms_under_a_jobs_name(nodes: list[Policy]):
    request = asked(nodes)
    answer(nodes[0], request)
    std = request.job.stds["round"][0]
    assert "other terms" in refusal(nodes[0], with_terms(request, stds={"round": [std * 2]}, rounds=3))


def test_noise_that_comes_back_meets_one_question_only(nodes: list[Policy]):
    progress = started(nodes, "ftrl", rounds=4)
    request, policy = progress.request(), nodes[0]
    assert "round 2 was asked before round 1" in refusal(policy, request._replace(round=1))
    first = answer(policy, request)
    other = arrays_with(request, "params0", request.arrays["params0"] + np.float32(1))
    assert "other numbers" in refusal(policy, other)
    assert same_bits(first, answer(policy, request))
    assert charges(policy) == 1


@pytest.mark.parametrize("name", ["fedfc", "ftrl"])
def test_a_wrong_account_published_elsewhere_passes_no_cap(tmp_path: Path, name: str):
    nodes = make_nodes(tmp_path)
    progress = started(nodes, name, settings=(("as_published", "true"),), rounds=20)
    assert progress.plan.epsilon > 1.5
    with pytest.raises(Refused, match=r"above the cap of 1 |multiplier|clips at inf"):
        while not progress.finished:
            progress = server.advance(progress, {p.name: answer(p, progress.request()) for p in nodes})
    assert all(spent(policy) <= 1 + 1e-6 for policy in nodes)


BROKEN = {
    "not JSON": "{",
    "not terms": '{"id": "x"}',
    "a list": "[]",
    "a number": "3",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_terms_that_cannot_be_read(text: str):
    with pytest.raises(InputError, match="terms"):
        Job.read(text)


SENSELESS = [
    {"rounds": 0}, {"rounds": 1.5}, {"rounds": True}, {"clip": 0.0}, {"clip": -1.0}, {"clip": math.nan},
    {"clip": "10"}, {"stds": {"round": [-1.0]}}, {"stds": {"round": [math.nan]}}, {"stds": {"other": [1.0]}},
    {"stds": [1.0]}, {"shape": ()}, {"shape": (0,)}, {"classes": 0}, {"id": ""}, {"id": "x" * 65},
    {"noise_std": math.nan}, {"method": 3}, {"settings": []}, {"clients": 0},
]  # fmt: skip


@pytest.mark.parametrize("changed", SENSELESS, ids=str)
def test_senseless_terms(nodes: list[Policy], changed: dict[str, Any]):
    job = asked(nodes).job
    assert Job.read(job.text()) == job
    with pytest.raises(InputError, match="terms"):
        Job.read(replace(job, **changed).text())


# --- what a client remembers --------------------------------------------------------------------------------


def test_what_is_remembered_is_used(tmp_path: Path):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    progress = started(nodes, "scaffold", epsilon=math.inf)
    progress = server.advance(progress, ask_all(nodes, progress))
    before = nodes[0].ledger.read_bytes()
    true = answer(nodes[0], progress.request())["upload0"]
    nodes[0].ledger.write_bytes(before)
    memory = Account(nodes[0].ledger).memory(progress.job.id, 0)
    assert memory is not None
    with sqlite3.connect(nodes[0].ledger) as db:
        db.execute("UPDATE asks SET memory=?", (to_bytes({k: 0 * a for k, a in from_bytes(memory).items()}),))
    db.close()
    assert np.abs(answer(nodes[0], progress.request())["upload0"] - true).max() > 1e-3


def test_without_its_memory_a_node_does_not_pretend(nodes: list[Policy]):
    progress = started(nodes, "scaffold")
    progress = server.advance(progress, ask_all(nodes, progress))
    nodes[0].ledger.unlink()
    assert "did not take part in round 1" in refusal(nodes[0], progress.request())
    answer(nodes[1], progress.request())


# --- records stay where they are ----------------------------------------------------------------------------

SECRETIVE = {
    "labels": (np.ones((2, 3)), np.array([0, 77])),
    "text": (np.array([["Meier", "1", "2"]]), np.array([0])),
}
UNFIT = {
    "no y": {"x": np.full((2, 3), 41.5)},
    "y is a table": {"x": np.full((2, 3), 41.5), "y": np.full((2, 2), 41)},
    "y is no integer": {"x": np.full((2, 3), 41.5), "y": np.full(2, 41.5)},
    "x is a list": {"x": np.full(3, 41.5), "y": np.full(3, 1)},
    "lengths": {"x": np.full((2, 3), 41.5), "y": np.full(3, 1)},
    "empty": {"x": np.zeros((0, 3)), "y": np.zeros(0, int)},
}


@pytest.mark.parametrize("arrays", UNFIT.values(), ids=UNFIT)
def test_unfit_records_are_a_matter_of_the_operators(tmp_path: Path, arrays: dict[str, np.ndarray]):
    policy = make_node(tmp_path / "n", X, Y)
    np.savez(policy.data, **arrays)  # type: ignore[arg-type]
    for act in (lambda: hello(policy), lambda: answer(policy, asked([make_node(tmp_path / "m", X, Y)]))):
        with pytest.raises(DataProblem, match="x") as caught:
            act()
        assert str(policy.data) in str(caught.value)
        assert "41" not in str(caught.value).replace(str(policy.data), "")
    assert charges(policy) == 0


@pytest.mark.parametrize("kind", ["missing", "no archive"])
def test_no_records_at_all(tmp_path: Path, kind: str):
    policy = make_node(tmp_path / "n", X, Y)
    policy.data.unlink()
    if kind == "no archive":
        policy.data.write_bytes(b"x,y\n1,2\n")
    with pytest.raises(DataProblem):
        hello(policy)


@pytest.mark.parametrize("kind", SECRETIVE)
def test_unfit_values_are_a_matter_of_the_operators(tmp_path: Path, kind: str):
    with pytest.raises(DataProblem):
        hello(make_node(tmp_path / "n", *SECRETIVE[kind]))


@pytest.mark.parametrize("kind, value", [("labels", "77"), ("text", "Meier")])
def test_not_even_the_operators_message_quotes_a_record(tmp_path: Path, kind: str, value: str):
    policy = make_node(tmp_path / "n", *SECRETIVE[kind])
    with pytest.raises(DataProblem) as caught:
        hello(policy)
    assert value not in str(caught.value).replace(str(policy.data), "")


def test_hello_tells_name_size_and_form(nodes: list[Policy]):
    facts = hello(nodes[1])
    assert (facts["node"], facts["size"], facts["shape"], facts["classes"]) == ("n1", 20, [3], 3)
    assert set(facts) <= {"node", "size", "shape", "classes", "version"}


def test_records_that_are_not_finite_count_as_nothing(tmp_path: Path):
    x = X[:9].copy()
    x[3] = np.nan
    x[4, 0] = np.inf
    upload = answer(policy := make_node(tmp_path / "n", x, Y[:9], **REHEARSAL),
                    asked([policy], epsilon=math.inf))["upload0"]  # fmt: skip
    kept = [i for i in range(9) if i not in (3, 4)]
    without = answer(policy := make_node(tmp_path / "m", X[:9][kept], Y[:9][kept], **REHEARSAL),
                     asked([policy], epsilon=math.inf))["upload0"]  # fmt: skip
    np.testing.assert_allclose(upload * 9, without * 7, rtol=1e-5, atol=1e-6)
