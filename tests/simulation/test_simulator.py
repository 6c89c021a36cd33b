"""The simulator against a loop anyone can read, and against itself."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core import records
from fedsofim.core.budget import Budget
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.normals import normal
from fedsofim.core.method import Method
from fedsofim.errors import InputError
from fedsofim.methods.fedgd import fedgd
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for, train
from toy import make_toy

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import plain_loop

simulator: Any = importlib.import_module("fedsofim.simulation.simulator")  # the module: its name is also a function's
SOFIM: dict[str, Any] = {"lr": 0.8, "rho": 0.5, "beta": 0.9}


def reference(data, method, rounds, std, seed):
    """The plain loop from the simulator's start, with the noise the simulator's clients draw."""
    init_key, noise_key = jax.random.split(jax.random.key(seed))
    theta = np.asarray(softmax_head().init(init_key, data.dataset.x_train.shape[1:], data.dataset.classes), float)

    def noise(t, i):
        site = jax.random.fold_in(jax.random.fold_in(noise_key, jnp.int32(i)), 0)
        return np.asarray(jax.random.normal(jax.random.fold_in(site, t), theta.shape, jnp.float32), float)

    clients = [(data.dataset.x_train[p], data.dataset.y_train[p]) for p in data.parts]
    return method(theta, clients, rounds, 1.0, std, noise)


@pytest.mark.parametrize("budget", [None, Budget(20.0)])
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

    settled = plan_for(toy, fast, budget, 6, clip=1.0)
    params, _ = simulate(settled, toy, seed=3, pool=False)
    wanted = reference(toy, slow, 6, settled.sum_std, seed=3)
    np.testing.assert_allclose(params, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("sizes", [(3, 40, 11, 150), (3, 700, 1300)])
def test_pooled_equals_apart_without_noise(sizes):
    data = make_toy(sizes=sizes)
    settled = plan_for(data, fedsofim(**SOFIM), None, 8)
    pooled, apart = (simulate(settled, data, seed=1, pool=p)[0] for p in (True, False))
    np.testing.assert_allclose(pooled, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pool", [True, False])
def test_equal_seeds_are_bit_identical(toy, pool):
    settled = plan_for(toy, fedsofim(**SOFIM), Budget(1.0), 12)
    first, second, other = (simulate(settled, toy, seed=s, pool=pool)[0] for s in (5, 5, 6))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_watching_the_progress_changes_nothing(toy):
    settled = plan_for(toy, fedsofim(**SOFIM), Budget(1.0), 25)
    seen = []
    whole, trace = simulate(settled, toy, seed=2)
    watched, same = simulate(settled, toy, seed=2, progress=seen.append)
    assert seen == [10, 20, 25]
    assert np.array_equal(whole, watched)
    assert np.array_equal(trace.accuracy, same.accuracy)


def compiled(work: Callable[[], object]) -> list[str]:
    """The programs that were compiled meanwhile, by name."""
    found: list[str] = []

    def listen(event: str, duration_secs: float, **about: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            found.append(str(about.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        work()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return found


def test_a_run_compiles_few_programs_however_many_rounds(toy):
    """Every operation outside of a program is one more to compile: 24 of them were most of a cold run."""
    for rounds in (20, 23, 7):
        jax.clear_caches()
        found = compiled(lambda n=rounds: train(toy, fedsofim(), Budget(1.0), n))
        assert len(found) == 4, found
        assert sum("advance" in name for name in found) == 1


def test_other_seeds_and_budgets_compile_nothing(toy):
    train(toy, fedsofim(**SOFIM), Budget(1.0), 12)
    assert not compiled(lambda: train(toy, fedsofim(**SOFIM), Budget(3.0), 12, seed=5))
    assert compiled(lambda: train(toy, fedsofim(lr=0.7), Budget(3.0), 12, seed=5))


def test_equal_settings_are_one_method():
    assert fedsofim(lr=0.5) is fedsofim(lr=0.5)
    assert fedsofim(lr=0.5) is not fedsofim(lr=0.25)
    with pytest.raises(InputError):
        fedsofim(lr=-1.0)


def test_where_a_run_is_cut_changes_nothing(toy, monkeypatch):
    """Ten rounds to a call with three left over, and all in one: the same numbers."""
    settled = plan_for(toy, fedsofim(**SOFIM), Budget(1.0), 23)
    pieces, trace = simulate(settled, toy, seed=4, every=4)
    monkeypatch.setattr(simulator, "_ROUNDS_A_CALL", 23)
    whole, same = simulate(settled, toy, seed=4, every=4)
    assert np.array_equal(pieces, whole)
    assert trace.rounds.tolist() == same.rounds.tolist() == [4, 8, 12, 16, 20, 23]
    assert np.array_equal(trace.accuracy, same.accuracy) and np.array_equal(trace.loss, same.loss)


@pytest.mark.parametrize("seed", [0, 7, -1, 2**40 + 3])
def test_a_runs_keys_are_the_two_of_its_seed(seed):
    wanted = jax.random.split(jax.random.key(seed))
    for key, same in zip(simulator.keys(seed), wanted, strict=True):
        assert np.array_equal(jax.random.key_data(key), jax.random.key_data(same))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [(), (1,), (65, 10), (3, 4, 5), (0, 2)])
def test_normals_are_jaxs_own(shape, dtype):
    """Drawn as one row because that compiles faster; the numbers are those that results were published with."""
    key = jax.random.key(11)
    assert np.array_equal(normal(key, shape, dtype), jax.random.normal(key, shape, dtype))


def test_a_start_is_that_of_published_runs():
    """The initial parameters inside one program are to the bit those of operations one by one."""
    data = make_toy()
    settled = plan_for(data, fedgd(), Budget(1.0), 3)
    key, shape = jax.random.key(3), (data.dataset.x_train.shape[1] + 1, data.dataset.classes)
    apart = 0.5 * (2.0 / sum(shape)) ** 0.5 * jax.random.normal(key, shape, jnp.float32)
    assert np.array_equal(simulator.parameters(settled, data, key), apart)


def test_evaluated_rounds():
    data = make_toy()
    run = train(data, fedgd(lr=0.3), Budget(5.0), 13, every=5)
    assert list(run.accuracy) == [5, 10, 13]
    assert run.final_accuracy == run.accuracy[13]
    guess = run.predict(data.dataset.x_test)
    assert 100 * np.mean(guess == data.dataset.y_test) == pytest.approx(run.final_accuracy, abs=1e-3)


def test_size_weights_make_the_pooled_objective(toy):
    """With weights by size, how records are dealt to clients does not matter (without noise)."""
    one = toy.__class__(toy.data, (np.concatenate(toy.parts),), "all in one")
    split, whole = (simulate(plan_for(d, fedgd(lr=0.3), None, 5, weights="size"), d, seed=0)[0] for d in (toy, one))
    np.testing.assert_allclose(split, whole, rtol=1e-5, atol=1e-6)


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
    run = train(toy, fedsofim(**SOFIM), Budget(50.0), 40, model=model, clip=1.0)
    assert run.final_accuracy > 60
    pooled, apart = (
        simulate(plan_for(toy, fedgd(lr=0.2), None, 4, model=model), toy, pool=p)[0] for p in (True, False)
    )
    for a, b in zip(jax.tree.leaves(pooled), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_strangers_method_is_calibrated_and_run(toy):
    """Heavy-ball at the client, with memory: nothing but this function is needed."""

    def client(door, params, state, memory):
        velocity = jax.tree.map(lambda v, g: 0.5 * v + g / door.size, memory, door.gradient(params))
        return velocity, velocity

    method = Method(
        "heavyball",
        client,
        lambda mean, state, params, facts: (params - 0.2 * mean, state),
        memory=lambda params: jax.tree.map(jnp.zeros_like, params),
    )
    run = train(toy, method, Budget(30.0), 30, clip=2.0)
    assert run.plan.epsilon == pytest.approx(30.0)
    assert run.final_accuracy > 70


def test_one_client_and_a_client_of_one_record():
    for sizes in ((50,), (1, 50), (1,) * 6):
        run = train(make_toy(sizes=sizes), fedgd(lr=0.1), Budget(5.0), 3)
        assert np.isfinite(run.final_accuracy)


def test_a_diverged_run_is_an_error_not_a_result(toy):
    with pytest.raises(InputError, match="lower lr"):
        train(toy, fedgd(lr=1e38), Budget(0.1), 20)


def test_features_too_large_for_float32():
    data = make_toy()
    data.dataset.x_train[0, 0] = 1e20
    with pytest.raises(InputError, match="Rescale"):
        train(data, fedgd(), Budget(1.0), 2)


def test_padding_stays_small_however_unequal_the_clients():
    for sizes in ([891, 3498, 2500, 9986], [50] * 1000, [1_000_000], [1] * 100, [3, 100_000]):
        blocks, size = records.block_shape(sizes)
        assert blocks * size <= 1.1 * sum(sizes) + 8 * len(sizes)


def test_saved_files(toy, tmp_path):
    run = train(toy, fedgd(lr=0.1), Budget(1.0), 10)
    run.save(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["params.npz", "result.json"]
    assert np.array_equal(np.load(tmp_path / "run" / "params.npz")["leaf0"], run.params)
