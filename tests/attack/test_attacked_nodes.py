"""Deployed nodes, attacked through their message path. Their noise is the system's, so thresholds leave room:
a right node fails each test here with probability below 1e-4."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsofim.attack.nodes import attack_nodes, target_of
from fedsofim.attack.setting import Setting
from fedsofim.attack.two_sums import as_seen, forgetful, sums_got
from fedsofim.core.budget import Budget
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.node import answer
from fedsofim.deploy.noise import draw, fresh_secret
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from fedsofim.methods import make
from node_sums import order_of_five, summing_nodes
from nodes import ask_all, start

PLAIN = Setting(method=make("fedgd"), budget=Budget(20.0), rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("nodes, enough", [(1, None), (3, None), (3, 2)])
def test_a_node_and_a_secure_sum_keep_their_promise(nodes: int, enough: int | None):
    """The last: one of three is lost, so that the noise of two is all there is."""
    if nodes > 1:
        pytest.importorskip("cryptography")
    found = attack_nodes(target_of(PLAIN, nodes=nodes, min_clients=enough), pairs=40, confidence=0.999)
    assert not found.broken
    assert found.claim.mu is not None
    assert found.estimate.mu / found.claim.mu == pytest.approx(1.0, abs=0.6)  # standard error 0.15
    assert found.releases == 80


@pytest.mark.slow
def test_a_node_whose_noise_is_a_fifth_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fedsofim.deploy.execute.draw", lambda *a, **k: draw(*a, **k) // 5)
    assert attack_nodes(target_of(replace(PLAIN, budget=Budget(2.0))), pairs=60).broken


def test_a_setup_is_not_attacked_here():
    with pytest.raises(InputError, match="without a setup"):
        attack_nodes(target_of(replace(PLAIN, method=make("fedfc"))), pairs=60)


@pytest.mark.slow
def test_a_coordinator_that_asks_for_two_sums_gets_one_and_from_forgetful_nodes_the_victim_alone(
    tmp_path: Path, monkeypatch
):
    """Who asks for all, for all without the victim, and for all again: right nodes give the first, twice."""
    pytest.importorskip("cryptography")
    policies = summing_nodes(tmp_path, trusted=3)
    now = start(policies, order_of_five(clients=3, min_clients=2, rounds=3))
    uploads = ask_all(policies, now)
    assert set(sums_got(policies, now, uploads)) == {("n0", "n1", "n2")}
    total, there = as_seen(policies, now, uploads)
    assert there == ["n0", "n1", "n2"]
    broken = [forgetful(policy) for policy in policies]
    alone, who = as_seen(broken, now, uploads)
    assert who == ["n0"]
    one, two = (int(np.abs(words.view(np.int64)).max()) for words in (alone, total - alone))
    assert 0 < one < 2**40 and 0 < two < 2**40  # no mask is left: the victim's own upload, and the others' sum
    assert len(_answers(policies[1], now)) == 1  # asked again the same bits come, and averaging them gains nothing
    with monkeypatch.context() as patch:  # planted: noise from the system at each answer, and no memory of it
        patch.setattr("fedsofim.deploy.node.request_secret", lambda *given: fresh_secret())
        patch.setattr("fedsofim.deploy.account.Account.close_ask", lambda *given: None)
        assert len(_answers(policies[1], replace(now, round=1))) == 4


def _answers(policy: Policy, now: JobState) -> set[bytes]:
    return {answer(policy, now.request())["upload0"].tobytes() for _ in range(4)}
