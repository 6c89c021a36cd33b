"""What a site is charged, for every mechanism: its releases, their cost over the run, and what a wrong account says."""

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from audited import ROUNDS, audited
from fedsofim.core.accounting import Charge, at_multiplier, mu_spent
from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Mischarged, Tree
from fedsofim.errors import InputError
from node_programs import prepared, values

NOISES: list[Mechanism] = [Independent(), Independent(0.5), Diagonal(ROUNDS), Tree(), Tree(restart=2)]


def charges(noise: Mechanism, steps: tuple[int, ...] = (), **more) -> tuple[Charge, ...]:
    """Of a client with one release inside scans of so many steps."""

    def inside(door, theta, left):
        if not left:
            return theta - door.gradient(theta, noise=noise, **more)
        return door.scan(lambda inner, t: inside(inner, t, left[1:]), theta, left[0])

    return audited(lambda door, params, state, memory: (inside(door, params, steps), memory)).charges


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("steps, times", [((), 1), ((4,), 4), ((2, 3), 6)])
def test_a_site_costs_its_mechanism_as_often_as_it_happens(noise: Mechanism, steps: tuple[int, ...], times: int):
    (charge,) = charges(noise, steps)
    assert charge.releases == times * ROUNDS
    assert charge.weight == pytest.approx(times * noise.cost(ROUNDS), rel=1e-12)
    assert (charge.ratio, charge.clip, charge.sample, charge.share, charge.charged) == (2.0, 1.0, 1.0, None, None)


def test_a_charge_says_how_the_release_was_asked_for():
    (charge,) = charges(Independent(), clip=0.25, sample=0.5)
    assert (charge.clip, charge.sample, charge.releases) == (0.25, 0.5, ROUNDS)
    (charge,) = charges(Independent(), share=0.125)
    assert charge.share == 0.125


def test_a_wrong_account_changes_what_is_charged_and_never_the_cost():
    wrong = Mischarged(Tree(), lambda rounds: 0.5 * rounds)
    (charge,) = charges(wrong, (3,))
    assert charge.weight == pytest.approx(3 * Tree().cost(ROUNDS), rel=1e-12)
    assert charge.charged == pytest.approx(3 * 0.5 * ROUNDS)


def test_a_share_is_kept_when_the_common_noise_is_set_by_hand():
    """The site with the share gets that part of the whole mu², whatever the others' multiplier is."""
    plain = Charge(site=0, label="a", clip=1.0, ratio=2.0, releases=4, weight=4.0)
    held = Charge(site=1, label="b", clip=2.0, ratio=1.5, releases=1, weight=3.0, share=0.3)
    found = at_multiplier([plain, held], 7.0)
    assert found[0] == 7.0
    assert held.mu_squared(found[1]) == pytest.approx(0.3 * mu_spent([plain, held], found) ** 2, rel=1e-12)


@pytest.mark.parametrize("rounds", [ROUNDS - 1, ROUNDS + 1])
def test_a_schedule_is_for_its_number_of_rounds_and_no_other(rounds: int):
    with pytest.raises(InputError, match="schedule is for"):
        Diagonal(ROUNDS).cost(rounds)
    with pytest.raises(InputError, match="schedule is for"):
        charges(Diagonal(rounds))


def test_every_site_of_one_client_has_its_own_std():
    """The program run for a single client, not mapped over many."""
    many = 3000
    program, inputs = prepared(lambda door: [door.sum(values), door.sum(values)], np.zeros((4, many)))
    stds = jnp.zeros_like(inputs.stds).at[:2].set(jnp.array([2.0, 50.0], inputs.stds.dtype))
    first, second = program(replace(inputs, stds=stds))[0]
    assert np.std(np.asarray(first)) == pytest.approx(2.0, rel=0.08)
    assert np.std(np.asarray(second)) == pytest.approx(50.0, rel=0.08)


def test_a_release_without_noise_costs_everything():
    plain = Charge(site=0, label="a", clip=1.0, ratio=2.0, releases=4, weight=4.0)
    assert plain.mu_squared(0.0) == plain.mu_squared(-1.0) == mu_spent([plain], {0: 0.0}) == math.inf
    assert plain.mu_squared(2.0) == 4.0
