"""Many canaries in one training."""

from dataclasses import replace

import pytest

from fedsofim.attack.one_run import OneRun, attack_one_run
from fedsofim.attack.setting import Setting
from fedsofim.core.budget import Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.errors import InputError
from fedsofim.methods import make

PLAIN = OneRun(setting=Setting(method=make("fedgd"), budget=Budget(5.0), rounds=5), clients=4, canaries=100)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedgd", "fedsofim"])
def test_a_right_training_keeps_its_promise_and_the_attack_is_not_blind(name: str):
    found = attack_one_run(replace(PLAIN, setting=replace(PLAIN.setting, method=make(name))))
    assert not found.broken
    assert found.claim.mu is not None
    assert found.mu_lower <= found.claim.mu
    assert 0.25 < found.estimate.mu / found.claim.mu < 1.35  # 400 canaries: a standard error of a tenth


@pytest.mark.slow
def test_canaries_that_stay_loud_show_the_whole_mu():
    quiet = replace(PLAIN.setting, method=make("fedgd", {"lr": 1e-9}))
    found = attack_one_run(replace(PLAIN, setting=quiet, clients=20))
    assert found.claim.mu is not None
    assert found.estimate.mu / found.claim.mu == pytest.approx(1.0, abs=0.12)


@pytest.mark.slow
def test_a_training_with_a_fifth_of_its_noise_is_caught():
    assert attack_one_run(replace(PLAIN, noise=0.2, clients=20)).broken


def test_standardised_features_would_move_the_canaries():
    moments = replace(PLAIN.setting, preparation=(FeatureMoments(),))
    with pytest.raises(InputError, match="without --standardize"):
        attack_one_run(replace(PLAIN, setting=moments))
