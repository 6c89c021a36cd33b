"""What people are told of an account: where it is wrong on purpose, and which value of a program is meant."""

import math

import jax
import pytest

from fedsofim.core.audit import output_names
from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.mechanisms import Independent, Mischarged
from fedsofim.core.method import OneGradient
from fedsofim.core.phase import Phase
from fedsofim.core.sampled import Sampled, epsilon_of_sampled
from fedsofim.errors import InputError
from stranger import priced


def test_a_wrong_account_needs_a_note():
    """A method that reproduces a published mistake says so wherever it is listed; without a note nothing is planned."""

    def client(door, params, state, memory):
        return door.gradient(params, noise=Mischarged(Independent(), lambda rounds: 0.5 * rounds)), memory

    with pytest.raises(InputError, match="note"):
        priced(client)


def test_values_of_a_program_are_named_as_its_author_wrote_them():
    structure = jax.tree.structure(({"w": 0, "b": 0}, {"kept": 0}))
    assert output_names(structure) == ["the upload ['b']", "the upload ['w']", "the client memory ['kept']"]
    assert output_names(jax.tree.structure((0, 0))) == ["the upload", "the client memory"]


@pytest.mark.parametrize("returned", [lambda x: (), lambda x: (x, x), lambda x: x[None]], ids=["none", "two", "matrix"])
def test_a_second_moment_is_of_one_vector(returned):
    def client(door, params, state, memory):
        return door.second_moment(lambda x, y: returned(x), clip=1.0), memory

    with pytest.raises(InputError, match="vector"):
        priced(client)


@pytest.mark.parametrize("clip", [0.5, 10.0])
def test_the_papers_multiplier_is_in_units_of_the_clip(clip: float):
    """sqrt(n) times a client's noise over the clip; where noise is shared, times its share."""
    plan = priced(OneGradient(), clip=clip)
    (multiplier,) = plan.multipliers.values()
    assert plan.sigma_g == pytest.approx(math.sqrt(2) * multiplier, rel=1e-12)
    shared = priced(OneGradient(), clip=clip, trust="secure-sum", sizes=(8, 8))
    assert shared.sigma_g == pytest.approx(multiplier, rel=1e-12)


def test_all_phases_but_the_rounds_happen_once():
    assert {phase: phase.times(70, 7) for phase in Phase} == (
        dict.fromkeys(Phase, 1) | {Phase.ROUND: 70, Phase.EVALUATION: 7}
    )


@pytest.mark.parametrize("large, delta", [(150.0, 1e-5), (2.0, 1e-12)], ids=["losses too far up", "delta too small"])
def test_where_sampling_is_not_looked_at_it_costs_what_reading_all_records_costs(large: float, delta: float):
    """Every release once for each time it happens, and whatever else was released beside them."""
    sampled = [Sampled(large, 0.5, 3), Sampled(0.5 * large, 0.1, 2)]
    wanted = math.sqrt(0.7**2 + 3 * large**2 + 2 * (0.5 * large) ** 2)
    assert epsilon_of_sampled(0.7, sampled, delta) == pytest.approx(epsilon_of(wanted, delta), rel=1e-12)
