"""Features standardised by private moments: accurate enough to help, really noisy, and stated in the result."""

import numpy as np
import pytest

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.feature_moments import LABEL, FeatureMoments
from fedsofim.methods.fedgd import fedgd
from fedsofim.simulation.standardizing import standardized
from fedsofim.simulation.training import plan_for, train
from toy import make_toy


@pytest.fixture
def skewed():
    """Features of very different place and size."""
    data = make_toy(sizes=(400, 500, 600))
    shift, stretch = np.array([3, -2, 0, 1, 2], np.float32), np.array([0.5, 1, 0.6, 0.8, 1], np.float32)
    for x in (data.dataset.x_train, data.dataset.x_test):
        x *= stretch
        x += shift
    return data


@pytest.mark.slow
@pytest.mark.parametrize("budget, centre, spread", [(NO_PRIVACY, 1e-3, 1e-3), (Budget(50.0), 0.2, 0.2)])
def test_features_come_out_centred_and_scaled(skewed, budget, centre, spread):
    plan = plan_for(
        skewed, fedgd(lr=0.1), budget, 10, weights="size", standardize=FeatureMoments(share=0.3, radius=8.0)
    )
    x = standardized(plan, skewed, seed=0).dataset.x_train
    assert np.abs(skewed.dataset.x_train.mean(axis=0)).max() > 2  # so that the next line says something
    assert np.abs(x.mean(axis=0)).max() < centre
    np.testing.assert_allclose(x.std(axis=0), 1.0, atol=spread)


@pytest.mark.slow
def test_noise_is_really_added(skewed):
    quiet, noisy, again = (
        standardized(plan_for(skewed, fedgd(lr=0.1), b, 5, standardize=FeatureMoments()), skewed, seed=1).dataset
        for b in (NO_PRIVACY, Budget(1.0), Budget(1.0))
    )
    assert not np.allclose(quiet.x_train, noisy.x_train)
    assert np.array_equal(noisy.x_train, again.x_train)


@pytest.mark.slow
def test_the_result_says_so(skewed):
    run = train(skewed, fedgd(lr=0.1), Budget(5.0), 3, standardize=FeatureMoments())
    summary = run.summary()
    assert "private moments" in summary["standardised"]
    assert [c["what"] for c in summary["ledger"]] == [LABEL, "gradient"]
    assert summary["releases"] == 4
