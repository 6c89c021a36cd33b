"""The nine published methods: all there, each at the price worked out by hand, with the paper's settings."""

import math

import dp_accounting as dpa
import pytest
from dp_accounting import pld

from fedsofim import methods
from fedsofim.core.phase import Phase
from fedsofim.methods import PUBLISHED, make, presets
from method_helpers import blobs, planned

UNEQUAL = blobs((1, 20, 7))
K = 5  # local steps the local-step methods take unless told
#: Unit-noise releases of the rounds over T = 11 rounds; the tree over 11 rounds has 11, 5, 2 and 1 nodes.
WORTH = {"fedavg": 11 * K, "scaffold": 11 * K, "adafedprox": 11 * K, "ftrl": 6 + 3 * 4 + 1 * 16 + 1 * 64}


def test_all_nine_are_there():
    nine = "adafedprox fedadam fedavg fedfc fedgd fedsofim fedyogi ftrl scaffold"
    assert tuple(nine.split()) == PUBLISHED
    assert methods.names()[:9] == list(PUBLISHED)  # and strangers come behind


@pytest.mark.parametrize("name", PUBLISHED)
def test_spends_the_target_by_an_independent_accountant(name: str):
    """Counted by hand, not by the ledger."""
    plan = planned(UNEQUAL, make(name), 1.0, rounds=11)
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    # its replace-one Gaussian moves by 2 where the multiplier is 1, as a sum of vectors of norm 1 does
    main = plan.multipliers[plan.program.charges[0].site]
    worth = WORTH.get(name, 11)
    accountant.compose(dpa.GaussianDpEvent(main / math.sqrt(worth)))
    if name == "fedfc":  # its covariance moves by sqrt(2), once
        (covariance,) = plan.programs[Phase.SETUP].charges
        accountant.compose(dpa.GaussianDpEvent(plan.multipliers[covariance.site] * math.sqrt(2)))
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=5e-3)
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9)
    assert plan.releases == {"fedfc": 12, "ftrl": 11}.get(name, worth)
    assert plan.method.note == ""


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_planned_and_marked(name: str):
    assert "paper-resnet20" in presets(name)
    for preset in presets(name):
        for epsilon in (0.5, 1.0, 5.0, 10.0):
            plan = planned(UNEQUAL, make(name, {"preset": preset}, epsilon), epsilon, rounds=70)
            honest = preset != "as_published"
            assert (plan.method.note == "") == honest
            assert (plan.epsilon == pytest.approx(epsilon, rel=1e-6)) == honest
