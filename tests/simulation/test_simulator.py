"""The simulator against a loop anyone can read, and against itself."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.clipping import guarded
from fedsofim.core.models import Model, softmax_head
from fedsofim.methods.fedgd import fedgd
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.progress import Progress
from fedsofim.simulation import simulator
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for, train
from toy import make_toy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import plain_loop

SOFIM: dict[str, Any] = {"lr": 0.8, "rho": 0.5, "beta": 0.9}


def reference(data, method, rounds, std, seed):
    """The plain loop from the simulator's start, with the noise the simulator's clients draw."""
    init_key, noise_key = jax.random.split(jax.random.key(seed))
    theta = np.asarray(softmax_head().init(init_key, data.dataset.x_train.shape[1:], data.dataset.classes), float)

    def noise(t, i):
        site = jax.random.fold_in(jax.random.fold_in(noise_key, jnp.int32(i)), 0)
        return np.asarray(jax.random.normal(jax.random.fold_in(site, t), theta.shape, jnp.float32), float)

    clients = [(data.dataset.x_train[p], data.dataset.y_train[p]) for p in data.parts]
    return method(theta, clients, rounds, guarded(1.0), std, noise)  # the length that the engine really clips to


@pytest.mark.slow
@pytest.mark.parametrize("budget", [NO_PRIVACY, Budget(20.0)])
@pytest.mark.parametrize("name", ["fedgd", "momentum", "gradient"])
def test_agrees_with_the_plain_loop(toy, name, budget):
    if name == "fedgd":
        fast = fedgd(lr=0.3)

        def slow(*a):
            return plain_loop.fedgd(*a, lr=0.3)
    else:
        fast = fedsofim(**SOFIM, direction=name, bias_correction=False, weight_decay=0.0)

        def slow(*a):
            return plain_loop.fedsofim(*a, **SOFIM, direction=name)

    plan = plan_for(toy, fast, budget, 6, clip=1.0)
    params, _ = simulate(plan, toy, seed=3, apart=True)
    wanted = reference(toy, slow, 6, plan.sum_std, seed=3)
    np.testing.assert_allclose(params, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 40, 11, 150), (3, 700, 1300)])
def test_pooled_equals_apart_without_noise(sizes):
    data = make_toy(sizes=sizes)
    plan = plan_for(data, fedsofim(**SOFIM), NO_PRIVACY, 8)
    pooled, apart = (simulate(plan, data, seed=1, apart=a)[0] for a in (False, True))
    np.testing.assert_allclose(pooled, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_equal_seeds_are_bit_identical(toy, apart):
    plan = plan_for(toy, fedsofim(**SOFIM), Budget(1.0), 12)
    first, second, other = (simulate(plan, toy, seed=s, apart=apart)[0] for s in (5, 5, 6))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


class Watcher(Progress):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def at(self, done: float) -> None:
        self.seen.append(done)


@pytest.mark.slow
def test_watching_the_progress_changes_nothing(toy):
    plan = plan_for(toy, fedsofim(**SOFIM), Budget(1.0), 25)
    whole, trace = simulate(plan, toy, seed=2)
    watched, same = simulate(plan, toy, seed=2, progress=(watcher := Watcher()))
    assert watcher.seen == [10, 20, 25]
    assert np.array_equal(whole, watched)
    assert np.array_equal(trace.accuracy, same.accuracy)


@pytest.mark.slow
def test_where_a_run_is_cut_changes_nothing(toy, monkeypatch):
    """Ten rounds to a call with three left over, and all in one: the same numbers."""
    plan = plan_for(toy, fedsofim(**SOFIM), Budget(1.0), 23)
    pieces, trace = simulate(plan, toy, seed=4, every=4)
    monkeypatch.setattr(simulator, "_ROUNDS_A_CALL", 23)
    whole, same = simulate(plan, toy, seed=4, every=4)
    assert np.array_equal(pieces, whole)
    assert trace.rounds.tolist() == same.rounds.tolist() == [4, 8, 12, 16, 20, 23]
    assert np.array_equal(trace.accuracy, same.accuracy) and np.array_equal(trace.loss, same.loss)


@pytest.mark.parametrize("seed", [0, 7, -1, 2**40 + 3])
def test_a_runs_keys_are_the_two_of_its_seed(seed):
    wanted = jax.random.split(jax.random.key(seed))
    for key, same in zip(simulator.keys(seed), wanted, strict=True):
        assert np.array_equal(jax.random.key_data(key), jax.random.key_data(same))


def test_a_start_is_that_of_published_runs():
    """The initial parameters inside one program are to the bit those of operations one by one."""
    data = make_toy()
    plan = plan_for(data, fedgd(), Budget(1.0), 3)
    key, shape = jax.random.key(3), (data.dataset.x_train.shape[1] + 1, data.dataset.classes)
    apart = 0.5 * (2.0 / sum(shape)) ** 0.5 * jax.random.normal(key, shape, jnp.float32)
    assert np.array_equal(simulator.start_parameters(plan, data, key), apart)


@pytest.mark.slow
def test_size_weights_make_the_pooled_objective(toy):
    """With weights by size, how records are dealt to clients does not matter (without noise)."""
    one = replace(toy, parts=(np.concatenate(toy.parts),))
    split, whole = (
        simulate(plan_for(d, fedgd(lr=0.3), NO_PRIVACY, 5, weights="size"), d, seed=0)[0] for d in (toy, one)
    )
    np.testing.assert_allclose(split, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_any_jax_model_trains(toy):
    """A two-layer network with three leaves, through the generic per-record path."""

    def init(key, shape, classes):
        a, b = jax.random.split(key)
        return {
            "in": 0.5 * jax.random.normal(a, (shape[0], 8), jnp.float32),
            "out": 0.5 * jax.random.normal(b, (8, classes), jnp.float32),
            "bias": jnp.zeros(classes, jnp.float32),
        }

    def logits(params, x):
        return jnp.tanh(x @ params["in"]) @ params["out"] + params["bias"]

    def loss(params, x, y):
        return -jax.nn.log_softmax(logits(params, x))[y]

    model = Model(init, loss, logits)
    run = train(toy, fedsofim(**SOFIM), Budget(50.0), 40, recipe="paper", model=model, clip=1.0)
    assert run.accuracy > 60
    pooled, apart = (
        simulate(plan_for(toy, fedgd(lr=0.2), NO_PRIVACY, 4, model=model), toy, apart=a)[0] for a in (False, True)
    )
    for a, b in zip(jax.tree.leaves(pooled), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
