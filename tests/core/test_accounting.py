"""Ledgers against dp-accounting's independent PLD accountant."""

import math

import dp_accounting as dpa
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsofim.core import sampled
from fedsofim.core.accounting import Charge, at_multiplier, calibrate, check_std, mu_spent, spent
from fedsofim.core.budget import Budget
from fedsofim.errors import InputError


@pytest.mark.parametrize("epsilon, sigma_g", [(0.5, 526.21), (1, 279.17), (5, 66.741), (10, 37.408)])
def test_the_papers_multipliers(epsilon, sigma_g):
    multiplier = calibrate([site()], Budget(epsilon))[0]
    assert math.sqrt(20) * multiplier == pytest.approx(sigma_g, abs=0.5 * 10 ** -len(str(sigma_g).split(".")[1]))


def site(number=0, *, clip=10.0, ratio=2.0, releases=70, weight=None, sample=1.0, share=None, charged=None) -> Charge:
    return Charge(
        site=number,
        label="gradient",
        clip=clip,
        ratio=ratio,
        releases=releases,
        weight=releases if weight is None else weight,
        sample=sample,
        share=share,
        charged=charged,
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


# --- never more than the budget -----------------------------------------------------------------------------


@settings(deadline=None)
@given(
    epsilon=st.floats(-6, 6).map(lambda e: 10.0**e),
    delta=st.floats(-300, -1).map(lambda d: max(10.0**d, 1e-300)),
    ratios=st.lists(st.sampled_from([2.0, math.sqrt(2), 1.0]), min_size=1, max_size=4),
    weights=st.lists(st.floats(1e-3, 1e4), min_size=4, max_size=4),
    shares=st.lists(st.none() | st.floats(0.001, 0.249), min_size=4, max_size=4),
)
def test_no_ledger_spends_a_digit_more_than_the_budget(epsilon, delta, ratios, weights, shares):
    charges = [
        site(i, ratio=r, weight=w, share=q) for i, (r, w, q) in enumerate(zip(ratios, weights, shares, strict=False))
    ]
    found = spent(charges, calibrate(charges, Budget(epsilon, delta)), delta)
    assert epsilon * (1 - 1e-9) < found <= epsilon


def test_the_budget_that_was_exceeded_by_a_last_digit():
    for epsilon in (0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 8.0, 10.0):
        assert spent([site()], calibrate([site()], Budget(epsilon)), 1e-5) <= epsilon


# --- sampled records ----------------------------------------------------------------------------------------


def pld_of(charge: Charge, multiplier: float, delta: float) -> float:
    """Epsilon of one sampled site, on dp-accounting's own grid."""
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    event = dpa.GaussianDpEvent(2 * multiplier / charge.ratio)
    accountant.compose(dpa.PoissonSampledDpEvent(charge.sample, event), charge.releases)
    return accountant.get_epsilon(delta)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "epsilon"), [(0.01, 0.5), (0.1, 2.0), (0.5, 2.0)])
def test_sampling_is_priced_by_pld(rate: float, epsilon: float):
    one, budget = site(sample=rate), Budget(epsilon, 1e-5)
    multiplier = calibrate([one], budget)[0]
    assert multiplier < calibrate([site()], budget)[0] * (0.35 if rate <= 0.1 else 0.7)  # amplification is real
    assert 0.995 * epsilon < spent([one], {0: multiplier}, 1e-5) <= epsilon
    finest = pld_of(one, multiplier, 1e-5)
    assert 0.99 * epsilon < finest <= spent([one], {0: multiplier}, 1e-5) * (1 + 1e-4)


@pytest.mark.slow
def test_sampled_and_full_releases_together():
    charges = [site(0, sample=0.2), site(1, releases=5)]
    multipliers = calibrate(charges, Budget(3.0, 1e-5))
    assert 0.98 * 3.0 < spent(charges, multipliers, 1e-5) <= 3.0


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_sampled_sites_beside_one_with_a_fixed_share(share: float):
    charges = [site(0, sample=0.1), site(1, releases=1, ratio=math.sqrt(2), share=share)]
    multipliers = calibrate(charges, Budget(1.0, 1e-5))
    assert charges[1].mu_squared(multipliers[1]) == pytest.approx(share * Budget(1.0).mu ** 2)
    assert 0.98 < spent(charges, multipliers, 1e-5) <= 1.0
    by_hand = at_multiplier(charges, 30.0)
    assert by_hand[0] == 30.0 and 0 < spent(charges, by_hand, 1e-5) < math.inf


CORNERS = [  # (releases, rate, epsilon, delta)
    (70, 0.1, 1.0, 1e-30),  # delta below what the distributions resolve
    (70, 0.1, 1.0, 1e-11),
    (1, 1e-6, 1.0, 1e-5),  # no noise would do
    (10_000, 1e-3, 8.0, 1e-5),
    (70, 0.999, 1.0, 1e-5),
    (70, 0.5, 1e9, 1e-5),
    (70, 0.5, 1e-6, 1e-300),
    (70, 0.5, 1e-6, 0.5),
    (70, 0.5, 100.0, 1e-5),
]


@pytest.mark.slow
@pytest.mark.parametrize(("releases", "rate", "epsilon", "delta"), CORNERS)
def test_sampled_calibration_is_bounded_in_effort_and_within_the_budget(releases, rate, epsilon, delta, monkeypatch):
    grids = []
    real = sampled.pld_epsilon
    monkeypatch.setattr(sampled, "pld_epsilon", lambda *a: grids.append(a[-1]) or real(*a))
    one = site(releases=releases, sample=rate)
    multiplier = calibrate([one], Budget(epsilon, delta))[0]
    assert len(grids) <= 100
    assert 0 < multiplier <= calibrate([site(releases=releases)], Budget(epsilon, delta))[0]
    assert spent([one], {0: multiplier}, delta) <= epsilon


def test_sampling_never_costs_more_than_reading_everything():
    for rate, delta in ((0.3, 1e-5), (1 - 1e-9, 1e-5), (0.3, 1e-13), (0.3, 1e-200)):
        for multiplier in (0.01, 3.0, 40.0, 1e6):
            assert 0 <= spent([site(sample=rate)], {0: multiplier}, delta) <= spent([site()], {0: multiplier}, delta)


# --- what makes no sense ------------------------------------------------------------------------------------


def test_all_shares_take_the_whole_budget():
    charges = [site(0, share=0.25), site(1, share=0.25)]
    assert spent(charges, calibrate(charges, Budget(1.0)), 1e-5) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    "senseless",
    [
        lambda: calibrate([], Budget(1.0)),
        lambda: calibrate([site(0, share=0.6), site(1, share=0.6)], Budget(1.0)),
        lambda: calibrate([site(0, share=0.5, sample=0.5), site(1)], Budget(1.0)),
        lambda: calibrate([site(0, share=0.5), site(1, share=0.5), site(2)], Budget(1.0)),
        lambda: calibrate([site(charged=-1.0)], Budget(1.0)),
        lambda: calibrate([site(charged=math.nan)], Budget(1.0)),
        lambda: calibrate([site(clip=1e-38)], Budget(1.0)),
        lambda: calibrate([site(clip=1e38)], Budget(1.0)),
        lambda: calibrate([site(clip=math.inf)], Budget(1.0)),
        lambda: at_multiplier([site()], 0.0),
        lambda: at_multiplier([site()], 1e-170),
        lambda: at_multiplier([site()], math.inf),
        lambda: at_multiplier([site()], "1"),  # type: ignore[arg-type]
        lambda: at_multiplier([site(0, share=0.5), site(1, share=0.5)], 1.0),
        lambda: at_multiplier([site(0, share=0.5), site(1, share=0.5), site(2)], 1.0),
        lambda: at_multiplier([site(0, share=0.5, sample=0.5), site(1)], 1.0),
        lambda: check_std("gradient", 1e-38),
        lambda: check_std("gradient", math.nan),
    ],
)
def test_senseless_input_is_a_clear_error(senseless):
    with pytest.raises(InputError, match=r"expected|nothing|leave|no common"):
        senseless()


def test_no_noise_means_no_guarantee():
    assert spent([site()], {0: 0.0}, 1e-5) == math.inf
    assert spent([site()], {0: 1e-300}, 1e-5) == math.inf


def test_unpaid_sites_have_no_multiplier_and_need_none():
    assert calibrate([site(charged=0.0, clip=math.inf)], Budget(1.0)) == {0: 0.0}
    assert at_multiplier([site(0, charged=0.0, clip=math.inf), site(1)], 2.0) == {0: 0.0, 1: 2.0}
