"""Ledgers against dp-accounting's independent PLD accountant."""

import math

import dp_accounting as dpa
import pytest
from dp_accounting import pld

from fedsofim.core.accounting import Charge, at_multiplier, calibrate, mu_spent, spent
from fedsofim.core.budget import Budget
from fedsofim.errors import InputError


@pytest.mark.parametrize("epsilon, sigma_g", [(0.5, 526.21), (1, 279.17), (5, 66.741), (10, 37.408)])
def test_the_papers_multipliers(epsilon, sigma_g):
    multiplier = calibrate([site()], Budget(epsilon))[0]
    assert math.sqrt(20) * multiplier == pytest.approx(sigma_g, abs=0.5 * 10 ** -len(str(sigma_g).split(".")[1]))


def site(number=0, *, clip=10.0, ratio=2.0, releases=70, weight=None, sample=1.0, share=None) -> Charge:
    return Charge(
        site=number,
        label="gradient",
        clip=clip,
        ratio=ratio,
        releases=releases,
        weight=releases if weight is None else weight,
        sample=sample,
        share=share,
    )


def pld_epsilon(charges, multipliers, delta):
    """dp-accounting's answer: its replace-one Gaussian moves by twice the event's unit."""
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for c in charges:
        accountant.compose(dpa.GaussianDpEvent(2 * multipliers[c.site] / c.ratio), c.releases)
    return accountant.get_epsilon(delta)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0, 10.0])
def test_unequal_ledger_agrees_with_pld(epsilon):
    charges = [site(0), site(1, releases=1, ratio=math.sqrt(2), clip=3.0, share=0.1), site(2, releases=35, clip=1.0)]
    multipliers = calibrate(charges, Budget(epsilon, 1e-5))
    assert spent(charges, multipliers, 1e-5) == pytest.approx(epsilon, rel=1e-9)
    assert pld_epsilon(charges, multipliers, 1e-5) == pytest.approx(epsilon, rel=2e-3)
    assert multipliers[0] == multipliers[2]  # one common multiplier
    total = mu_spent(charges, multipliers) ** 2
    assert charges[1].mu_squared(multipliers[1]) == pytest.approx(0.1 * total)


def test_the_value_that_rdp_gets_wrong():
    """Multiplier 20, 70 rounds: 3.56 under replace-one; dp-accounting's RDP accountant says 1.78."""
    assert spent([site()], {0: 20.0}, 1e-5) == pytest.approx(3.56, abs=0.005)
    assert pld_epsilon([site()], {0: 20.0}, 1e-5) == pytest.approx(3.56, abs=0.01)


@pytest.mark.slow
def test_sampling_is_priced_by_pld():
    full, sampled = site(), site(sample=0.1)
    budget = Budget(2.0, 1e-5)
    multiplier = calibrate([sampled], budget)[0]
    assert multiplier < 0.35 * calibrate([full], budget)[0]  # amplification is real
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(multiplier)), 70)
    assert 0.99 * 2.0 < accountant.get_epsilon(1e-5) <= 2.0


@pytest.mark.slow
def test_sampled_and_full_releases_together():
    charges = [site(0, sample=0.2), site(1, releases=5)]
    multipliers = calibrate(charges, Budget(3.0, 1e-5))
    assert 0.98 * 3.0 < spent(charges, multipliers, 1e-5) <= 3.0


def test_all_shares_take_the_whole_budget():
    charges = [site(0, share=0.25), site(1, share=0.25)]
    assert spent(charges, calibrate(charges, Budget(1.0)), 1e-5) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    "senseless",
    [
        lambda: calibrate([], Budget(1.0)),
        lambda: calibrate([site(0, share=0.6), site(1, share=0.6)], Budget(1.0)),
        lambda: calibrate([site(0, share=0.5, sample=0.5), site(1)], Budget(1.0)),
        lambda: at_multiplier([site()], 0.0),
    ],
)
def test_senseless_input_is_a_clear_error(senseless):
    with pytest.raises(InputError, match=r"expected|nothing|leave"):
        senseless()


def test_no_noise_means_no_guarantee():
    assert spent([site()], {0: 0.0}, 1e-5) == math.inf
