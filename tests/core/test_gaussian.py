"""The privacy curve against 60-digit arithmetic."""

import math

import mpmath as mp
import pytest

from fedsofim.core.gaussian import delta_of, epsilon_of, mu_of
from fedsofim.errors import InputError

EPSILONS = (0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0)
DELTAS = (1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 1e-2)


def exact_delta(mu, epsilon):
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_both_ways_to_nine_digits(epsilon, delta):
    with mp.workdps(60):
        mu = mu_of(epsilon, delta)
        root = mp.findroot(lambda u: mp.log(exact_delta(mp.exp(u), epsilon)) - mp.log(mp.mpf(delta)), mp.log(mu))
        assert abs(mu / mp.exp(root) - 1) < 1e-9
        assert abs(delta_of(mu, epsilon) / exact_delta(mu, epsilon) - 1) < 1e-9
        back = mp.findroot(lambda e: mp.log(exact_delta(mu, e)) - mp.log(mp.mpf(delta)), epsilon)
        assert abs(epsilon_of(mu, delta) / back - 1) < 1e-9


def test_large_mu_and_no_mu():
    with mp.workdps(60):
        assert abs(delta_of(30.0, 1.0) / exact_delta(30.0, 1.0) - 1) < 1e-9
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert delta_of(0.0, 1.0) == 0.0


@pytest.mark.parametrize(
    "senseless",
    [
        lambda: mu_of(1.0, 2.0),
        lambda: epsilon_of(math.nan, 1e-5),
        lambda: epsilon_of(-1.0, 1e-5),
        lambda: delta_of(1.0, math.nan),
    ],
)
def test_senseless_input_is_a_clear_error(senseless):
    with pytest.raises(InputError, match="expected"):
        senseless()
