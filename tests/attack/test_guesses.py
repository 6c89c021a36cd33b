"""Guesses in one run: both theorems' bounds stay below the truth, and agree with a public tool's."""

import numpy as np
import pytest

from fedsofim.attack.guesses import Guesses, chance, epsilon_of_guesses, guessed, mu_of_guesses


def attacked(mu: float, canaries: int, part: float, seed: int = 0) -> Guesses:
    """Guesses of the perfect attack on Gaussian noise."""
    random = np.random.default_rng(seed)
    coins = random.choice(np.array([-1, 1]), canaries)
    return guessed(coins * mu / 2 + random.normal(size=canaries), coins, part)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_the_bound_on_mu_stays_below_the_truth_and_above_a_quarter_of_it(mu: float):
    bound = mu_of_guesses(attacked(mu, 5000, part=0.2), risk=0.01)
    assert mu / 4 < bound < mu


def test_pure_dp_without_delta_is_the_binomial_of_randomised_response():
    q = np.exp(1.0) / (1 + np.exp(1.0))
    right = int(q * 1000)
    assert chance(Guesses(1000, 1000, right), 1.0, 0.0) == pytest.approx(0.5, abs=0.03)
    assert chance(Guesses(1000, 1000, right + 60), 1.0, 0.0) < 1e-4
    assert chance(Guesses(1000, 1000, right + 60), 1.0, 1e-3) > 1e-3  # delta explains some of it


def test_blind_guesses_prove_nothing():
    half = Guesses(1000, 1000, 500)
    assert mu_of_guesses(half, 0.01) == 0.0
    assert epsilon_of_guesses(half, 1e-5, 0.01) == 0.0


def test_who_is_not_sure_does_not_guess():
    scores, coins = np.array([5.0, -0.1, 0.1, -4.0]), np.array([1, 1, -1, -1])
    assert guessed(scores, coins, 0.5) == Guesses(canaries=4, made=2, right=2)
    assert guessed(scores, coins, 1.0) == Guesses(canaries=4, made=4, right=2)


def test_bounds_are_those_of_jax_privacy():
    auditing = pytest.importorskip("jax_privacy.auditing")
    from fedsofim.core.gaussian import epsilon_of

    g = attacked(1.5, 800, part=0.25)
    theirs = auditing._epsilon_one_run(0.0, g.canaries, g.made, g.right, 0.05, 1e-5)
    assert epsilon_of_guesses(g, 1e-5, 0.05) == pytest.approx(theirs, rel=1e-4)
    theirs = auditing._epsilon_one_run_fdp(0.0, g.canaries, g.made, g.right, 0.05, 1e-5)
    assert epsilon_of(mu_of_guesses(g, 0.05), 1e-5) == pytest.approx(theirs, rel=1e-2)
