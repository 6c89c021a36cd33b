"""`train`: what it measures, what it runs, what it refuses to call a result, and what it saves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from fedsofim.core.budget import Budget
from fedsofim.core.method import Method
from fedsofim.errors import InputError
from fedsofim.methods.fedgd import fedgd
from fedsofim.simulation.training import train
from toy import make_toy


@pytest.mark.slow
def test_evaluated_rounds():
    data = make_toy()
    run = train(data, fedgd(lr=0.3), Budget(5.0), 13, recipe="paper", every=5)
    assert [row["round"] for row in run.history] == [5, 10, 13]
    assert run.accuracy == run.final == run.history[-1]["accuracy"]
    assert run.history.to_pandas().loc[13, "accuracy"] == run.accuracy
    assert repr(run.history).splitlines()[0].split() == ["round", "accuracy", "loss"]
    guess = run.predict(data.dataset.x_test)
    assert 100 * np.mean(guess == data.dataset.y_test) == pytest.approx(run.accuracy, abs=1e-3)


@pytest.mark.slow
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
    run = train(toy, method, Budget(30.0), 30, recipe="paper", clip=2.0)
    assert run.plan.epsilon == pytest.approx(30.0)
    assert run.accuracy > 70


@pytest.mark.slow
def test_one_client_and_a_client_of_one_record():
    for sizes in ((50,), (1, 50), (1,) * 6):
        run = train(make_toy(sizes=sizes), fedgd(lr=0.1), Budget(5.0), 3, recipe="paper")
        assert np.isfinite(run.accuracy)


@pytest.mark.slow
def test_a_diverged_run_is_an_error_not_a_result(toy):
    with pytest.raises(InputError, match="lower lr"):
        train(toy, fedgd(lr=1e38), Budget(0.1), 20, recipe="paper")


def test_features_too_large_for_float32():
    data = make_toy()
    data.dataset.x_train[0, 0] = 4.7e20
    with pytest.raises(InputError, match="Rescale") as refused:
        train(data, fedgd(), Budget(1.0), 2, recipe="paper")
    assert "4.7" not in str(refused.value)  # a refusal may be shown to others; a record may not


@pytest.mark.slow
def test_saved_files(toy, tmp_path):
    run = train(toy, fedgd(lr=0.1), Budget(1.0), 10, recipe="paper")
    run.save(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["model.json", "model.safetensors", "result.json"]
    assert np.array_equal(load_file(tmp_path / "run" / "model.safetensors")["params.0"], run.params)
