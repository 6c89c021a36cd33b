"""Each node's policy is its budget: nodes of different caps in one job, each at its own noise, within its own cap."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.core.budget import NO_PRIVACY, WITHOUT
from fedsofim.core.budgets import Budgets
from fedsofim.core.phase import Phase
from fedsofim.deploy import certificate
from fedsofim.deploy.allowances import allowance, left_of
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.presence import noise_std_of
from fedsofim.deploy.round_notes import plan_in_words
from fedsofim.deploy.server import check_order, step
from fedsofim.deploy.wire import Job
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from nodes import REHEARSAL, SMALL, ask_all, finish, make_node, make_nodes, records_of, refusal, spent, started

CAPS = (0.5, 2.0, 8.0)


@pytest.fixture
def capped(tmp_path: Path) -> list[Policy]:
    return [make_node(tmp_path / f"n{i}", *records_of(i), f"n{i}", epsilon=cap, delta=10.0 ** -(5 + i))
            for i, cap in enumerate(CAPS)]  # fmt: skip


def job(nodes: list[Policy], **order) -> JobState:
    return started(nodes, **{"epsilon": 5.0, "budgets": "from-nodes", **order})


def test_each_spends_its_own_and_the_certificate_says_it(capped: list[Policy]):
    now = job(capped)
    wanted = [0.5, 2.0, 5.0]  # what is left of each cap, and no more than was ordered
    assert now.plan.epsilons == pytest.approx(wanted)
    assert [consider(node, now.job)["epsilon"] for node in capped] == pytest.approx(wanted, rel=1e-6)
    now = finish(capped, now)
    assert [spent(node) for node in capped] == pytest.approx(wanted, rel=1e-6)
    document = certificate.document_of(now.job.id, {node.name: certificate.statement(node) for node in capped})
    assert not certificate.check(document)
    for i, epsilon in enumerate(wanted):
        assert f"n{i}: epsilon {epsilon:g} at delta {10.0 ** -(5 + i):g}" in certificate.readable(document)
    assert "each client its own: epsilon 5 (1 client)" in plan_in_words(now)[0]


def test_what_is_left_after_a_job_is_what_the_next_one_gets(capped: list[Policy]):
    finish(capped, job(capped, epsilon=0.4, delta=1e-7))
    left = [allowance(node) for node in capped]
    assert all(0 < now < cap for now, cap in zip(left, CAPS, strict=True))
    again = job(capped)
    assert again.plan.epsilons == pytest.approx([left[0], left[1], 5.0])
    finish(capped, again)
    assert [spent(node) for node in capped[:2]] == pytest.approx(CAPS[:2], rel=1e-6)
    with pytest.raises(InputError, match="the policy of n0, n1 allows nothing more"):
        job(capped)


def test_the_simulators_plan_prices_and_noise(capped: list[Policy]):
    """Equal to the simulator in price, in noise by client, and in the law of what a node adds."""
    now = job(capped, rounds=2)
    budgets = now.plan.budget
    assert isinstance(budgets, Budgets)
    plan = plan_for(SMALL, make("fedgd"), budgets, 2)
    assert now.plan.epsilons == plan.epsilons and now.plan.noise_std == plan.noise_std
    for i, node in enumerate(capped):
        assert now.job.stds_of(node.name)[Phase.ROUND] == plan.stds(Phase.ROUND, i)
    uploads = ask_all(capped, now)
    for i, node in enumerate(capped):
        size, std = SMALL.sizes[i], plan.stds(Phase.ROUND, i)[0]
        noise = np.ravel(uploads[node.name]["upload0"]) * size  # the sum itself is at most size·clip, far less than std
        assert np.abs(noise).max() < 6 * std + size * plan.clip
        assert np.abs(noise).max() > std / 4


@pytest.mark.slow
def test_a_nodes_noise_is_its_own_both_ways(capped: list[Policy]):
    """Many jobs' first answers of one node: the noise has the std of its own budget, within 4 standard errors."""
    terms, node = job(capped), replace(capped[0], epsilon=1e6)
    asked = [terms.request()._replace(job=replace(terms.job, id=f"j{number}")) for number in range(30)]
    draws = np.stack([np.ravel(answer(node, request)["upload0"]) * SMALL.sizes[0] for request in asked])
    found = np.sqrt(np.mean(np.var(draws, axis=0, ddof=1)))
    own, error = terms.job.stds_of("n0")[Phase.ROUND][0], 1 / np.sqrt(2 * 29 * draws.shape[1])
    assert abs(found / own - 1) < 4 * error < 0.2
    assert terms.job.stds_of("n2")[Phase.ROUND][0] < own / 5  # another's would be noticed


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["size", "quiet"])
def test_without_noise_it_is_the_simulators_training(tmp_path: Path, weights: Any):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    now = finish(nodes, started(nodes, epsilon=WITHOUT, rounds=2, weights=weights))
    wanted, _ = simulate(plan_for(SMALL, make("fedgd"), NO_PRIVACY, 2, weights=weights), SMALL, 0, every=2)
    np.testing.assert_allclose(np.asarray(now.params), wanted, rtol=1e-3, atol=1e-3)


def test_a_node_prices_its_own_noise_and_nobody_elses(capped: list[Policy]):
    """A server that gives the strict node the generous one's noise is refused by its cap; one that forgets it, too."""
    now = job(capped)
    own = dict(now.job.own_stds)
    forged = Job.read(replace(now.job, own_stds={**own, "n0": own["n2"]}).text())
    with pytest.raises(InputError, match=r"above the cap of 0\.5"):
        consider(capped[0], forged)
    gone = Job.read(replace(now.job, own_stds={**{k: v for k, v in own.items() if k != "n0"}, "n9": own["n2"]}).text())
    assert "has no noise for n0" in refusal(capped[0], now.request()._replace(job=gone))


@pytest.mark.parametrize("wrong", [
    {"n0": {"round": [1.0]}}, {"n0": 3, "n1": 3, "n2": 3}, [1, 2, 3],
    {"n0": {"round": [-1.0]}, "n1": {"round": [1.0]}, "n2": {"round": [1.0]}},
    {"n0": {"round": ["1"]}, "n1": {}, "n2": {}},
])  # fmt: skip
def test_senseless_noise_is_an_error(capped: list[Policy], wrong):
    with pytest.raises(InputError, match="terms"):
        Job.read(replace(job(capped).job, own_stds=wrong).text())


def test_who_is_there_decides_the_noise_of_the_mean(capped: list[Policy]):
    now = job(capped, min_clients=1)
    stds = [now.job.stds_of(f"n{i}")[Phase.ROUND][0] for i in range(3)]
    assert noise_std_of(now, ["n0"]) == pytest.approx(stds[0] / 7)
    assert noise_std_of(now, ["n0", "n2"]) == pytest.approx(np.hypot(stds[0] * 0.5 / 7, stds[2] * 0.5 / 12))


def test_a_checkpoint_keeps_what_was_allowed(capped: list[Policy], tmp_path: Path):
    now = job(capped)
    now = step(now, ask_all(capped, now))
    save(now, tmp_path / "c.npz")
    again = restore(tmp_path / "c.npz")
    assert again.clients == now.clients and again.job == now.job
    assert again.plan.epsilons == now.plan.epsilons


def test_orders_that_contradict_themselves():
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": WITHOUT}, "contradict"),
        ({"trust": "secure-sum"}, "need trust local"),
    ]
    for wrong, said in wrongs:
        with pytest.raises(InputError, match=said):
            Order(budgets="from-nodes", **wrong)
    with pytest.raises(InputError, match="budgets"):
        Order(budgets="theirs")
    check_order(Order(budgets="from-nodes", method="fedgd"))


def test_what_is_left_composes_to_the_cap():
    line = Line(label="", clip=1.0, ratio=2.0, multiplier=30.0, releases=5, weight=5.0, sample=1.0, coordinates=1)
    left = left_of(2.0, 1e-5, [line])
    from fedsofim.core.gaussian import mu_of

    more = replace(line, multiplier=2 / mu_of(left, 1e-5), releases=1, weight=1.0)
    assert epsilon_of_lines([line, more], 1e-5) == pytest.approx(2.0, rel=1e-9)
    assert left_of(0.1, 1e-5, [line]) == 0.0
    sampled = replace(line, sample=0.1)
    assert left_of(2.0, 1e-5, [sampled]) == left  # priced as if it had read all: never more than is left
