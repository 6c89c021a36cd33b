"""The best of several private trials: its price against another accountant, and against every attack on small ones."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.gaussian import delta_of
from fedsofim.core.selection import _ORDERS as ORDERS
from fedsofim.core.selection import EveryTrial, NegativeBinomial, Poisson, cheapest, mu_of_trials, ways
from fedsofim.errors import InputError

DELTA = 1e-5


def test_composed_trials_against_another_accountant():
    mu = mu_of_trials(EveryTrial(12), Budget(2.0, DELTA))
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(GaussianDpEvent(1 / mu), 12)
    assert accountant.get_epsilon(DELTA) == pytest.approx(2.0, rel=2e-3)
    assert EveryTrial(12).epsilon(mu, DELTA) <= 2.0


# --- the random number --------------------------------------------------------------------------------------


def generating(way, x):
    """f(x) = E x^K, from the definitions and not from the bound."""
    if isinstance(way, Poisson):
        return np.exp(way.mean * (x - 1))
    g, eta = way.g, way.eta
    if eta == 0:
        return np.log1p(-(1 - g) * x) / math.log(g)
    return ((1 - (1 - g) * x) ** -eta - 1) / (g**-eta - 1)


def best_of(way, trial):
    """The law of the best of K: trials are laws of results from worst to best. The last place is K = 0."""
    upto = np.concatenate([[0.0], np.cumsum(trial)])
    upto[-1] = 1.0
    f = generating(way, upto)
    return np.append(np.diff(f), f[0])


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def cut_gaussians(mu, edges):
    """A trial of a few results: in which interval N(0, 1), or N(mu, 1), falls. A function of a mu-GDP release."""
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    return np.diff(norm.cdf(ends)), np.diff(norm.cdf(ends - mu))


WAYS = [NegativeBinomial(6.0), NegativeBinomial(6.0, 1.0), NegativeBinomial(40.0), NegativeBinomial(5.0, -0.5),
        Poisson(8.0), Poisson(30.0)]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_attack_on_a_small_trial_is_above_the_bound(way):
    """Exact delta(epsilon) of the best of K of many small trials, both ways round: never above what is promised; and
    not for want of trying: it comes within reach, and is far above what one trial costs."""
    worst = 0.0
    for mu, delta in product((0.1, 0.4, 1.0), (1e-3, 1e-6)):
        epsilon = way.epsilon(mu, delta)
        for edges in ([0.0], [1.0], [2.5], [4.0], [-2, 0, 2], np.linspace(-6, 7, 400)):
            p, q = (best_of(way, law) for law in cut_gaussians(mu, np.atleast_1d(edges)))
            for one, other in ((p, q), (q, p)):
                found = hockey_stick(one, other, epsilon)
                assert found <= delta * (1 + 1e-6) + 1e-13
                worst = max(worst, hockey_stick(one, other, 0.6 * epsilon) / delta)
    assert worst > 1  # with 0.6 of that epsilon it would be broken: the bound is no empty one


@pytest.mark.parametrize("mean", [0.3, 8.0])
def test_that_nothing_may_be_drawn_is_part_of_the_divergence(mean):
    """One result more, as likely on both sides: without it, small means had divergences below 0."""
    way, few = Poisson(mean), ORDERS < 20
    for mu in (0.1, 1.0):
        p, q = (best_of(way, law) for law in cut_gaussians(mu, np.linspace(-3, 4, 40)))
        exact = [math.log(np.sum(q * (p / q) ** a)) / (a - 1) for a in ORDERS[few]]
        assert np.all(exact <= way.renyi(mu)[few])


def test_the_number_of_trials_is_no_gift():
    """Charged as a single trial, the best of K is caught."""
    way, mu = NegativeBinomial(24.0), 1.0
    p, q = (best_of(way, law) for law in cut_gaussians(mu, np.linspace(-6, 8, 800)))
    epsilon = 2.0
    assert max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) > 1.2 * delta_of(mu, epsilon)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_draws_have_the_law_that_is_priced(way):
    random = np.random.default_rng(0)
    draws = np.array([way.draw(random) for _ in range(4000)])
    for x in (0.85, 0.95):
        sample = x**draws
        assert abs(sample.mean() - generating(way, x)) < 4.5 * sample.std() / math.sqrt(len(draws)) + 1e-12
    slope = (generating(way, 1.0) - generating(way, 1 - 1e-7)) / 1e-7
    assert slope == pytest.approx(way.mean, rel=1e-3)


# --- which way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials, kind", [(1, EveryTrial), (2, EveryTrial), (4, NegativeBinomial), (8, Poisson),
                                          (100, NegativeBinomial)])  # fmt: skip
def test_the_cheapest_way_is_taken(trials, kind):
    budget = Budget(1.0, DELTA)
    way, mu = cheapest(budget, trials)
    assert type(way) is kind and way.mean == trials
    assert all(mu >= mu_of_trials(other, budget) for other in ways(trials))
    assert 1.0 - 1e-6 < way.epsilon(mu, DELTA) <= 1.0


def test_without_a_budget_there_is_nothing_to_price():
    with pytest.raises(InputError, match="plain tune"):
        cheapest(NO_PRIVACY, 4)
    with pytest.raises(InputError, match="trials"):
        ways(0)
