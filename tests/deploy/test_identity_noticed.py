"""What makes two questions the same question: everything asked, and the records it is asked about."""

import fcntl
from dataclasses import fields, replace
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import jax
import numpy as np
import pytest

from fedsofim.core.phase import Phase
from fedsofim.deploy import holding, wire
from fedsofim.deploy.account import Account
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.records import read_data
from fedsofim.deploy.wire import Job, Request
from fedsofim.errors import Refused
from nodes import (
    X,
    Y,
    asked,
    charges,
    finish,
    make_node,
    make_nodes,
    refusal,
    same_bits,
    started,
    with_terms,
    write_records,
)

# --- the digest ---------------------------------------------------------------------------------------------

OTHER: dict[str, Any] = {
    "id": "another", "method": "fedadam", "settings": {"lr": 0.25}, "rounds": 3, "clip": 9.5, "clients": 4,
    "classes": 4, "shape": (4,), "stds": {Phase.ROUND: [1.5]}, "noise_std": 0.125,
    "preparation": [{"step": "UnitNorm", "constant": False, "lift": True}], "mean_stds": {Phase.MOMENTS: 0.25},
    "trust": "secure-sum", "weights": "size", "peers": (("a", 2), ("b", 3)), "ledgers": {"a": "1"},
    "mask_keys": {"a": "k"},
    "schema": "digest", "model": "mlp", "model_settings": {"hidden": 3}, "min_clients": 2,
    "evaluations": 2, "evaluation_share": 0.1, "unit": "person", "places": 3, "own_stds": {"a": {Phase.ROUND: [2.0]}},
}  # fmt: skip
JOB = Job(
    id="job", method="fedgd", settings={}, rounds=2, clip=10.0, clients=3, classes=3, shape=(3,),
    stds={Phase.ROUND: [1.0]}, noise_std=0.5,
)  # fmt: skip
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
REQUEST = Request(JOB, Phase.ROUND, 0, {"params0": ARRAY, "state0": ARRAY + 1})


def test_every_term_of_a_job_is_listed_here():
    assert set(OTHER) == {f.name for f in fields(Job)}


@pytest.mark.parametrize("name", OTHER)
def test_every_term_is_part_of_the_question(name: str):
    other = REQUEST._replace(job=replace(JOB, **{name: OTHER[name]}))
    assert other.job.text() != JOB.text()
    assert other.digest() != REQUEST.digest()


@pytest.mark.parametrize(
    "changed",
    [
        {"round": 1},
        {"phase": Phase.SETUP},
        {"arrays": {"params0": ARRAY}},
        {"arrays": {"params0": ARRAY, "state1": ARRAY + 1}},
        {"arrays": {"params0": ARRAY + 1, "state0": ARRAY}},
        {"arrays": {"params0": np.nextafter(ARRAY, np.float32(9)), "state0": ARRAY + 1}},
        {"arrays": {"params0": ARRAY.reshape(3, 2), "state0": ARRAY + 1}},
        {"arrays": {"params0": ARRAY.view(np.int32), "state0": ARRAY + 1}},
        {"arrays": {"params0": np.concatenate([ARRAY, ARRAY + 1])}},
    ],
    ids=["round", "phase", "left out", "name", "swapped", "last bit", "shape", "dtype", "run together"],
)
def test_whatever_else_is_asked_is_part_of_it_too(changed: dict[str, Any]):
    assert REQUEST._replace(**changed).digest() != REQUEST.digest()


def test_what_a_client_reads_of_the_state_is_sent_and_comes_back(nodes: list[Policy]):
    """DP-SCAFFOLD's clients read the server's control variate."""
    now = started(nodes, "scaffold")
    state = jax.tree.map(lambda leaf: np.full(np.shape(leaf), 0.5, np.asarray(leaf).dtype), now.state)
    arrays = wire.outgoing(now.programs, Phase.ROUND, now.params, state, {})
    _, received = wire.incoming(now.programs, Phase.ROUND, arrays)
    assert any(name.startswith("state") for name in arrays)
    for i in wire.used_state(now.programs):
        np.testing.assert_array_equal(jax.tree.leaves(received)[i], jax.tree.leaves(state)[i])


def test_the_same_question_however_it_lies_in_memory():
    arrays = {"state0": np.asfortranarray(ARRAY + 1), "params0": ARRAY.copy()}
    assert REQUEST._replace(job=Job.read(JOB.text()), arrays=arrays).digest() == REQUEST.digest()


# --- at a node ----------------------------------------------------------------------------------------------


def test_each_round_is_a_question_of_its_own(nodes: list[Policy]):
    """The same numbers asked in two rounds: charged twice, with other noise in every number."""
    request = asked(nodes, rounds=3)
    first, second = (answer(nodes[0], request._replace(round=t))["upload0"] for t in (0, 1))
    assert charges(nodes[0]) == 2
    assert not np.any(first == second)
    assert same_bits(first, answer(nodes[0], request)["upload0"])


def test_other_terms_under_a_jobs_name_are_refused_whatever_differs(nodes: list[Policy]):
    request = asked(nodes)
    answer(nodes[0], request)
    for changed in ({"clip": 9.0}, {"rounds": 4}, {"noise_std": 1.0}, {"settings": {"lr": 0.25}}, {"clients": 4}):
        assert "other terms" in refusal(nodes[0], with_terms(request, **changed)._replace(round=1))
    quieter = {Phase.ROUND: [request.job.stds[Phase.ROUND][0] * (1 - 1e-12)]}
    assert "other terms" in refusal(nodes[0], with_terms(request, stds=quieter)._replace(round=1))


@pytest.mark.parametrize("what", ["a label", "a feature", "the order", "one record more"])
def test_other_records_under_a_job_are_refused(tmp_path: Path, what: str):
    policy = make_node(tmp_path, X[:9], Y[:9])
    request = asked([policy])
    answer(policy, request)
    before = read_data(policy).fingerprint
    x, y = X[:9].copy(), Y[:9].copy()
    if what == "a label":
        y[4] = (y[4] + 1) % 3
    elif what == "a feature":
        x[4, 1] = np.nextafter(x[4, 1], np.float32(9))
    elif what == "the order":
        x, y = x[::-1], y[::-1]
    else:
        x, y = X[:10], Y[:10]
    write_records(tmp_path, x, y)
    assert read_data(policy).fingerprint != before
    assert "records changed" in refusal(policy, request._replace(round=1))
    write_records(tmp_path, X[:9], Y[:9])
    answer(policy, request._replace(round=1))


def test_what_may_be_asked_is_bounded_by_the_policy_to_the_last_digit(nodes: list[Policy]):
    """A clip or a multiplier a ten-millionth beyond the operator's limit is refused."""
    request = asked(nodes)
    std = request.job.stds[Phase.ROUND][0]
    just = replace(nodes[0], smallest_multiplier=std / 10.0, largest_clip=10.0)
    assert consider(just, request.job)["epsilon"] == pytest.approx(1.0, rel=1e-9)
    strict = replace(just, smallest_multiplier=std / 10.0 * (1 + 1e-7))
    with pytest.raises(Refused, match="smallest allowed"):
        consider(strict, request.job)
    with pytest.raises(Refused, match="largest allowed"):
        consider(replace(just, largest_clip=10.0 * (1 - 1e-7)), request.job)


def test_the_cap_is_kept_to_a_millionth(tmp_path: Path):
    (policy,) = make_nodes(tmp_path)[:1]
    job = started([policy], epsilon=1.0).job
    for epsilon, allowed in ((1.0, True), (1.0 - 1e-5, False)):
        capped = replace(policy, epsilon=epsilon)
        if allowed:
            assert consider(capped, job)["epsilon"] == pytest.approx(1.0, rel=1e-6)
        else:
            with pytest.raises(Refused, match="above the cap"):
                consider(capped, job)
    assert Account(policy.ledger).entries() == []


def test_what_was_spent_counts_when_a_job_is_considered(nodes: list[Policy]):
    """A job that fits an empty ledger, offered to a node that has spent a part of its budget."""
    job = started(nodes, epsilon=1.0).job
    assert consider(nodes[0], job)
    answer(nodes[0], asked(nodes, epsilon=0.1, rounds=1))
    with pytest.raises(Refused, match="above the cap"):
        consider(nodes[0], job)


def test_whoever_waited_for_a_request_is_seen_to_work_on_it(tmp_path: Path, monkeypatch):
    """The first to hold it removes the lock's file when done; the second must not be content with what is gone."""
    ledger, digest = tmp_path / "ledger.db", "0" * 64
    Account(ledger).create()
    waiting, inside, leave = Event(), Event(), Event()

    def second() -> None:
        with holding.held(ledger, digest):
            inside.set()
            leave.wait(60)

    def lock(*args: Any, real=fcntl.flock) -> None:
        if current_thread() is thread:
            waiting.set()
        real(*args)

    thread = Thread(target=second, daemon=True)
    monkeypatch.setattr(fcntl, "flock", lock)
    with holding.held(ledger, digest):
        thread.start()
        assert waiting.wait(60)
    assert inside.wait(60)
    assert holding.holding_of(Account(ledger), digest) is holding.Holding.WORKING
    leave.set()
    thread.join(60)
    assert holding.holding_of(Account(ledger), digest) is holding.Holding.NOTHING


@pytest.mark.slow
def test_a_client_remembers_the_round_before(nodes: list[Policy], monkeypatch):
    """Not its first one, nor its last: that of the round before the one it is asked for."""
    wanted: list[int] = []

    def recorded(self: Account, job: str, round: int, real=Account.memory) -> bytes | None:
        wanted.append(round)
        return real(self, job, round)

    monkeypatch.setattr(Account, "memory", recorded)
    finish(nodes[:1], started(nodes[:1], "scaffold", rounds=4))
    assert wanted == [0, 1, 2]
