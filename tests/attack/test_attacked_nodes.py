"""Deployed nodes, attacked through their message path. Their noise is the system's, so thresholds leave room:
a right node fails each test here with probability below 1e-4."""

from dataclasses import replace

import pytest

from fedsofim.attack.nodes import attack_nodes, target_of
from fedsofim.attack.setting import Setting
from fedsofim.core.budget import Budget
from fedsofim.deploy.noise import draw
from fedsofim.errors import InputError
from fedsofim.methods import make

PLAIN = Setting(method=make("fedgd"), budget=Budget(20.0), rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_node_and_a_secure_sum_keep_their_promise(nodes: int):
    if nodes > 1:
        pytest.importorskip("cryptography")
    found = attack_nodes(target_of(PLAIN, nodes=nodes), pairs=40, confidence=0.999)
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
