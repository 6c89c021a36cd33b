"""Poisson sampling as it happens in the simulator: who takes part, how often, and independently of what."""

import math
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from diary import diary_plan, nothing, one_hot, read_diary, silent
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.method import OneGradient, server_method
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for

SIZES = (64, 128, 192)  # laid out in blocks of 64: one, two and three of them
BLOCK, RATE = 64, 0.5


def three_releases(door):
    """Two in a scan, one outside it: who took part in each."""

    def step(inner, carry):
        i, seen = carry
        return i + 1, seen.at[i].set(inner.sum(lambda x, y: x, clip=2.0, sample=RATE))

    _, seen = door.scan(step, (jnp.int32(0), jnp.zeros((2, sum(SIZES)), jnp.float32)), 2)
    last = door.sum(lambda x, y: x, clip=2.0, sample=RATE)
    return jnp.concatenate([seen.ravel(), last])


@pytest.fixture(scope="module")
def taken() -> np.ndarray:
    """(releases of two rounds, records): the weight with which each record took part."""
    data, numbers = one_hot(SIZES), 3 * sum(SIZES)
    plan = diary_plan(data, three_releases, NO_PRIVACY, rounds=2, numbers=numbers)
    return read_diary(plan, data)[1:].reshape(6, sum(SIZES))


@pytest.mark.slow
def test_each_record_takes_part_whole_or_not_at_all(taken: np.ndarray):
    np.testing.assert_allclose(taken, np.where(taken > 0, 1 / 3, 0), atol=1e-6)


@pytest.mark.slow
def test_as_many_records_of_every_client_take_part_as_the_rate_says(taken: np.ndarray):
    for part in np.split(taken > 0, np.cumsum(SIZES)[:-1], axis=1):
        spread = math.sqrt(RATE * (1 - RATE) / part.size)
        assert abs(part.mean() - RATE) < 6 * spread


@pytest.mark.slow
def test_who_takes_part_is_drawn_anew_in_every_block_client_step_site_and_round(taken: np.ndarray):
    """36 rows of 64 fair coins: two of them agree in 60 or more places with a chance of 1e-13."""
    coins = (taken > 0).reshape(-1, BLOCK)
    same = (coins[:, None] == coins[None]).sum(axis=2)
    np.fill_diagonal(same, BLOCK // 2)
    assert same.max() < 60 and same.min() > 4


@pytest.mark.slow
def test_pooled_clients_are_sampled_too_and_anew_in_every_round():
    """Row j of the head moves in a round if record j, a unit vector, took part in it."""
    data = one_hot(SIZES)
    method = server_method("gd", optax.sgd(1.0), OneGradient(sample=RATE))
    after = []
    for rounds in (1, 2, 3):
        plan = plan_for(data, method, NO_PRIVACY, rounds)
        assert plan.pooled
        after.append(np.asarray(simulate(plan, data, 3, every=rounds)[0])[:-1])
    coins = np.stack([np.any(b != a, axis=1) for a, b in pairwise(after)])
    assert np.all(np.abs(coins.mean(axis=1) - RATE) < 6 * math.sqrt(RATE * (1 - RATE) / coins.shape[1]))
    assert 100 < (coins[0] == coins[1]).sum() < sum(SIZES) - 100


@pytest.mark.slow
def test_the_noise_on_a_sampled_sum_has_the_size_that_was_asked_for():
    """4000 numbers: the measured std is good to 1.1 %."""
    data, clip, multiplier, noise = silent((5, 7), 4000), 3.0, 1.7, 1.25

    def client(door):
        return door.sum(nothing, clip=clip, noise=noise, sample=RATE) / door.size

    plan = diary_plan(data, client, Budget(1.0), numbers=4000, multiplier=multiplier)
    wanted = noise * multiplier * clip * math.sqrt(sum((0.5 / n) ** 2 for n in data.sizes))
    assert np.std(read_diary(plan, data)[1]) == pytest.approx(wanted, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [2.5])
def test_sampled_releases_with_other_noise_cost_what_that_noise_costs(noise: float):
    """Noise of `noise` times a multiplier is noise of one at `noise` times the multiplier."""

    def priced(size: float, multiplier: float) -> float:
        def client(door):
            return door.sum(nothing, clip=1.0, noise=size, sample=0.2)

        return diary_plan(silent((6,), 2), client, Budget(1.0), 5, numbers=2, multiplier=multiplier).epsilon

    assert priced(noise, 2.0) == pytest.approx(priced(1.0, 2.0 * noise), rel=1e-9)
    assert priced(noise, 2.0) != pytest.approx(priced(1.0, 2.0), rel=0.2)


def test_keys_of_sampling_and_of_noise_have_nothing_in_common():
    """Where a record takes part must not be told by the noise that is released beside it."""
    data, numbers = one_hot((256,)), 256

    def client(door):
        return door.sum(lambda x, y: 1000 * x, clip=2000.0, sample=RATE)

    plan = diary_plan(data, client, Budget(1.0), numbers=numbers, multiplier=5e-4)
    seen = read_diary(plan, data)[1]
    took = seen > 500
    noise = np.where(took, seen - 1000, seen)
    assert abs(np.corrcoef(took, noise)[0, 1]) < 6 / math.sqrt(numbers)
    assert np.std(noise) == pytest.approx(1.0, rel=0.3)


def test_the_key_of_a_run_decides_who_takes_part():
    data = one_hot((64,))
    plan = diary_plan(data, lambda door: door.sum(lambda x, y: x, clip=1.0, sample=RATE), NO_PRIVACY, numbers=64)
    first, again, other = (read_diary(plan, data, seed)[1] > 0 for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert 4 < np.sum(first == other) < 60
