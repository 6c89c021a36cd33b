"""Budgets of each client's own: read as people write them, and priced client by client, against another accountant."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.optimize import minimize

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.budgets import Budgets, read_epsilons
from fedsofim.core.each_client import hidden_by
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.plan import make_plan
from fedsofim.core.summary import privacy_summary, spent_in_words
from fedsofim.core.weights import weights_of
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make

SIZES = (30, 40, 11, 150)
UNEQUAL = Budgets([Budget(0.1, 1e-5), Budget(1, 1e-6), Budget(1, 1e-5), Budget(5, 1e-5)])


def plan(name="fedgd", budget: Budget | Budgets = UNEQUAL, **how):
    return make_plan(make(name), softmax_head(), sizes=SIZES, shape=(5,), classes=3, budget=budget, rounds=6, **how)


# --- as people write them -----------------------------------------------------------------------------------


def test_short_form():
    found = read_epsilons("0.5, 1x2, rest", "5", 1e-6, clients=5)
    assert found == Budgets.of([0.5, 1, 1, 5, 5], 1e-6)
    assert read_epsilons("2x3", None, 1e-5, clients=3) == Budget(2.0, 1e-5)  # equal budgets are one


@pytest.mark.parametrize("text, said", [
    ("0.5,1", "for 2 clients, and there are 3"),
    ("0.5x4", "for 4 clients"),
    ("rest,1", "epsilon is 'rest'"),
    ("0.5xtwo", "no epsilon for so many clients"),
    ("no-privacy,rest", "budget of client 0 is NO_PRIVACY"),
    ("", "epsilon is ''"),
])  # fmt: skip
def test_what_makes_no_sense_is_said(text, said):
    with pytest.raises(InputError, match=said):
        read_epsilons(text, "5", 1e-5, clients=3)


def test_a_run_without_noise_for_some_is_refused():
    with pytest.raises(InputError, match="client 1 is NO_PRIVACY"):
        Budgets([Budget(1), NO_PRIVACY])
    with pytest.raises(InputError, match="budgets for 2 clients, and 4 clients"):
        plan(budget=Budgets.of([1, 2]))
    with pytest.raises(InputError, match="one noise multiplier"):
        plan(multiplier=3.0)
    with pytest.raises(Refused, match="wrong account"):
        make_plan(make("ftrl", {"preset": "as_published"}, 1.0), softmax_head(), sizes=SIZES, shape=(5,), classes=3,
                  budget=UNEQUAL, rounds=70)  # fmt: skip


def test_what_is_not_priced_for_unequal_budgets_is_refused():
    with pytest.raises(Refused, match="what each then spends is not priced"):
        plan(trust="secure-sum", client_rate=0.5)


def test_equal_budgets_are_the_plan_they_were():
    same, one = plan(budget=Budgets.of([2, 2, 2, 2])), plan(budget=Budget(2.0))
    assert same.budget == one.budget and same.multipliers == one.multipliers and not same.each
    assert same.epsilons == (one.epsilon,) * 4


# --- prices -------------------------------------------------------------------------------------------------


def independent(charges, multipliers, delta):
    """Epsilon by dp-accounting's privacy loss distributions, replace-one: noise over what a record moves."""
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4)
    for c, m in zip(charges, multipliers, strict=True):
        # its events are of sums that a record moves by 1 where it is added; replaced, by 2
        accountant.compose(SelfComposedDpEvent(GaussianDpEvent(2 * m / c.ratio), c.releases))
    return accountant.get_epsilon(delta)


@pytest.mark.slow
@pytest.mark.parametrize("how", [
    {"preparation": (FeatureMoments(0.1),)},
    {"trust": "secure-sum", "weights": "uniform"},
    {"trust": "secure-sum", "weights": "quiet", "preparation": (FeatureMoments(0.1),)},
])  # fmt: skip
def test_each_clients_price_is_that_of_another_accountant(how):
    p = plan(**how)
    hidden = hidden_by(p)
    for i, budget in enumerate(UNEQUAL.each):
        found = independent(p.ledger, [hidden[c.site][i] for c in p.ledger], budget.delta)
        assert p.epsilons[i] == pytest.approx(found, rel=2e-3)
        assert p.epsilons[i] <= budget.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("name", ["fedgd", "fedavg", "scaffold", "fedfc", "ftrl", "fedsofim"])
def test_local_clients_spend_exactly_their_own(name):
    p = plan(name)
    assert p.epsilons == pytest.approx([b.epsilon for b in UNEQUAL.each], rel=1e-9)
    assert (p.epsilon, p.delta) == (p.epsilons[3], 1e-5)
    each = [make_plan(make(name), softmax_head(), sizes=SIZES, shape=(5,), classes=3, budget=b, rounds=6)
            for b in UNEQUAL.each]  # fmt: skip
    for phase in p.programs:
        for i, alone in enumerate(each):
            assert p.stds(phase, i) == alone.stds(phase)  # as if all had its budget


def test_sampled_records_too():
    p = plan(batch_rate=0.2)
    assert p.mu is None or p.batch_rate < 1
    assert all(0.9 * b.epsilon < e <= b.epsilon * (1 + 1e-6) for e, b in zip(p.epsilons, UNEQUAL.each, strict=True))


def test_under_secure_sum_one_noise_hides_all():
    """Σ a_i·S_i has noise S; a record of client i moves it by 2c·a_i. No client spends more than its budget, and who
    binds spends all of it."""
    for weights in ("uniform", "size", "quiet"):
        p = plan(trust="secure-sum", weights=weights)
        total = p.noise_std  # of the mean
        multipliers = total / p.factors / p.clip
        np.testing.assert_allclose(hidden_by(p)[p.ledger[0].site], multipliers, rtol=1e-9)
        spent = [math.isclose(e, b.epsilon, rel_tol=1e-6) for e, b in zip(p.epsilons, UNEQUAL.each, strict=True)]
        assert all(spent) if weights == "quiet" else any(spent)


def test_local_steps_under_secure_sum_are_each_their_own():
    p = plan("fedavg", trust="secure-sum")  # several releases a round: no one sum, so no shared noise
    assert p.epsilons == pytest.approx([b.epsilon for b in UNEQUAL.each], rel=1e-9)


def test_what_is_printed_names_every_client():
    p = plan()
    summary = privacy_summary(p)
    assert [c["epsilon"] for c in summary["each_client"]] == list(p.epsilons)
    assert [c["delta"] for c in summary["each_client"]] == [1e-5, 1e-6, 1e-5, 1e-5]
    assert [line["multiplier"] for line in summary["ledger"]] == [None] and summary["sigma_g"] is None
    assert spent_in_words(p) == (
        "each client its own: epsilon 1 (1 client) at delta 1e-06; epsilon 0.1 (1 client), 1 (1 client), 5 (1 client) "
        "at delta 1e-05"
    )
    assert spent_in_words(p) in p._repr_html_() and "each client its own" in repr(p)


# --- weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_quiet_weights_are_a_numerical_minimisers(shared):
    sizes, stds = np.array([30.0, 40, 11, 150, 60]), np.array([20.0, 3, 4, 1, 2])

    def noise(x):
        a = np.exp(x) / np.exp(x).sum() / sizes
        if shared:
            return float(np.log(np.max(a * stds)))
        return float(np.log(np.sum((a * stds) ** 2)))

    found = weights_of("quiet", sizes, stds, shared)
    starts = [np.zeros(5), np.random.default_rng(0).normal(size=5)]
    how = {"method": "Nelder-Mead", "options": {"maxiter": 20_000, "maxfev": 20_000, "xatol": 1e-9, "fatol": 1e-12}}
    best = min((minimize(noise, s, **how) for s in starts), key=lambda r: r.fun)
    assert noise(np.log(found)) <= best.fun + 1e-9
    if not shared:
        np.testing.assert_allclose(np.exp(best.x) / np.exp(best.x).sum(), found, rtol=1e-3)
    for i in range(5):  # and it is a minimum in every direction
        for step in (1e-2, -1e-2):
            assert noise(np.log(found) + step * np.eye(5)[i]) > noise(np.log(found))


@pytest.mark.parametrize("trust", ["local", "secure-sum"])
def test_quiet_is_the_quietest_of_the_three(trust):
    noise = {w: plan(trust=trust, weights=w).noise_std for w in ("uniform", "size", "quiet")}
    assert noise["quiet"] < 0.2 * noise["size"] < 0.2 * noise["uniform"]
    plain = plan(budget=NO_PRIVACY, weights="quiet", trust=trust).client_weights
    np.testing.assert_allclose(plain, plan(budget=Budget(1.0), weights="quiet", trust=trust).client_weights)


def test_noise_of_the_mean_follows_from_each_clients():
    for name in ("fedgd", "fedavg"):
        p = plan(name, preparation=(FeatureMoments(0.1),))
        for phase in (Phase.MOMENTS, Phase.ROUND):
            own = np.array([p.stds(phase, i)[0] for i in range(4)])
            assert p.mean_std(phase) == pytest.approx(np.sqrt(np.sum((p.factors * own) ** 2)))
