"""The door: what comes out is the clipped sum plus noise of the right size, fresh for every call."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from fedsofim.core import records
from fedsofim.core.budget import Budget
from fedsofim.core.models import softmax_head
from fedsofim.core.plan import make_plan
from fedsofim.core.door import MAX_SITES, Facts, Door
from fedsofim.core.cohort import Carry
from fedsofim.core.method import Method, server_method
from fedsofim.core.round import ask_each
from fedsofim.errors import InputError, Refused
from fedsofim.simulation.simulator import cohort_of, simulate
from toy import make_toy

HEAD = softmax_head()
FACTS = Facts(rounds=5, clients=1, clip=1.0, noise_std=0.0)


def door_for(x, y, key=0, std=0.0, model=HEAD):
    """A door on concrete records, as a node would hold it."""
    laid = records.pack(np.asarray(x, np.float32), np.asarray(y, np.int32), [np.arange(len(y))])
    laid = jax.tree.map(jnp.asarray, laid)
    stds = jnp.full(MAX_SITES, std, jnp.float32)
    return Door(laid, model, jax.random.key(key), jnp.int32(0), stds, [], jnp.float32(len(y)), jnp.int32(0), FACTS)


X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.arange(30) % 3
THETA = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32)


def test_gradient_is_the_clipped_sum():
    wanted = np.zeros((5, 3))
    for x, y in zip(X, Y, strict=True):
        g = np.asarray(jax.grad(HEAD.loss)(THETA, jnp.asarray(x, jnp.float32), jnp.int32(y)), float)
        wanted += g / max(1.0, float(np.linalg.norm(g)))
    np.testing.assert_allclose(door_for(X, Y).gradient(THETA), wanted, rtol=1e-4, atol=1e-4)


def test_generic_model_gives_the_same():
    generic = HEAD._replace(gradient=None)
    np.testing.assert_allclose(
        door_for(X, Y, model=generic).gradient(THETA), door_for(X, Y).gradient(THETA), rtol=1e-4, atol=1e-5
    )


def test_a_closed_form_is_accepted_only_from_the_library():
    class Mine:
        ratio, wide = 1e-9, True  # claims to be far less sensitive than it is

    cheat = HEAD._replace(gradient=Mine())
    np.testing.assert_allclose(
        door_for(X, Y, model=cheat).gradient(THETA), door_for(X, Y).gradient(THETA), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("model", [HEAD, HEAD._replace(gradient=None)])
def test_a_sweep_gives_what_each_setting_gives_alone(model):
    """The executor's vmap over settings, seven of them: not a multiple of those done side by side."""
    many = jnp.stack([THETA * s for s in range(7)])
    swept = jax.vmap(lambda theta: door_for(X, Y, std=1.0, model=model).gradient(theta))(many)
    alone = [door_for(X, Y, std=1.0, model=model).gradient(theta) for theta in many]
    np.testing.assert_allclose(swept, jnp.stack(alone), rtol=1e-4, atol=1e-4)


def noise_sample(std):
    """The noise on 2,000 coordinates of a sum of zeros."""
    wide = np.zeros((3, 2000))
    return np.asarray(door_for(wide, np.zeros(3), key=7, std=std).sum(lambda x, y: x, clip=1.0))


def accepts(sample, std):
    """A two-sided Kolmogorov-Smirnov test at 1 %: is this noise N(0, std²)?"""
    return stats.kstest(sample / std, "norm").pvalue > 0.01


def test_noise_has_the_stated_size():
    sample = noise_sample(std=3.0)
    assert accepts(sample, 3.0)
    assert not accepts(sample, 3.0 * 2 / 3)
    assert not accepts(sample, 3.0 * 3 / 2)


@pytest.mark.parametrize("weights", ["uniform", "size"])
@pytest.mark.parametrize("trust, pool", [("local", True), ("local", False), ("secure-sum", True)])
def test_noise_of_the_average_is_what_the_plan_says(pool, weights, trust):
    """One round from the same start with and without noise: the difference is -lr·noise of the average."""
    data = make_toy(features=60, classes=12, sizes=(40, 90, 400))
    settled, quiet = (
        plan(
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
        for b in (Budget(1.0), None)
    )
    sample = np.concatenate(
        [
            np.ravel(simulate(settled, data, seed, pool=pool)[0] - simulate(quiet, data, seed, pool=pool)[0])
            for seed in range(4)
        ]
    )
    assert accepts(sample, settled.noise_std)
    assert not accepts(sample, settled.noise_std * 2 / 3)
    assert not accepts(sample, settled.noise_std * 3 / 2)


def test_every_call_has_its_own_noise():
    door = door_for(X, Y, std=1.0)
    first, second = (np.ravel(door.gradient(THETA)) for _ in range(2))
    assert len(np.intersect1d(first, second)) == 0


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

    method = Method("noise", client, lambda mean, state, params, facts: (params, state))
    settled = plan(method, HEAD, sizes=toy.sizes, shape=(5,), classes=3, budget=Budget(1.0), rounds=3)
    clients = federation(settled, toy, jax.random.key(0), pooled=False)
    uploads = [
        ask_each(settled.program, clients, Carry(jnp.zeros((6, 3), jnp.float32), (), ()), jnp.int32(t))[0]
        for t in range(3)
    ]
    totals = np.stack([u["total"] for u in uploads])
    assert len(np.unique(totals)) == totals.size
    # if the four steps shared one draw, total² would be 4 times the sum of squares of each client
    std = settled.sum_std
    spread = np.mean([np.asarray(u["square"]).mean() for u in uploads]) / (4 * std**2)
    assert 0.5 < spread < 1.6


def test_no_key_is_used_twice():
    with jax.debug_key_reuse(True):
        door = door_for(X, Y, std=1.0)
        door.gradient(THETA)
        door.sum(lambda x, y: {"a": x, "b": x}, clip=1.0)
        door.scan(lambda inner, t: t + inner.gradient(t), THETA, 3)


def test_poisson_sampling_keeps_the_stated_share():
    door = door_for(np.ones((4000, 1)), np.zeros(4000))
    kept = door.sum(lambda x, y: x, clip=1.0, sample=0.25)
    assert abs(float(kept[0]) - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75)
    again = door.sum(lambda x, y: x, clip=1.0, sample=0.25)
    assert float(kept[0]) != float(again[0])  # drawn afresh


def test_second_moment_is_symmetric_with_noise_of_the_right_size():
    noisy = door_for(np.zeros((5, 60)), np.zeros(5), std=2.0).second_moment(lambda x, y: x, clip=1.0)
    np.testing.assert_array_equal(noisy, noisy.T)
    off = np.asarray(noisy)[np.triu_indices(60, 1)]
    assert accepts(off, 2.0 / np.sqrt(2))
    assert accepts(np.diag(noisy), 2.0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda d: d.gradient(THETA, clip=0.0),
        lambda d: d.gradient(THETA, clip=float("nan")),
        lambda d: d.gradient(THETA, noise=0.0),
        lambda d: d.gradient(THETA, sample=0.0),
        lambda d: d.gradient(THETA, share=1.0),
        lambda d: d.sum(lambda x, y: y, clip=1.0),
        lambda d: d.second_moment(lambda x, y: {"a": x, "b": x}, clip=1.0),
    ],
)
def test_senseless_requests(ask):
    with pytest.raises(InputError, match=r"expected|needs"):
        ask(door_for(X, Y))


def test_too_many_releases_written_out():
    def client(door, params, state, memory):
        return [door.gradient(params) for _ in range(MAX_SITES + 1)], memory

    method = Method("many", client, lambda mean, state, params, facts: (params, state))
    with pytest.raises(Refused, match=r"use door\.scan"):
        plan(method, HEAD, sizes=(3,), shape=(4,), classes=3, budget=Budget(1.0), rounds=1)
