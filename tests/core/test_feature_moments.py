"""The price of private standardisation."""

import numpy as np
import pytest

from fedsofim.core.feature_moments import LABEL, FeatureMoments
from fedsofim.core.method import OneGradient
from fedsofim.errors import InputError
from stranger import priced


def test_it_is_in_the_ledger_with_its_share():
    plain = priced(OneGradient())
    plan = priced(OneGradient(), preparation=(FeatureMoments(share=0.2),))
    moments = plan.ledger[0]
    assert (moments.label, moments.releases) == (LABEL, 1)
    assert moments.mu_squared(plan.multipliers[moments.site]) == pytest.approx(0.2 * (plan.mu or 0) ** 2)
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9)
    assert plan.noise_std == pytest.approx(plain.noise_std / np.sqrt(0.8))  # the rounds pay for it


@pytest.mark.parametrize("bad", [{"share": 0.0}, {"share": 1.0}, {"radius": 0.0}])
def test_senseless(bad):
    with pytest.raises(InputError):
        FeatureMoments(**bad)
