"""Every broken engine is caught; if one were not, the attacker's silence about right ones would mean nothing."""

import pytest

from fedsofim.attack.broken import BROKEN, broken_engine
from fedsofim.attack.setting import Setting, honest
from fedsofim.attack.verdicts import attack
from fedsofim.core.budget import Budget
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make

PLAIN = Setting(method=make("fedgd"), budget=Budget(5.0), rounds=12)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BROKEN))
def test_it_is_caught(name: str):
    found = attack(broken_engine(name, PLAIN), pairs=1500)
    assert found.claim.epsilon == pytest.approx(5.0, rel=0.01)  # what it promises
    assert found.broken
    assert "CLAIM BROKEN" in found.sentence
    if found.claim.mu is not None:
        assert found.epsilon_lower > found.claim.epsilon
        if name == "noise-too-small":  # and measured as what it is
            assert found.claim.mu / found.estimate.mu == pytest.approx(0.7, rel=0.08)


@pytest.mark.slow
def test_a_broken_engine_changes_nothing_for_others():
    before = attack(honest(PLAIN), pairs=60).summary()
    for name in ("no-clipping", "reused-noise"):
        broken_engine(name, PLAIN).programs(4)
    after = attack(honest(PLAIN), pairs=60).summary()
    assert before["mu_estimate"] == after["mu_estimate"]


def test_unknown_names_are_told_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'reused-noise'"):
        broken_engine("reused-noises", PLAIN)


def test_hole_1_can_no_longer_be_written_as_a_method():
    """The engine in which it was possible is rebuilt in broken.py; the audit of today refuses the program itself."""
    import jax

    from fedsofim.core.method import Method

    def client(door, params, state, memory):
        local = jax.jit(lambda t: door.scan(lambda d, y: y - d.gradient(y), t, 1) - t)
        return local(params) - local(params + 1.0), memory

    method = Method("twice", client, lambda mean, state, params, facts: (params, state))
    with pytest.raises(Refused):
        honest(Setting(method=method, budget=Budget(1.0), rounds=2))
