"""Prices against 60-digit arithmetic and against dp-accounting's independent PLD accountant."""

import math

import dp_accounting as dpa
import mpmath as mp
import pytest
from dp_accounting import pld

from fedsofim.core import accounting as privacy
from fedsofim.core.budget import Budget
from fedsofim.core.accounting import Charge
from fedsofim.errors import InputError

EPSILONS = (0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0)
DELTAS = (1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 1e-2)


def exact_delta(mu, epsilon):
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_both_ways_to_nine_digits(epsilon, delta):
    with mp.workdps(60):
        mu = privacy.mu_of(epsilon, delta)
        root = mp.findroot(lambda u: mp.log(exact_delta(mp.exp(u), epsilon)) - mp.log(mp.mpf(delta)), mp.log(mu))
        assert abs(mu / mp.exp(root) - 1) < 1e-9
        assert abs(privacy.delta_of(mu, epsilon) / exact_delta(mu, epsilon) - 1) < 1e-9
        back = mp.findroot(lambda e: mp.log(exact_delta(mu, e)) - mp.log(mp.mpf(delta)), epsilon)
        assert abs(privacy.epsilon_of(mu, delta) / back - 1) < 1e-9


def test_large_mu_and_no_mu():
    with mp.workdps(60):
        assert abs(privacy.delta_of(30.0, 1.0) / exact_delta(30.0, 1.0) - 1) < 1e-9
    assert privacy.epsilon_of(0.0, 1e-5) == 0.0
    assert privacy.epsilon_of(math.inf, 1e-5) == math.inf
    assert privacy.delta_of(0.0, 1.0) == 0.0


@pytest.mark.parametrize("epsilon, sigma_g", [(0.5, 526.21), (1, 279.17), (5, 66.741), (10, 37.408)])
def test_the_papers_multipliers(epsilon, sigma_g):
    multiplier = privacy.calibrate([site()], Budget(epsilon))[0]
    assert math.sqrt(20) * multiplier == pytest.approx(sigma_g, abs=0.5 * 10 ** -len(str(sigma_g).split(".")[1]))


def site(number=0, *, clip=10.0, ratio=2.0, releases=70, weight=None, sample=1.0, share=None) -> Charge:
    return Charge(number, "gradient", clip, ratio, releases, releases if weight is None else weight, sample, share)


def pld_epsilon(charges, multipliers, delta):
    """dp-accounting's answer: its replace-one Gaussian moves by twice the event's unit."""
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for c in charges:
        accountant.compose(dpa.GaussianDpEvent(2 * multipliers[c.site] / c.ratio), c.releases)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0, 10.0])
def test_unequal_ledger_agrees_with_pld(epsilon):
    charges = [site(0), site(1, releases=1, ratio=math.sqrt(2), clip=3.0, share=0.1), site(2, releases=35, clip=1.0)]
    multipliers = privacy.calibrate(charges, Budget(epsilon, 1e-5))
    assert privacy.spent(charges, multipliers, 1e-5) == pytest.approx(epsilon, rel=1e-9)
    assert pld_epsilon(charges, multipliers, 1e-5) == pytest.approx(epsilon, rel=2e-3)
    assert multipliers[0] == multipliers[2]  # one common multiplier
    total = privacy.mu_spent(charges, multipliers) ** 2
    assert charges[1].mu_squared(multipliers[1]) == pytest.approx(0.1 * total)


def test_the_value_that_rdp_gets_wrong():
    """Multiplier 20, 70 rounds: 3.56 under replace-one; dp-accounting's RDP accountant says 1.78."""
    assert privacy.spent([site()], {0: 20.0}, 1e-5) == pytest.approx(3.56, abs=0.005)
    assert pld_epsilon([site()], {0: 20.0}, 1e-5) == pytest.approx(3.56, abs=0.01)


def test_sampling_is_priced_by_pld():
    full, sampled = site(), site(sample=0.1)
    budget = Budget(2.0, 1e-5)
    multiplier = privacy.calibrate([sampled], budget)[0]
    assert multiplier < 0.35 * privacy.calibrate([full], budget)[0]  # amplification is real
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(multiplier)), 70)
    assert 0.99 * 2.0 < accountant.get_epsilon(1e-5) <= 2.0


def test_sampled_and_full_releases_together():
    charges = [site(0, sample=0.2), site(1, releases=5)]
    multipliers = privacy.calibrate(charges, Budget(3.0, 1e-5))
    assert 0.98 * 3.0 < privacy.spent(charges, multipliers, 1e-5) <= 3.0


def test_all_shares_take_the_whole_budget():
    charges = [site(0, share=0.25), site(1, share=0.25)]
    assert privacy.spent(charges, privacy.calibrate(charges, Budget(1.0)), 1e-5) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    "senseless",
    [
        lambda: Budget(0.0),
        lambda: Budget(-1.0),
        lambda: Budget(math.nan),
        lambda: Budget(math.inf),
        lambda: Budget(1.0, 0.0),
        lambda: Budget(1.0, 1.0),
        lambda: Budget(1.0, math.nan),
        lambda: privacy.mu_of(1.0, 2.0),
        lambda: privacy.epsilon_of(math.nan, 1e-5),
        lambda: privacy.epsilon_of(-1.0, 1e-5),
        lambda: privacy.delta_of(1.0, math.nan),
        lambda: privacy.calibrate([], Budget(1.0)),
        lambda: privacy.calibrate([site(0, share=0.6), site(1, share=0.6)], Budget(1.0)),
        lambda: privacy.calibrate([site(0, share=0.5, sample=0.5), site(1)], Budget(1.0)),
        lambda: privacy.at_multiplier([site()], 0.0),
    ],
)
def test_senseless_input_is_a_clear_error(senseless):
    with pytest.raises(InputError, match=r"expected|nothing|leave"):
        senseless()


def test_no_noise_means_no_guarantee():
    assert privacy.spent([site()], {0: 0.0}, 1e-5) == math.inf
