"""One contract for all nine methods: the price is right, runs repeat, nothing overflows, any model works."""

import math

import dp_accounting as dpa
import jax
import numpy as np
import pytest
from dp_accounting import pld

from fedsofim.methods import make, presets, registry
from method_helpers import TWO_LEAVES, blobs, final, planned

METHODS = sorted(registry())
UNEQUAL = blobs((1, 20, 7))
K = 5  # local steps the local-step methods take unless told
#: Unit-noise releases of the rounds over T = 11 rounds; the tree over 11 rounds has 11, 5, 2 and 1 nodes.
WORTH = {"fedavg": 11 * K, "scaffold": 11 * K, "adafedprox": 11 * K, "ftrl": 11 + 5 * 4 + 2 * 16 + 1 * 64}


def test_all_nine_are_there():
    nine = "adafedprox fedadam fedavg fedfc fedgd fedsofim fedyogi ftrl scaffold"
    assert nine.split() == METHODS


@pytest.mark.parametrize("name", METHODS)
def test_spends_the_target_by_an_independent_accountant(name: str):
    plan = planned(UNEQUAL, make(name), 1.0, rounds=11)
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    # its replace-one Gaussian moves by 2 where the multiplier is 1, as a sum of vectors of norm 1 does
    main = plan.multipliers[plan.program.charges[0].site]
    worth = WORTH.get(name, 11)
    accountant.compose(dpa.GaussianDpEvent(main / math.sqrt(worth)))
    if name == "fedfc":  # its covariance moves by sqrt(2), once
        assert plan.setup is not None
        accountant.compose(dpa.GaussianDpEvent(plan.multipliers[plan.setup.charges[0].site] * math.sqrt(2)))
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=5e-3)
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9)
    assert plan.releases == {"fedfc": 12, "ftrl": 11}.get(name, worth)
    assert plan.method.note == ""


@pytest.mark.parametrize("name", METHODS)
def test_repeats_by_seed_and_stays_finite_on_two_leaves(name: str):
    method = make(name)
    runs = {
        (epsilon, seed, again): final(UNEQUAL, method, epsilon, seed=seed, model=TWO_LEAVES)
        for epsilon, seed, again in [(0.05, 0, 0), (0.05, 0, 1), (0.05, 1, 0), (1000.0, 0, 0)]
    }
    for params in runs.values():
        assert set(params) == {"w", "b"}
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    first, again, other = (runs[0.05, *k]["w"] for k in ((0, 0), (0, 1), (1, 0)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", METHODS)
def test_one_client_learns(name: str):
    data = blobs((120,))
    theta = np.asarray(final(data, make(name), 1000.0, rounds=40))
    x = data.dataset.x_test
    right = np.argmax(x @ theta[:-1] + theta[-1], axis=1) == data.dataset.y_test
    assert right.mean() > 0.8


@pytest.mark.parametrize("name", METHODS)
def test_presets_are_planned_and_marked(name: str):
    assert "paper-resnet20" in presets(name)
    for preset in presets(name):
        for epsilon in (0.5, 1.0, 5.0, 10.0):
            plan = planned(UNEQUAL, make(name, {"preset": preset}, epsilon), epsilon, rounds=70)
            honest = preset != "as_published"
            assert (plan.method.note == "") == honest
            assert (plan.epsilon == pytest.approx(epsilon, rel=1e-6)) == honest
