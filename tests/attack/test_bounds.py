"""What counted guesses prove: bounds that hold as often as they say, and are as tight as a public tool's."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedsofim.attack.bounds import (
    Rates,
    best_threshold,
    bounded,
    epsilon_of_rates,
    estimated,
    mu_of_rates,
    refutes,
    upper_bound,
)
from fedsofim.attack.claims import Claim


def scores(mu: float, pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of a perfect Gaussian attack, in "+" and in "-"."""
    random = np.random.default_rng(seed)
    return random.normal(mu / 2, 1, pairs), random.normal(-mu / 2, 1, pairs)


@pytest.mark.parametrize(("errors", "trials"), [(0, 50), (3, 50), (25, 50), (49, 50), (700, 1000)])
def test_a_clopper_pearson_bound_is_where_so_few_errors_have_just_the_risk(errors: int, trials: int):
    rate = float(upper_bound(errors, trials, 0.01))
    assert binom.cdf(errors, trials, rate) == pytest.approx(0.01, rel=1e-6)


def test_all_errors_bound_nothing():
    assert upper_bound(50, 50, 0.01) == 1.0


def test_the_rates_of_a_gaussian_attack_give_its_mu_back():
    from scipy.stats import norm

    for mu in (0.1, 1.0, 3.0):
        for threshold in (-0.5, 0.0, 1.0):
            alpha, beta = float(norm.sf(threshold + mu / 2)), float(norm.cdf(threshold - mu / 2))
            assert mu_of_rates(Rates(alpha, beta)) == pytest.approx(mu)


def test_blind_guessing_proves_nothing():
    assert mu_of_rates(Rates(0.6, 0.6)) == 0.0
    assert epsilon_of_rates(Rates(0.6, 0.6), 1e-5) == 0.0


def test_epsilon_of_rates_is_that_of_randomised_response():
    keep = 0.75  # tells the truth with probability 3/4: epsilon = log 3
    assert epsilon_of_rates(Rates(1 - keep, 1 - keep), 0.0) == pytest.approx(math.log(3))


@pytest.mark.slow
def test_the_lower_bound_exceeds_the_truth_as_seldom_as_stated():
    """200 attacks at 90 % confidence: more than 40 wrong ones would have probability below 1e-5."""
    wrong = 0
    for seed in range(200):
        plus, minus = scores(1.0, 400, seed)
        place = best_threshold(plus[:100], minus[:100], mu_of_rates, 0.9)
        wrong += mu_of_rates(bounded(plus[100:], minus[100:], place, 0.9)) > 1.0
    assert wrong <= 40


def test_a_claim_is_refuted_by_points_below_its_curve_only():
    claim = Claim(epsilon=1.0, delta=1e-5, mu=1.0)
    beta = float(claim.least_beta(0.3))
    assert refutes(Rates(0.3, beta - 0.01), claim)
    assert not refutes(Rates(0.3, beta + 0.01), claim)
    lines = Claim(epsilon=1.0, delta=0.0, mu=None, lines=((1.0, 0.0),))
    assert refutes(Rates(0.2, 0.2), lines)
    assert not refutes(Rates(0.28, 0.28), lines)


def test_the_estimate_finds_mu_within_its_interval_and_shared_noise_makes_it_sharper():
    plus, minus = scores(1.0, 4000)
    apart = estimated(plus, minus, 0.999)
    shared = estimated(plus, plus - 1.0, 0.999)
    for found in (apart, shared):
        assert found.low < 1.0 < found.high
    assert shared.high - shared.low < 0.6 * (apart.high - apart.low)


def test_noise_that_cannot_be_seen_has_no_finite_mu():
    assert math.isinf(estimated(np.ones(50), -np.ones(50), 0.99).mu)


def test_bounds_are_those_of_jax_privacy():
    auditing = pytest.importorskip("jax_privacy.auditing")
    plus, minus = scores(2.0, 500)
    theirs = auditing.CanaryScoreAuditor(plus, minus).epsilon_clopper_pearson(
        significance=0.05, delta=1e-5, threshold_strategy=auditing.Explicit(0.5)
    )
    rates = bounded(plus, minus, 0.5, 0.95)
    one_way = math.log((1 - 1e-5 - rates.beta) / rates.alpha)  # theirs looks one way only
    assert theirs == pytest.approx(one_way, rel=0.05)
