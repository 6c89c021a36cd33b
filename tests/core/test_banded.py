"""Noise that is taken back later: what it costs, what is really drawn, and where it is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.linalg import toeplitz

from diary import silent
from fedsofim.core.banded import Banded
from fedsofim.core.budget import Budget
from fedsofim.core.mechanisms import Independent, Mischarged, Tree
from fedsofim.core.method import OneGradient, server_method
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.simulation.simulator import keys, simulate, start_parameters
from fedsofim.simulation.training import plan_for
from toy import make_toy

LAYOUTS = [(12, 3), (13, 4), (7, 10), (9, 1)]


def drawn(mechanism: Banded, numbers: int = 20_000) -> np.ndarray:
    """(rounds, numbers): the noise of every round, as it is drawn."""
    rounds = jnp.arange(mechanism.rounds, dtype=jnp.int32)
    return np.asarray(jax.lax.map(lambda t: mechanism.draw(jax.random.key(0), t, (numbers,), jnp.float32), rounds))


def lower(mechanism: Banded) -> np.ndarray:
    """C."""
    column = np.zeros(mechanism.rounds)
    column[: len(mechanism.coefficients)] = mechanism.coefficients
    return np.tril(np.asarray(toeplitz(jnp.asarray(column))))


@pytest.mark.parametrize("rounds, gap", LAYOUTS)
def test_the_cost_is_the_most_that_a_client_asked_every_so_many_rounds_can_move(rounds: int, gap: int):
    """max |C·d|² over who is asked when, over all signs: by the group, as the columns have nothing in common."""
    mechanism = Banded(rounds, gap)
    c, random = lower(mechanism), np.random.default_rng(0)
    worst = 0.0
    for group in range(min(gap, rounds)):
        asked = np.arange(group, rounds, gap)
        for _ in range(20):
            d = np.zeros((rounds, 3))
            d[asked] = random.normal(size=(len(asked), 3))
            d[asked] /= np.linalg.norm(d[asked], axis=1, keepdims=True)
            worst = max(worst, float(np.sum((c @ d) ** 2)))
    assert mechanism.cost(math.ceil(rounds / gap)) == pytest.approx(worst, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rounds, gap", LAYOUTS[:2])
def test_what_is_drawn_has_the_covariance_that_is_priced(rounds: int, gap: int):
    """C·z is white: 20,000 numbers tell each entry of its covariance to 1 %."""
    mechanism = Banded(rounds, gap)
    white = lower(mechanism) @ drawn(mechanism)
    np.testing.assert_allclose(np.cov(white), np.eye(rounds), atol=0.05)


def test_more_bands_than_the_gap_would_not_be_priced_right():
    """The argument needs b <= G: with one band more two of a client's columns overlap, and it moves more."""
    mechanism = Banded(12, 4)
    c = lower(mechanism)
    d = np.zeros(12)
    d[::3] = 1  # a client that is asked every 3 rounds
    assert np.sum((c @ d) ** 2) > 1.01 * np.sum(c[:, ::3] ** 2)
    with pytest.raises(InputError, match="asked every 4 rounds, 3 times"):
        mechanism.cost(4)


@pytest.mark.parametrize("gap, told", [(4, 0.559), (10, 0.429)])
def test_the_noise_that_docs_protection_tells(gap: int, told: float):
    rounds = 80
    banded, often = Banded(rounds, gap), rounds // gap
    assert math.sqrt(banded.cost(often) * banded.spread(rounds) / often) == pytest.approx(told, abs=2e-3)


def test_it_has_less_noise_in_running_sums_than_independent_draws_and_trees_at_one_budget():
    rounds, gap = 40, 4
    often = rounds // gap
    banded = Banded(rounds, gap).cost(often) * Banded(rounds, gap).spread(rounds)
    tree = min(Tree(r, h).cost(often) * Tree(r, h).spread(often) for r in (None, 2, 5) for h in (True, False))
    assert banded < 0.4 * Independent().cost(often) <= 0.4 * tree / 0.9


@pytest.mark.slow
def test_the_simulator_takes_noise_back_over_groups():
    """Records say nothing about the features' rows, so these are the running sum of the noise: of the std priced."""
    rounds, data = 12, silent((5, 6, 7, 8), 2000)
    method = server_method("sum", optax.sgd(1.0), OneGradient(lambda facts: Banded(facts.rounds, facts.groups)))
    plan = plan_for(data, method, Budget(3.0), rounds, participants=1, trust="secure-sum", clip=1.0)
    end = np.asarray(simulate(plan, data)[0] - start_parameters(plan, data, keys(0)[0]))[:-1]
    h = np.cumsum(np.linalg.inv(lower(Banded(rounds, 4)))[:, 0])
    assert np.std(end) == pytest.approx(plan.noise_std * math.sqrt(np.sum(h**2)), rel=0.06)
    assert np.std(end) < 0.7 * plan.noise_std * math.sqrt(rounds)


def test_a_ledger_charges_it_for_the_rounds_in_which_a_client_is_asked():
    plan = plan_for(make_toy((9, 8, 7, 6)), make("ftrl", {"noise": "banded"}), Budget(2.0), 12, participants=1,
                    trust="secure-sum")  # fmt: skip
    (charge,) = plan.ledger
    assert charge.weight == pytest.approx(Banded(12, 4).cost(3)) and charge.releases == 3
    assert plan.epsilon == pytest.approx(2.0)


@pytest.mark.parametrize(
    "how, why",
    [
        ({"participants": 2}, "banded noise under trust 'local'"),
        ({"trust": "secure-sum"}, "banded noise at 1 groups"),
        ({"trust": "secure-sum", "participants": 2, "batch_rate": 0.5}, "samples records under noise laid out"),
    ],
)
def test_where_it_cannot_be_made_or_priced_it_is_refused(how, why):
    with pytest.raises(Refused, match=why):
        plan_for(make_toy((9, 8, 7, 6)), make("ftrl", {"noise": "banded"}), Budget(2.0), 12, **how)


@pytest.mark.parametrize("rounds", [13, 14, 15])
def test_noise_for_another_number_of_rounds_is_refused(rounds: int):
    """A client is asked as often as in the run's 16 rounds, but the matrix that is priced ends sooner: it costs less
    than what the run moves."""
    noise, real = Banded(rounds, 4), Banded(16, 4)
    c = np.asarray(toeplitz(jnp.pad(jnp.asarray(noise.coefficients), (0, 12)), jnp.zeros(16)))
    assert noise.cost(4) < 0.99 * np.sum(c[:, ::4] ** 2) and noise.cost(4) < real.cost(4)
    method = server_method("mine", optax.sgd(1.0), OneGradient(noise))
    with pytest.raises(Refused, match=f"over {rounds} rounds in a run of 16"):
        plan_for(make_toy((9, 8, 7, 6)), method, Budget(2.0), 16, participants=1, trust="secure-sum")


def test_no_wrong_account_is_put_around_it():
    """Nobody would look inside: whether clients take turns, and whether all of them make the noise."""
    method = server_method("mine", optax.sgd(1.0), OneGradient(Mischarged(Banded(48, 4), float)), note="wrong")
    with pytest.raises(InputError, match="no published account"):
        plan_for(make_toy((9, 8, 7, 6)), method, Budget(2.0), 12)


@pytest.mark.parametrize("wrong", [(0, 2), (5, 0), (2.5, 2), (20_000, 2)])
def test_settings_are_checked(wrong):
    with pytest.raises(InputError, match="banded noise"):
        Banded(*wrong)
