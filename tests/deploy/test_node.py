"""A node's answer: charged first, stored before it leaves, and what a client remembers from round to round."""

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.core.phase import Phase
from fedsofim.deploy import node
from fedsofim.deploy.account import Account
from fedsofim.deploy.node import answer
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.server import step
from fedsofim.errors import InputError, Refused
from nodes import (
    METHODS,
    REHEARSAL,
    X,
    Y,
    ask_all,
    asked,
    charges,
    finish,
    leaves,
    make_node,
    make_nodes,
    refusal,
    same_bits,
    spent,
    started,
    with_terms,
)

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
    std = request.job.stds[Phase.ROUND][0] / len(node.read_data(nodes[0]).y)
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
    assert seen == [1, 1]
    monkeypatch.undo()
    answer(policy, request)
    assert charges(policy) == 1


def test_a_crash_while_the_reply_is_stored_sends_nothing_and_costs_nothing_more(nodes: list[Policy], monkeypatch):
    request, policy = asked(nodes), nodes[0]

    def crash(*a: Any, **k: Any) -> Any:
        raise OSError("disk full")

    monkeypatch.setattr(Account, "close_ask", crash)
    with pytest.raises(OSError, match="disk full"):
        answer(policy, request)
    monkeypatch.undo()
    answer(policy, request)
    assert charges(policy) == 1


def test_a_damaged_ledger_releases_nothing(nodes: list[Policy], monkeypatch):
    request, policy = asked(nodes), nodes[0]
    answer(policy, request)
    policy.ledger.write_bytes(b"no database" * 100)
    monkeypatch.setattr(node, "run", lambda *a: pytest.fail("noise was drawn"))
    with pytest.raises(InputError, match="nothing is released"):
        answer(policy, request)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_at_a_jobs_end_the_ledger_has_spent_what_the_plan_says(tmp_path: Path, name: str):
    nodes = make_nodes(tmp_path)
    now = finish(nodes, started(nodes, name, rounds=3))
    for policy in nodes:
        assert spent(policy) == pytest.approx(now.plan.epsilon, rel=1e-6)
        assert spent(policy) == pytest.approx(1.0, rel=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in leaves(now.params))
    request = started(nodes, name, rounds=1).request()  # and a new job finds nothing left
    for policy in nodes:
        assert "above the cap of 1 " in refusal(policy, request)


@pytest.mark.slow
def test_private_moments_are_charged_too(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    now = finish(nodes, started(nodes, "fedgd", standardize=0.1))
    labels = {line.label for _, line in Account(nodes[0].ledger).entries()}
    assert len(labels) > 1
    assert spent(nodes[0]) == pytest.approx(now.plan.epsilon, rel=1e-6)


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


# --- what a client remembers --------------------------------------------------------------------------------


def test_what_is_remembered_is_used(tmp_path: Path):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    now = started(nodes, "scaffold", epsilon=WITHOUT)
    now = step(now, ask_all(nodes, now))
    memory = Account(nodes[0].ledger).memory(now.job.id, 0)
    assert memory is not None
    with closing(sqlite3.connect(nodes[0].ledger)) as db, db:
        db.execute("UPDATE asks SET memory=?", (to_bytes({k: 0 * a for k, a in from_bytes(memory).items()}),))
    db.close()
    wrong = answer(nodes[0], now.request())["upload0"]
    with closing(sqlite3.connect(nodes[0].ledger)) as db, db:
        db.execute("UPDATE asks SET memory=? WHERE round=0", (memory,))
        db.execute("UPDATE asks SET reply=NULL WHERE round=1")
    db.close()
    with pytest.raises(Refused, match="answered before"):  # it would come out otherwise, and one answer has left
        answer(nodes[0], now.request())
    other = replace(now, params=now.params + 1e-6)
    assert np.abs(answer(nodes[0], other.request())["upload0"] - wrong).max() > 1e-3


def test_without_its_memory_a_node_does_not_pretend(nodes: list[Policy]):
    now = started(nodes, "scaffold")
    now = step(now, ask_all(nodes, now))
    with closing(sqlite3.connect(nodes[0].ledger)) as db, db:
        db.execute("UPDATE asks SET memory=NULL")
    db.close()
    assert "did not take part in round 1" in refusal(nodes[0], now.request())
    answer(nodes[1], now.request())
