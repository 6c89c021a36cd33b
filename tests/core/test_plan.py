"""A whole run's price before it begins: trust, weights, noise by hand, and runs that make no sense."""

import math

import numpy as np
import pytest

from fedsofim.core.accounting import spent
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import OneGradient, Setup
from fedsofim.core.phase import Phase, SiteKey
from fedsofim.core.preparation import ColumnScales
from fedsofim.core.site import MAX_SITES
from fedsofim.errors import InputError
from fedsofim.methods import make
from method_helpers import blobs, planned
from stranger import priced


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_price_of_trust_and_weights(weights):
    """Local noise adds up over clients; of a secure sum only the largest weight must be hidden."""
    sizes = (10, 100, 1000)
    local = priced(OneGradient(), sizes=sizes, weights=weights)
    secure = priced(OneGradient(), sizes=sizes, weights=weights, trust="secure-sum")
    s = local.sum_std
    assert s == pytest.approx(20 * math.sqrt(10) / Budget(1.0).mu)  # s = 2c·sqrt(R)/mu whatever the weights
    a = [1 / 3 / n for n in sizes] if weights == "uniform" else [1 / sum(sizes)] * 3
    assert local.noise_std == pytest.approx(s * math.sqrt(sum(v * v for v in a)))
    assert secure.noise_std == pytest.approx(s * max(a))
    assert local.epsilon == pytest.approx(secure.epsilon)


def test_local_steps_keep_their_local_noise_under_secure_sum():
    """Noise of other clients does not cover what a client's own next step already used."""

    def client(door, params, state, memory):
        return door.scan(lambda inner, y: y - inner.gradient(y), params, 2), memory

    assert priced(client, trust="secure-sum").noise_std == priced(client).noise_std


def test_a_hand_set_multiplier_gives_epsilon_back():
    calibrated = priced(OneGradient(), budget=Budget(3.0))
    by_hand = priced(OneGradient(), multiplier=calibrated.multipliers[calibrated.ledger[0].site])
    assert by_hand.epsilon == pytest.approx(3.0, rel=1e-9)


def test_without_a_budget_there_is_no_guarantee():
    made = priced(OneGradient(), budget=NO_PRIVACY)
    assert made.epsilon == math.inf and made.noise_std == 0.0


@pytest.mark.parametrize(
    "bad", [{"rounds": 0}, {"clip": 0.0}, {"sizes": ()}, {"sizes": (3, 0)}, {"trust": "blind"}, {"weights": "x"}]
)
def test_senseless_runs(bad):
    with pytest.raises(InputError):
        priced(OneGradient(), **bad)


def test_a_client_that_releases_nothing():
    with pytest.raises(InputError, match="releases nothing"):
        priced(lambda door, params, state, memory: (params, memory))


def test_calibration_covers_the_ledger_exactly():
    made = priced(OneGradient(), rounds=33, budget=Budget(0.7, 1e-6))
    assert spent(made.ledger, made.multipliers, 1e-6) == pytest.approx(0.7, rel=1e-9)


# --- phases -------------------------------------------------------------------------------------------------


COVARIANCE = Setup(
    lambda door, params: door.second_moment(lambda x, y: x, clip=2.0, share=0.2), lambda mean, state: state
)


def every_phase(**more):
    """Two steps of a preparation, a setup and two releases a round: each program numbers its own from 0."""

    def client(door, params, state, memory):
        return door.gradient(params) + door.gradient(params + 1, noise=2.0), memory

    steps = (ColumnScales(share=0.05), FeatureMoments(share=0.1))
    return priced(client, setup=COVARIANCE, preparation=steps, **more)


def test_only_the_rounds_are_repeated():
    assert [phase.times(rounds=70) for phase in Phase] == [1, 1, 1, 70, 0]
    assert [Phase(text) for text in ("scales", "moments", "setup", "round", "evaluation")] == list(Phase)


def test_sites_of_all_phases_have_keys_of_their_own():
    plan = every_phase()
    keys = [charge.site for charge in plan.ledger]
    assert keys == [(Phase.SCALES, 0), (Phase.MOMENTS, 0), (Phase.SETUP, 0), (Phase.ROUND, 0), (Phase.ROUND, 1)]
    assert all(isinstance(key, SiteKey) for key in keys) and set(plan.multipliers) == set(keys)
    assert [charge.releases for charge in plan.ledger] == [1, 1, 1, 10, 10]
    assert list(plan.programs) == [Phase.SCALES, Phase.MOMENTS, Phase.SETUP, Phase.ROUND]


def test_all_phases_together_spend_exactly_the_budget():
    plan = every_phase(budget=Budget(0.7, 1e-6))
    assert plan.epsilon == pytest.approx(0.7, rel=1e-9)
    parts = [charge.mu_squared(plan.multipliers[charge.site]) / (plan.mu or 0) ** 2 for charge in plan.ledger]
    assert parts[:3] == pytest.approx([0.05, 0.1, 0.2]) and sum(parts) == pytest.approx(1.0)
    assert parts[3] == pytest.approx(4 * parts[4])  # twice the noise is a quarter of the price


def test_a_phase_that_a_run_does_not_have_has_no_program():
    assert list(priced(OneGradient()).programs) == [Phase.ROUND]


# --- the noise of each release ------------------------------------------------------------------------------


def unevenly_numbered():
    """A scan takes a number too, so the releases of this program are the sites 0, 2 and 3."""

    def client(door, params, state, memory):
        total = door.gradient(params, clip=3.0)
        total += door.scan(lambda inner, y: y - inner.gradient(y), params, 2)
        return total + door.gradient(params, clip=5.0), memory

    return priced(client)


def test_stds_are_in_the_order_of_the_program_and_by_site_at_its_numbers():
    plan = unevenly_numbered()
    (multiplier,) = set(plan.multipliers.values())
    stds, by_site = plan.stds(Phase.ROUND), plan.stds_by_site(Phase.ROUND)
    assert stds == pytest.approx([3.0 * multiplier, 10.0 * multiplier, 5.0 * multiplier])
    assert by_site.shape == (MAX_SITES,) and by_site.dtype == np.float32
    numbers = [site.number for site in plan.program.sites]
    assert numbers == [0, 2, 3] and np.flatnonzero(by_site).tolist() == numbers
    np.testing.assert_allclose(by_site[numbers], stds, rtol=1e-6)


def test_every_phase_has_stds_of_its_own():
    plan = every_phase()
    for phase, count in ((Phase.SCALES, 1), (Phase.MOMENTS, 1), (Phase.SETUP, 1), (Phase.ROUND, 2)):
        wanted = [plan.multipliers[c.site] * c.clip for c in plan.programs[phase].charges]
        assert plan.stds(phase) == wanted and len(wanted) == count
        assert np.count_nonzero(plan.stds_by_site(phase)) == count


def test_without_privacy_every_std_is_zero():
    plan = every_phase(budget=NO_PRIVACY)
    assert [plan.stds(phase) for phase in plan.programs] == [[0.0], [0.0], [0.0], [0.0, 0.0]]
    assert not any(plan.stds_by_site(phase).any() for phase in plan.programs)


def test_an_unpaid_release_states_its_noise_itself():
    """Of an account that is wrong on purpose: its mechanism says how much noise, in the data's own units."""
    plan = planned(blobs((6, 20)), make("fedfc", {"preset": "as_published"}, 1.0), 1.0)
    assert plan.stds(Phase.SETUP) == [1.0]
    assert plan.epsilon == math.inf
