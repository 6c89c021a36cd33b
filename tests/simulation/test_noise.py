"""The noise of whole runs: of the size the plan says, and fresh in every step, round and client."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.cohort import Carry
from fedsofim.core.method import server_method
from fedsofim.core.models import softmax_head
from fedsofim.core.plan import make_plan
from fedsofim.core.round import ask_each
from fedsofim.simulation.simulator import cohort_of, simulate
from normality import accepts
from stranger import stranger
from toy import make_toy

HEAD = softmax_head()


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "size"])
@pytest.mark.parametrize("trust, apart", [("local", False), ("local", True), ("secure-sum", False)])
def test_noise_of_the_average_is_what_the_plan_says(apart, weights, trust):
    """One round from the same start with and without noise: the difference is -lr·noise of the average."""
    data = make_toy(features=60, classes=12, sizes=(40, 90, 400))
    plan, quiet = (
        make_plan(
            server_method("gd", optax.sgd(1.0)),
            HEAD,
            sizes=data.sizes,
            shape=(60,),
            classes=12,
            budget=b,
            rounds=1,
            trust=trust,
            weights=weights,
        )
        for b in (Budget(1.0), NO_PRIVACY)
    )
    sample = np.concatenate(
        [
            np.ravel(simulate(plan, data, seed, apart=apart)[0] - simulate(quiet, data, seed, apart=apart)[0])
            for seed in range(4)
        ]
    )
    assert accepts(sample, plan.noise_std)
    assert not accepts(sample, plan.noise_std * 2 / 3)
    assert not accepts(sample, plan.noise_std * 3 / 2)


@pytest.mark.slow
def test_noise_differs_in_every_step_round_and_client(toy):
    """Collect the noise of each release of a scan, over clients and rounds: all distinct, none correlated."""

    def client(door, params, state, memory):
        def step(inner, carry):
            total, square = carry
            g = inner.sum(lambda x, y: 0.0 * x, clip=1.0)  # nothing but noise
            return total + g, square + g * g

        zero = jnp.zeros(5, jnp.float32)
        total, square = door.scan(step, (zero, zero), 4)
        return {"total": total, "square": square}, memory

    plan = make_plan(stranger(client), HEAD, sizes=toy.sizes, shape=(5,), classes=3, budget=Budget(1.0), rounds=3)
    clients = cohort_of(plan, toy, jax.random.key(0), pooled=False)
    uploads = [
        ask_each(plan.program, clients, Carry(jnp.zeros((6, 3), jnp.float32), (), ()), jnp.int32(t))[0]
        for t in range(3)
    ]
    totals = np.stack([u["total"] for u in uploads])
    assert len(np.unique(totals)) == totals.size
    # if the four steps shared one draw, total² would be 4 times the sum of squares of each client
    std = plan.sum_std
    spread = np.mean([np.asarray(u["square"]).mean() for u in uploads]) / (4 * std**2)
    assert 0.5 < spread < 1.6
