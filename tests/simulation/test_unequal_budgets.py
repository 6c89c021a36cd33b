"""Clients with budgets of their own in a simulated run: each draws its own noise, neither less nor more."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedsofim as fs
from fedsofim.core.budget import NO_PRIVACY
from fedsofim.core.budgets import Budgets
from fedsofim.core.cohort import Carry
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import server_method
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.plan import make_plan
from fedsofim.core.round import ask_each
from fedsofim.simulation.simulator import ask_once, cohort_of, keys, simulate
from normality import accepts
from stranger import stranger
from toy import make_toy

HEAD = softmax_head()
OWN = Budgets.of([0.3, 5, 1])


def wide(**how):
    data = make_toy(features=60, classes=12, sizes=(40, 90, 400))
    given = {"shape": (60,), "classes": 12, "rounds": 1, "weights": "size", **how}
    return data, [
        make_plan(server_method("gd", optax.sgd(1.0)), HEAD, sizes=data.sizes, budget=b, **given)
        for b in (OWN, NO_PRIVACY)
    ]


def only_noise(door, params, state, memory):
    """Uploads nothing but noise: of a sum of zeros, over two local steps."""

    def step(inner, carry):
        return carry + inner.sum(lambda x, y: 0.0 * x, clip=1.0)

    return door.scan(step, jnp.zeros(60, jnp.float32), 2), memory


def both_ways(sample: np.ndarray, std: float) -> bool:
    """It is noise of this std; noise of two thirds of it, or of three halves, would be noticed."""
    return accepts(sample, std) and not accepts(sample, std * 2 / 3) and not accepts(sample, std * 3 / 2)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [None, 2])
def test_every_client_draws_its_own_noise(groups):
    """Local steps, all clients in a round or in turn: the uploads of each client have its own std."""
    data = wide()[0]
    plan = make_plan(stranger(only_noise), HEAD, sizes=data.sizes, shape=(60,), classes=12, budget=OWN, rounds=2,
                     participants=groups)  # fmt: skip
    cohort = cohort_of(plan, data, jax.random.key(3), pooled=False)
    here = cohort if groups is None else cohort.group(1, made_by_all=False)
    clients = plan.members[0 if groups is None else 1]
    for place, i in enumerate(clients):
        alone = jnp.zeros(len(here.sizes), jnp.float32).at[place].set(1.0)
        one = jax.tree_util.Partial(ask_each)
        draws = [
            np.asarray(one(plan.program, _weighing(here, alone), Carry(jnp.zeros((61, 12)), (), ()), jnp.int32(t))[0])
            for t in range(12)
        ]
        assert both_ways(np.concatenate(draws), plan.stds(Phase.ROUND, int(i))[0] * np.sqrt(2))


def _weighing(cohort, weights):
    from dataclasses import replace

    return replace(cohort, weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize("trust, apart", [("local", False), ("local", True), ("secure-sum", False)])
@pytest.mark.parametrize("weights", ["size", "quiet"])
def test_noise_of_the_average_is_what_the_plan_says(trust, apart, weights):
    """Asked apart and in one call the same: -lr·noise of the average, of the std that the plan states."""
    data, (plan, _) = wide(trust=trust, weights=weights)
    quiet = np.asarray(_noiseless(plan, data, apart))
    sample = np.concatenate([np.ravel(simulate(plan, data, s, apart=apart)[0] - quiet[s]) for s in range(3)])
    assert both_ways(sample, plan.noise_std)


def _noiseless(plan, data, apart):
    """The same weights without noise: the plan's own, with stds of zero."""
    from dataclasses import replace

    still = replace(plan, multipliers={k: 1e-12 * v for k, v in plan.multipliers.items()},
                    each=tuple({k: 1e-12 * v for k, v in m.items()} for m in plan.each))  # fmt: skip
    np.testing.assert_allclose(still.client_weights, plan.client_weights)
    return [simulate(still, data, s, apart=apart)[0] for s in range(3)]


@pytest.mark.parametrize("trust", ["local", "secure-sum"])
def test_a_preparation_has_each_clients_noise_too(trust):
    data, (plan, quiet) = wide(trust=trust, preparation=(FeatureMoments(0.2),))
    params, gaps = jnp.zeros((61, 12), jnp.float32), []
    still = jax.tree.leaves(ask_once(quiet, Phase.MOMENTS, data, params, keys(0)[1]))
    for seed in range(8):
        noisy = jax.tree.leaves(ask_once(plan, Phase.MOMENTS, data, params, keys(seed)[1]))
        gaps += [np.ravel(np.asarray(a) - np.asarray(b)) for a, b in zip(noisy, still, strict=True)]
    assert both_ways(np.concatenate(gaps), plan.mean_std(Phase.MOMENTS))


@pytest.mark.slow
def test_train_says_each_clients_epsilon(tmp_path):
    data = make_toy(sizes=(30, 40, 50))
    run = fs.train(data, budget=fs.Budgets.of([0.5, 2, 8]), rounds=3, weights="quiet")
    assert run.plan.epsilons == pytest.approx([0.5, 2, 8])
    run.save(tmp_path)
    told = run.summary()
    assert [c["epsilon"] for c in told["each_client"]] == pytest.approx([0.5, 2, 8])
    text = run.model.card
    assert "each client its own: epsilon 0.5 (1 client), 2 (1 client), 8 (1 client) at delta 1e-05" in text
    assert "each client its own" in str(run) and "each client its own" in run._repr_html_()
    mixed = fs.train(data, fs.fedavg(local_steps=2), fs.Budgets.of([0.5, 2, 8]), 3, recipe="paper")
    assert np.isfinite(mixed.accuracy)
