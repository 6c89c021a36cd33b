"""What a node refuses: whatever its policy does not allow, with the reason, and at no charge."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.core.phase import Phase
from fedsofim.deploy import node
from fedsofim.deploy.node import answer
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import step
from fedsofim.deploy.wire import Request
from fedsofim.errors import Refused
from nodes import (
    ask_all,
    asked,
    charges,
    make_node,
    make_nodes,
    refusal,
    same_bits,
    spent,
    started,
    with_terms,
    write_records,
)


def rewritten(policy: Policy, **changed: Any) -> Policy:
    """The node after its operator changed the policy file."""
    return make_node(policy.data.parent, *node.read_data(policy)[:2], policy.name, **changed)


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
    assert request.phase is Phase.SETUP
    assert "clips at 11;" in refusal(nodes[0], request)


def test_a_smaller_multiplier(nodes: list[Policy]):
    request = asked(nodes)
    multiplier = request.job.stds[Phase.ROUND][0] / 10.0
    for policy in nodes:
        strict = rewritten(policy, smallest_multiplier=multiplier * 1.01, epsilon=1e6)
        message = refusal(strict, request)
        assert f"{multiplier:.6g}" in message
        assert f"{multiplier * 1.01:g}" in message
    answer(rewritten(nodes[0], smallest_multiplier=multiplier), request)


def test_less_noise_than_the_servers_own_plan(nodes: list[Policy]):
    request = asked(nodes)
    lowered = with_terms(request, stds={Phase.ROUND: [request.job.stds[Phase.ROUND][0] / 3]})
    assert "above the cap" in refusal(nodes[0], lowered)
    silent = with_terms(request, stds={Phase.ROUND: [0.0]})
    assert "multiplier 0" in refusal(nodes[0], silent)
    assert "multiplier 0" in refusal(rewritten(nodes[0], epsilon=1e9), silent)


@pytest.mark.parametrize("stds", [[], [1e3, 1e3]])
def test_stds_that_do_not_fit_the_program(nodes: list[Policy], stds: list[float]):
    assert "noise stds" in refusal(nodes[0], with_terms(asked(nodes), stds={Phase.ROUND: stds}))
    assert "noise stds" in refusal(nodes[0], with_terms(asked(nodes), stds={}))


@pytest.mark.parametrize("std", [math.inf, 1e15])
def test_noise_beyond_all_measure_is_no_way_around(nodes: list[Policy], std: float):
    request = asked(nodes)
    bad = request._replace(job=replace(request.job, stds={Phase.ROUND: [std]}))
    refusal(nodes[0], bad)


def test_the_price_is_the_nodes_own_whatever_the_server_says(nodes: list[Policy]):
    request = asked(nodes)
    answer(nodes[0], request)
    answer(nodes[1], with_terms(request, noise_std=1e9, clients=1000))
    assert spent(nodes[0]) == spent(nodes[1])


@pytest.mark.parametrize("round", [2, 3, 10**6])
def test_a_round_that_does_not_exist(nodes: list[Policy], round: int):
    assert f"round {round + 1} of a job of 2 rounds" in refusal(nodes[0], asked(nodes)._replace(round=round))
    assert "does not exist" in refusal(nodes[0], asked(nodes)._replace(round=-1))


@pytest.mark.parametrize("phase", [Phase.SETUP, Phase.MOMENTS])
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
    now = started(nodes, standardize=0.1)
    now = step(now, ask_all(nodes, now))
    request = now.request()
    assert request.phase is Phase.ROUND
    right = request.arrays[name]
    for wrong in (None, right[:-1], np.full_like(right, np.nan), np.full_like(right, np.inf)):
        assert name in refusal(nodes[0], arrays_with(request, name, wrong))


def test_records_that_changed_under_a_job(nodes: list[Policy]):
    request, policy = asked(nodes), nodes[0]
    answer(policy, request)
    x, y, *_ = node.read_data(policy)
    x = x.copy()
    x[0, 0] += 1
    write_records(policy.data.parent, x, y)
    for again in (request, request._replace(round=1)):
        assert "records changed" in refusal(policy, again)
    answer(policy, with_terms(request, id="new"))


def test_other_terms_under_a_jobs_name(nodes: list[Policy]):
    request = asked(nodes)
    answer(nodes[0], request)
    std = request.job.stds[Phase.ROUND][0]
    assert "other terms" in refusal(nodes[0], with_terms(request, stds={Phase.ROUND: [std * 2]}, rounds=3))


def test_noise_that_comes_back_meets_one_question_only(nodes: list[Policy]):
    now = started(nodes, "ftrl", rounds=4)
    request, policy = now.request(), nodes[0]
    assert "round 2 was asked before round 1" in refusal(policy, request._replace(round=1))
    first = answer(policy, request)
    other = arrays_with(request, "params0", request.arrays["params0"] + np.float32(1))
    assert "other numbers" in refusal(policy, other)
    assert same_bits(first, answer(policy, request))
    assert charges(policy) == 1


@pytest.mark.parametrize("name", ["fedfc", "ftrl"])
def test_a_wrong_account_published_elsewhere_passes_no_cap(tmp_path: Path, name: str):
    nodes = make_nodes(tmp_path)
    now = started(nodes, name, settings=(("as_published", "true"),), rounds=20)
    assert now.plan.epsilon > 1.5
    with pytest.raises(Refused, match=r"above the cap of 1 |multiplier|clips at inf"):
        while not now.finished:
            now = step(now, {p.name: answer(p, now.request()) for p in nodes})
    assert all(spent(policy) <= 1 + 1e-6 for policy in nodes)
