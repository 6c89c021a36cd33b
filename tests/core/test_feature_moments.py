"""Private standardisation: charged, accurate enough to help, and stated in the result."""

import numpy as np
import pytest

from fedsofim.core.budget import Budget
from fedsofim.core.feature_moments import LABEL, FeatureMoments
from fedsofim.errors import InputError
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


def test_it_is_in_the_ledger_with_its_share(skewed):
    plain = plan_for(skewed, fedgd(lr=0.1), Budget(1.0), 10)
    settled = plan_for(skewed, fedgd(lr=0.1), Budget(1.0), 10, standardize=FeatureMoments(share=0.2))
    moments = settled.charges[0]
    assert (moments.label, moments.releases) == (LABEL, 1)
    assert moments.mu_squared(settled.multipliers[moments.site]) == pytest.approx(0.2 * (settled.mu or 0) ** 2)
    assert settled.epsilon == pytest.approx(1.0, rel=1e-9)
    assert settled.noise_std == pytest.approx(plain.noise_std / np.sqrt(0.8))  # the rounds pay for it


@pytest.mark.parametrize("budget, centre, spread", [(None, 1e-3, 1e-3), (Budget(50.0), 0.2, 0.2)])
def test_features_come_out_centred_and_scaled(skewed, budget, centre, spread):
    settled = plan_for(
        skewed, fedgd(lr=0.1), budget, 10, weights="size", standardize=FeatureMoments(share=0.3, radius=8.0)
    )
    x = standardized(settled, skewed, seed=0).data.x_train
    assert np.abs(skewed.data.x_train.mean(axis=0)).max() > 2  # so that the next line says something
    assert np.abs(x.mean(axis=0)).max() < centre
    np.testing.assert_allclose(x.std(axis=0), 1.0, atol=spread)


def test_noise_is_really_added(skewed):
    quiet, noisy, again = (
        standardized(plan_for(skewed, fedgd(lr=0.1), b, 5, standardize=FeatureMoments()), skewed, seed=1).data.x_train
        for b in (None, Budget(1.0), Budget(1.0))
    )
    assert not np.allclose(quiet, noisy)
    assert np.array_equal(noisy, again)


def test_the_result_says_so(skewed):
    run = train(skewed, fedgd(lr=0.1), Budget(5.0), 3, standardize=FeatureMoments())
    summary = run.summary()
    assert "private moments" in summary["standardised"]
    assert [c["what"] for c in summary["ledger"]] == [LABEL, "gradient"]
    assert summary["releases"] == 4


@pytest.mark.parametrize("bad", [{"share": 0.0}, {"share": 1.0}, {"radius": 0.0}])
def test_senseless(bad):
    with pytest.raises(InputError):
        FeatureMoments(**bad)
