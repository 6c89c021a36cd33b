"""What keeps a node from being worn out or led astray by what a message holds: refused in words, before any charge."""

import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.core import programs
from fedsofim.core.phase import Phase
from fedsofim.deploy import certificate, node
from fedsofim.deploy.account import Account, Bounds
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.policy import Policy, Work, read_policy
from fedsofim.deploy.sane import LONGEST, check_plain, is_name, plain
from fedsofim.deploy.wire import Job
from fedsofim.errors import InputError, Refused
from ledgers import DELTA, ask, line, open_
from nodes import asked, charges, make_nodes, policy_toml, refusal, started, with_terms

# --- numbers ------------------------------------------------------------------------------------------------

STRANGE = [1.6e-312, 5e-324, 1e-300, 1e31, 1e300, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("value", [*STRANGE, 1e-10, 1e10, 0.0, -1.0])
def test_a_clip_that_is_no_sane_number_is_refused(nodes: list[Policy], value: float):
    """A subnormal one once rounded the lattice's step: noise 1.49 times too small."""
    request = asked(nodes)
    with pytest.raises(InputError):
        Job.read(replace(request.job, clip=value).text())
    refusal(nodes[0], request._replace(job=replace(request.job, clip=value)))


@pytest.mark.parametrize("value", STRANGE)
@pytest.mark.parametrize("where", ["stds", "noise_std", "mean_stds", "settings", "preparation"])
def test_no_strange_number_passes_anywhere(nodes: list[Policy], where: str, value: float):
    request = asked(nodes)
    bad: Any = {
        "stds": {Phase.ROUND: [value]},
        "noise_std": value,
        "mean_stds": {Phase.MOMENTS: value},
        "settings": {"lr": value},
        "preparation": [{"step": "FeatureMoments", "share": 0.1, "radius": value}],
    }[where]
    refusal(nodes[0], request._replace(job=replace(request.job, **{where: bad})))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_parameters_that_are_not_finite_are_refused_before_the_charge(nodes: list[Policy], value: float):
    request = asked(nodes)
    arrays = {"params0": np.full_like(request.arrays["params0"], value)}
    assert "finite" in refusal(nodes[0], request._replace(arrays=arrays))


# --- names and texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nb", "", "x" * 65, "../a", "\u202ea", " a", "<b>"])
def test_a_jobs_name_is_plain(nodes: list[Policy], name: str):
    request = asked(nodes)
    assert not is_name(name)
    refusal(nodes[0], request._replace(job=replace(request.job, id=name)))


DEEP = "[" * 100_000 + "]" * 100_000
MANY = {
    "deep": DEEP, "long": json.dumps("x" * LONGEST), "many": json.dumps([0] * 60_000), "nothing": "",
    "text": json.dumps("x" * 3000), "control": json.dumps("a\x07"), "number": "9" * 5000, "huge": "1e400",
}  # fmt: skip


@pytest.mark.parametrize("text", MANY.values(), ids=MANY)
def test_what_is_not_plain_is_an_error_in_words(text: str):
    with pytest.raises(InputError):
        plain(text)


def test_plain_data_passes():
    check_plain({"a": [1, 2.5, None, True, "text"], "b": {"c": -1e-30}})


# --- work ---------------------------------------------------------------------------------------------------


def test_local_steps_beyond_the_operators_bound_are_refused_before_one_is_run(nodes: list[Policy], monkeypatch):
    request = with_terms(asked(nodes, "fedavg"), settings={"local_steps": 10**7}, id="long")
    monkeypatch.setattr(programs, "confirm", lambda *a: pytest.fail("it was run"))  # every step of every loop
    assert "10000000 times" in refusal(nodes[0], request)
    with pytest.raises(Refused, match="the most allowed here is 1000"):
        consider(nodes[0], request.job)


def test_rounds_beyond_the_operators_bound_are_refused_before_anything_is_built(nodes: list[Policy]):
    job = replace(asked(nodes).job, rounds=10**6)
    with pytest.raises(Refused, match="1000000 rounds"):
        consider(nodes[0], job)


def test_arrays_that_nobody_reads_are_refused(nodes: list[Policy]):
    request = asked(nodes)
    more = {**request.arrays, "state7": np.zeros(3, np.float32)}
    assert "arrays that nobody reads" in refusal(nodes[0], request._replace(arrays=more))


def test_a_message_beyond_the_operators_bound_is_refused_before_it_is_hashed(nodes: list[Policy], monkeypatch):
    request = asked(nodes)
    strict = replace(nodes[0], work=Work(message_mb=1))
    monkeypatch.setattr(node, "held", lambda *a: pytest.fail("it was hashed"))
    big = request._replace(arrays={**request.arrays, "more": np.zeros(300_000, np.float32)})
    assert "1200048 bytes" in refusal(strict, big)


def test_an_answer_beyond_the_operators_bound_is_refused(nodes: list[Policy], monkeypatch):
    tight = replace(nodes[0], work=replace(Work(), message_mb=1))
    monkeypatch.setattr("fedsofim.deploy.pricing.coordinates", lambda jaxpr: {0: 10**6})
    assert "the answer has 8000000 bytes" in refusal(tight, asked(nodes))


def test_requests_that_cost_nothing_are_counted_and_have_an_end(tmp_path: Path):
    """Sixty asks at multiplier 1e8 cost epsilon 0.0; they were kept for ever."""
    path = tmp_path / "ledger.db"
    for t in range(5):
        open_(path, ask(t, job=f"j{t}"), [line(1e8)])
    assert epsilon_of_lines([each for _, each in Account(path).entries()], DELTA) == 0.0
    for bounds, said in (
        (Bounds(requests=5), "holds 5 requests"),
        (Bounds(requests_an_hour=5), "5 requests in the last"),
    ):
        with pytest.raises(Refused, match=said):
            Account(path).open_ask(ask(9), [line(1e8)], cap=1.0, delta=DELTA, fresh_secret=bytes(32), bounds=bounds)
        again = Account(path).open_ask(  # what was charged before is still answered
            ask(0, job="j0"), [line(1e8)], cap=1.0, delta=DELTA, fresh_secret=bytes(32), bounds=bounds
        )
        assert again.number == 1


def test_the_operators_bounds_reach_the_ledger(nodes: list[Policy]):
    strict = replace(nodes[0], work=Work(requests=1))
    answer(strict, asked(nodes))
    assert "holds 1 requests" in refusal(strict, asked(nodes))


def test_a_policy_states_its_bounds(tmp_path: Path):
    path = tmp_path / "policy.toml"
    path.write_text(policy_toml() + "\n[work]\nrounds = 7\nstored_mb = 3\n")
    work = read_policy(path).work
    assert (work.rounds, work.local_steps, work.bounds.stored) == (7, 1000, 3_000_000)
    for wrong in ("rounds = 0", "rounds = 1.5", 'rounds = "x"', "steps = 3", "rounds = true"):
        path.write_text(policy_toml() + f"\n[work]\n{wrong}\n")
        with pytest.raises(InputError, match=r"\[work\]"):
            read_policy(path)
    path.write_text("work = 3\n" + policy_toml())
    with pytest.raises(InputError, match=r"\[work\]"):
        read_policy(path)


# --- one message poisons no account -------------------------------------------------------------------------


@pytest.mark.parametrize("std", [1e15, 1e17, 1e29])
def test_noise_that_cannot_be_drawn_is_refused_before_the_charge_and_the_account_goes_on(
    nodes: list[Policy], std: float
):
    request = asked(nodes)
    assert "lattice" in refusal(nodes[0], with_terms(request, stds={Phase.ROUND: [std]}, id="large"))
    assert charges(nodes[0]) == 0
    answer(nodes[0], request)
    assert 0 < certificate.statement(nodes[0])["epsilon"] < 1


def test_noise_that_takes_too_long_to_draw_is_refused_before_the_charge(nodes: list[Policy], monkeypatch):
    monkeypatch.setattr("fedsofim.deploy.subtree_noise.MOST", 24)
    now = started(nodes, "ftrl", settings=(("noise", "honaker"),), rounds=4)
    answer(nodes[0], now.request())  # one draw of 12 numbers
    said = refusal(nodes[0], now.request()._replace(round=1))
    assert "3 draws of 12 numbers" in said and "use noise=tree" in said


@pytest.mark.parametrize("multiplier", [1e-300, 1e-30, 1e-9, 1.0, 1e8, 1e17, 1e30, 1e300])
@pytest.mark.parametrize("sample", [1.0, 0.5, 1e-9])
@pytest.mark.parametrize("weight", [1e-300, 1.0, 1e30])
def test_whatever_an_account_holds_it_has_an_epsilon(multiplier: float, sample: float, weight: float):
    alone = epsilon_of_lines([line(multiplier, sample, weight)], DELTA)  # of one at 1e17 it had been a math error
    found = epsilon_of_lines([line(multiplier, sample, weight), line(3.0)], DELTA)
    assert found >= max(alone, epsilon_of_lines([line(3.0)], DELTA)) * (1 - 1e-9)


def statements_of(path: Path, round: int, monkeypatch) -> int:
    """How many statements the database runs for one ask."""
    real, seen = sqlite3.connect, []

    def watched(*a: Any, **k: Any) -> sqlite3.Connection:
        db = real(*a, **k)
        db.set_trace_callback(seen.append)
        return db

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", watched)
        open_(path, ask(round))
    return len(seen)


def test_a_long_account_is_read_in_one_go(tmp_path: Path, monkeypatch):
    """Counted, not timed: an ask reads the tables as often after many charges as after a few."""
    path = tmp_path / "ledger.db"
    for t in range(3):
        open_(path, ask(t))
    few = statements_of(path, 3, monkeypatch)
    for t in range(4, 60):
        open_(path, ask(t))
    assert statements_of(path, 60, monkeypatch) == few


def test_a_job_within_all_bounds_is_answered(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    answer(nodes[0], started(nodes, "fedavg").request())
    assert charges(nodes[0]) == 1
