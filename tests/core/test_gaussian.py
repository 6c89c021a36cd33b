"""The privacy curve against arithmetic with 60 and more digits."""

import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsofim.core import gaussian
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


# all that a budget may be, deltas both small and near 1
epsilons = st.floats(-6, 9).map(lambda e: min(max(10.0**e, gaussian.EPSILONS[0]), gaussian.EPSILONS[1]))
deltas = st.one_of(
    st.floats(-300, -0.01).map(lambda d: max(10.0**d, gaussian.DELTAS[0])),
    st.floats(-9, -0.5).map(lambda d: min(1 - 10.0**d, gaussian.DELTAS[1])),
)
DIGITS = 350  # of delta = 1e-300 these leave 50


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(epsilon=epsilons, delta=deltas)
def test_every_budget_has_its_mu_to_nine_digits(epsilon: float, delta: float):
    mu = mu_of(epsilon, delta)
    with mp.workdps(DIGITS):
        assert exact_delta(mu * (1 - 1e-9), epsilon) < delta < exact_delta(mu * (1 + 1e-9), epsilon)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(mu=st.floats(-9, 7).map(lambda m: 10.0**m), delta=deltas)
def test_every_mu_has_its_epsilon_to_nine_digits(mu: float, delta: float):
    epsilon = epsilon_of(mu, delta)
    with mp.workdps(DIGITS):
        assert exact_delta(mu, epsilon * (1 + 1e-9)) < delta * (1 + 1e-9)
        if epsilon > 0:
            assert exact_delta(mu, epsilon * (1 - 1e-9)) > delta


@settings(deadline=None)
@given(mu=st.floats(0, 1e308), epsilon=st.floats(0, 1e308))
def test_delta_is_a_probability_everywhere(mu: float, epsilon: float):
    assert 0 <= delta_of(mu, epsilon) <= 1


def test_the_ends_of_what_doubles_can_say():
    assert epsilon_of(1e8, 1e-5) == epsilon_of(1e300, 1e-5) == math.inf
    assert epsilon_of(1e-300, 1e-300) == 0.0
    assert delta_of(1e-300, 1.0) == delta_of(5e-324, 1e300) == 0.0
    assert delta_of(1e300, 1.0) == 1.0


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
        lambda: mu_of(1.0, 1e-301),
        lambda: mu_of(1.0, 1 - 1e-10),
        lambda: mu_of(1e-7, 1e-5),
        lambda: mu_of(1e10, 1e-5),
        lambda: mu_of(True, 1e-5),
        lambda: epsilon_of(1.0, 1e-301),
        lambda: epsilon_of(math.nan, 1e-5),
        lambda: epsilon_of(-1.0, 1e-5),
        lambda: delta_of(1.0, math.nan),
    ],
)
def test_senseless_input_is_a_clear_error(senseless):
    with pytest.raises(InputError, match="expected"):
        senseless()
