"""Noise of whole runs, compared piece by piece: of the right size in every phase, and never the same twice."""

import math
from itertools import combinations

import jax.numpy as jnp
import numpy as np
import pytest

from diary import diary_plan, nothing, read_diary, silent
from fedsofim.core.budget import Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.mechanisms import Independent, Mechanism, Tree
from fedsofim.core.phase import Phase
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split
from fedsofim.methods import make
from fedsofim.simulation import sweep
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.simulator import ask_once, keys, start_parameters
from fedsofim.simulation.training import train

MANY = 3000


def unrelated(pieces: list[np.ndarray]) -> bool:
    """No two pieces of noise are correlated; by chance at 7 standard errors never."""
    bound = 7 / math.sqrt(len(pieces[0]))
    return all(abs(np.corrcoef(a, b)[0, 1]) < bound for a, b in combinations(pieces, 2))


# --- leaves, sites, steps -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("noise", [Independent(), Tree()], ids=lambda m: type(m).__name__)
def test_leaves_of_one_release_have_noise_of_their_own(noise: Mechanism):
    def client(door):
        leaves = door.sum(lambda x, y: [0 * x, 0 * x, 0 * x], clip=1.0, noise=noise)
        return jnp.concatenate(leaves)

    data = silent((3, 4), MANY)
    rounds = read_diary(diary_plan(data, client, Budget(1.0), rounds=2, numbers=3 * MANY), data)[1:]
    pieces = list(rounds.reshape(-1, MANY))
    if isinstance(noise, Tree):  # what a tree draws in round 2 takes back the noise of round 1, by design
        pieces = pieces[:3]
    assert unrelated(pieces)


@pytest.mark.slow
def test_sites_and_steps_of_one_program_have_noise_of_their_own():
    def client(door):
        def step(inner, carry):
            i, seen = carry
            return i + 1, seen.at[i].set(inner.sum(nothing, clip=1.0))

        _, seen = door.scan(step, (jnp.int32(0), jnp.zeros((3, MANY), jnp.float32)), 3)
        return jnp.concatenate([seen.ravel(), door.sum(nothing, clip=1.0), door.sum(nothing, clip=1.0)])

    data = silent((3, 4), MANY)
    rounds = read_diary(diary_plan(data, client, Budget(1.0), rounds=2, numbers=5 * MANY), data)[1:]
    assert unrelated(list(rounds.reshape(-1, MANY)))


# --- one-shot phases ----------------------------------------------------------------------------------------


def pair(door):
    """Two leaves, like the feature moments, so that equal keys would give equal noise."""
    leaves = door.sum(lambda x, y: {"first": 0 * x, "second": 0 * x}, clip=2.0, share=None)
    return jnp.concatenate([leaves["first"], leaves["second"]]) / door.size


def paid_pair(door):
    leaves = door.sum(lambda x, y: {"first": 0 * x, "second": 0 * x}, clip=2.0, share=0.3)
    return jnp.concatenate([leaves["first"], leaves["second"]]) / door.size


@pytest.mark.slow
def test_noise_of_moments_setup_and_rounds_is_unrelated():
    """Silent records: the standardised ones are -m/s, whose signs are those of the moments' noise."""
    data = silent((3, 4), MANY)
    plan = diary_plan(
        data, pair, Budget(1.0), rounds=3, numbers=2 * MANY, setup=paid_pair, preparation=(FeatureMoments(),)
    )
    moments = -np.sign(prepare(plan, data, seed=0)[0].dataset.x_train[0].astype(np.float64))
    diary = read_diary(plan, data)
    assert unrelated([moments, *(np.sign(row[:MANY]) for row in diary)])
    assert unrelated(list(diary))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 4, 9)], ids=str)
def test_noise_of_a_setup_has_the_size_that_was_priced(sizes: tuple[int, ...]):
    """20,000 numbers: the measured std is good to 0.5 %."""

    def setup(door):
        return door.sum(nothing, clip=2.0, share=0.3, noise=0.7) / door.size

    data = silent(sizes, 20_000)
    plan = diary_plan(data, lambda door: door.sum(nothing, clip=2.0), Budget(1.0), numbers=20_000, setup=setup)
    paid, rest = plan.ledger
    assert paid.mu_squared(plan.multipliers[paid.site]) == pytest.approx(0.3 * (plan.mu or 0) ** 2, rel=1e-9)
    std = 0.7 * 2.0 * plan.multipliers[paid.site]
    diary = read_diary(plan, data)
    assert np.std(diary[0]) == pytest.approx(std * math.sqrt(sum((1 / len(sizes) / n) ** 2 for n in sizes)), rel=0.03)
    common = 2.0 * plan.multipliers[rest.site] / math.sqrt(len(sizes))
    assert np.std(diary[1]) == pytest.approx(common, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 4, 9)], ids=str)
def test_noise_of_the_feature_moments_has_the_size_that_was_priced(sizes: tuple[int, ...]):
    data, how = silent(sizes, 20_000), FeatureMoments(share=0.2, radius=2.0)
    plan = diary_plan(data, lambda door: door.sum(nothing, clip=1.0), Budget(3.0), numbers=20_000, preparation=(how,))
    paid = plan.ledger[0]
    assert paid.mu_squared(plan.multipliers[paid.site]) == pytest.approx(0.2 * (plan.mu or 0) ** 2, rel=1e-9)
    std = plan.multipliers[paid.site] * paid.clip * math.sqrt(sum((1 / len(sizes) / n) ** 2 for n in sizes))
    init, noise = keys(3)
    released = ask_once(plan, Phase.MOMENTS, data, start_parameters(plan, data, init), noise)
    assert set(released) == {"first", "second"}
    for leaf in released.values():
        assert np.std(np.asarray(leaf)) == pytest.approx(std, rel=0.03)


# --- seeds --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_seeds_of_a_run_have_noise_of_their_own():
    data = silent((3, 4), MANY)
    plan = diary_plan(data, lambda door: door.sum(nothing, clip=1.0), Budget(1.0), rounds=2, numbers=MANY)
    assert unrelated([row for seed in (0, 1, 7) for row in read_diary(plan, data, seed)[1:]])


@pytest.fixture(scope="module")
def noisy_task() -> Split:
    """Too little budget to learn anything: how well a run ends is what its noise made of it, anything at all."""
    random = np.random.default_rng(0)
    x = random.normal(size=(800, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    return split(Dataset.of("noise", x_train=x[:200], y_train=y[:200], x_test=x, y_test=y), 2, seed=1, iid=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedgd", "fedavg", "fedfc"])  # pooled, local steps, a one-shot release
def test_every_seed_of_a_sweep_is_the_run_of_that_seed(name: str, noisy_task: Split):
    settings = {"client_lr": 2.0, "local_steps": 2} if name == "fedavg" else {"lr": 2.0}
    seeds, budget = (0, 1, 2, 3), Budget(0.1)
    swept = sweep.scores(noisy_task, name, [settings], budget, 2, seeds=seeds)[0]
    alone = [
        train(noisy_task, make(name, settings), budget, 2, recipe="paper", seed=seed, every=2).accuracy
        for seed in seeds
    ]
    np.testing.assert_allclose(swept, alone, atol=0.3)
    assert np.ptp(alone) > 5
