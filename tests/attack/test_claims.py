"""Promises as curves."""

from dataclasses import replace

import numpy as np
import optax
import pytest

from fedsofim.attack.claims import Claim, claim_of
from fedsofim.attack.setting import Setting
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import OneGradient, server_method
from fedsofim.core.phase import Phase
from fedsofim.errors import InputError
from fedsofim.methods import make

PLAIN = Setting(method=make("fedgd"), budget=Budget(1.0), rounds=3)


def claim(setting: Setting, *phases: Phase) -> Claim:
    return claim_of(setting.plan, phases or tuple(setting.plan.programs))


def test_a_run_is_held_to_its_budget():
    found = claim(PLAIN)
    assert found.mu == pytest.approx(Budget(1.0).mu)
    assert found.epsilon == pytest.approx(1.0)


def test_a_phase_alone_is_held_to_its_share():
    setting = replace(PLAIN, preparation=(FeatureMoments(share=0.25),))
    assert claim(setting, Phase.MOMENTS).mu == pytest.approx(Budget(1.0).mu / 2)


def test_a_wrong_account_is_held_to_what_was_published():
    setting = replace(PLAIN, method=make("ftrl", {"as_published": True}), rounds=30)
    assert setting.plan.epsilon > 1.5  # the ledger knows better
    assert claim(setting).epsilon == pytest.approx(1.0)


def test_without_privacy_there_is_no_claim():
    with pytest.raises(InputError, match="promises nothing"):
        claim(replace(PLAIN, budget=NO_PRIVACY))


@pytest.mark.slow
def test_sampled_records_have_a_curve_between_blind_guessing_and_the_same_without_sampling():
    sampled = server_method("sampled", optax.sgd(0.1), OneGradient(sample=0.25))
    setting = replace(PLAIN, method=sampled, rounds=2, budget=Budget(2.0))
    found = claim(setting)
    alpha = np.linspace(0.05, 0.95, 19)
    beta = found.least_beta(alpha)
    assert found.mu is None
    assert found.epsilon == pytest.approx(2.0, rel=0.01)
    assert np.all(beta <= 1 - alpha)
    assert np.all(beta > Claim(epsilon=0.0, delta=0.0, mu=2.0).least_beta(alpha))
