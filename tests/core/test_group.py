"""From a record to a person with at most k of them: exact where all records are read, never too little where not."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom, norm

from fedsofim.core.accounting import Charge, spent
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.group import epsilon_for_group
from fedsofim.errors import InputError
from fedsofim.methods import make
from method_helpers import blobs, planned

DATA = blobs((1, 20, 7))
MULTIPLIER = 3.0


@pytest.mark.parametrize("name", ["fedgd", "fedfc", "ftrl"])
def test_an_independent_accountant_agrees_on_k_records(name: str):
    """Every release moves k times as far: its noise, over that, is k times smaller."""
    plan, k = planned(DATA, make(name), 0.5, rounds=6), 4
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for charge in plan.ledger:  # its replace-one Gaussian moves by 2 where the multiplier is 1
        unit = 2 * plan.multipliers[charge.site] / k / charge.ratio / math.sqrt(charge.weight)
        accountant.compose(dpa.GaussianDpEvent(unit))
    assert plan.epsilon_for_group(k) == pytest.approx(accountant.get_epsilon(plan.delta), rel=5e-3)
    assert plan.epsilon_for_group(1) == plan.epsilon


def test_k_persons_cost_what_k_records_do_and_nothing_is_promised_without_noise():
    plan = planned(DATA, make("fedgd"), 1.0)
    assert plan.mu is not None
    assert plan.epsilon_for_group(3) > 3 * plan.epsilon  # at the same delta more than three times as much
    assert planned(DATA, make("fedgd"), math.inf).epsilon_for_group(3) == math.inf
    with pytest.raises(InputError, match="records of a person"):
        plan.epsilon_for_group(0)
    assert not NO_PRIVACY.private and Budget(1.0).private


def site(rate: float, releases: int = 1) -> Charge:
    return Charge(site=0, label="g", clip=1.0, ratio=2.0, releases=releases, weight=float(releases), sample=rate)


def true_delta(k: int, rate: float, epsilon: float) -> float:
    """Of one release, k records at +clip against the same k at -clip: (P - e^epsilon·Q)+, integrated."""
    z = np.linspace(-60, 60, 240_001)
    chances, far = binom.pmf(np.arange(k + 1), k, rate), np.arange(k + 1) / MULTIPLIER
    p, q = (sum(c * norm.pdf(z, sign * shift) for c, shift in zip(chances, far, strict=True)) for sign in (1, -1))
    return float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), z))


@pytest.mark.parametrize(("k", "rate"), [(2, 0.1), (5, 0.05), (5, 0.5)])
def test_sampled_records_are_never_priced_too_low(k: int, rate: float):
    delta = 1e-5
    found = epsilon_for_group([site(rate)], {0: MULTIPLIER}, delta, k)
    assert true_delta(k, rate, found) <= delta
    assert true_delta(k, rate, found / (4 * k)) > delta  # and it is no bound out of nowhere


def test_replacing_one_after_another_is_used_where_it_says_more():
    """At a small rate; reading all of them is the better bound where nearly all take part."""
    rare, often = ([site(rate, 10)] for rate in (0.02, 0.9))
    as_if_read = spent([site(1.0, 10)], {0: MULTIPLIER / 3}, 1e-5)
    assert epsilon_for_group(rare, {0: MULTIPLIER}, 1e-5, 3) < 0.5 * as_if_read
    assert epsilon_for_group(often, {0: MULTIPLIER}, 1e-5, 3) == as_if_read
