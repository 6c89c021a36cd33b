"""Each task's loss is what its file says, its clipped sums are exact, and nothing in it overflows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import poisson

import fedsofim as fs
from fedsofim.core.losses import loss_of, measured
from fedsofim.core.models import evaluate, is_linear, linear, softmax_head
from fedsofim.core.summary import formed
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import split
from fedsofim.errors import InputError

NUMBERS = fs.Task("numbers", range=(0, 400))
HUBER = fs.Task("numbers", range=(0, 400), huber=40.0)  # 0.2 as y is coded
COUNTS = fs.Task("counts", range=(0, 16))  # scale 4
TWO, LABELS = fs.Task("two-classes"), fs.Task("labels")


def slope(task: fs.Task, z: list[float], y) -> np.ndarray:
    return np.asarray(jax.grad(loss_of(task))(jnp.array(z, jnp.float32), jnp.asarray(y)))


def test_of_classes_it_is_the_heads_and_the_model_is_the_head():
    z = jnp.array([0.3, -1.0, 2.0])
    found = float(loss_of(fs.Task())(z, jnp.int32(2)))
    assert found == pytest.approx(-float(jax.nn.log_softmax(z)[2]))
    assert linear() is softmax_head() and linear(fs.Task(), 0.0) is softmax_head(0.0)


def test_of_yes_or_no_it_is_the_log_likelihood_summed_over_labels():
    z, y = np.array([0.5, -3.0, 40.0]), np.array([1, 1, 0])
    wanted = -np.sum(np.log(np.where(y == 1, expit(z), expit(-z))))
    assert float(loss_of(LABELS)(jnp.array(z, jnp.float32), jnp.array(y))) == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(slope(LABELS, z.tolist(), y), expit(z) - y, atol=1e-6)
    np.testing.assert_allclose(slope(TWO, [0.5], 1), [expit(0.5) - 1], atol=1e-6)


@pytest.mark.parametrize("error", [-1.5, -0.1, 0.0, 0.19, 0.21, 3.0])
def test_hubers_slope_is_the_error_up_to_where_it_is_cut(error):
    np.testing.assert_allclose(slope(NUMBERS, [0.3 + error], jnp.float32(0.3)), [error], atol=1e-6)
    np.testing.assert_allclose(slope(HUBER, [0.3 + error], jnp.float32(0.3)), [np.clip(error, -0.2, 0.2)], atol=1e-6)
    value = float(loss_of(HUBER)(jnp.array([0.3 + error], jnp.float32), jnp.float32(0.3)))
    near = min(abs(error), 0.2)
    assert value == pytest.approx(near * abs(error) - near**2 / 2, abs=1e-6)


def test_of_counts_it_is_poissons_in_units_of_the_scale():
    z, y = 0.4, 7
    mean = COUNTS.scale * np.exp(z)
    other = COUNTS.scale * np.exp(0.1)
    found = loss_of(COUNTS)(jnp.array([z]), jnp.int32(y)) - loss_of(COUNTS)(jnp.array([0.1]), jnp.int32(y))
    wanted = -(poisson.logpmf(y, mean) - poisson.logpmf(y, other)) / COUNTS.scale
    assert float(found) == pytest.approx(wanted, rel=1e-4)
    np.testing.assert_allclose(slope(COUNTS, [z], y), [(mean - y) / COUNTS.scale], atol=1e-6)


@pytest.mark.parametrize("task", [TWO, HUBER, NUMBERS, COUNTS])
@pytest.mark.parametrize("z", [-1e6, -90.0, 90.0, 1e6])
def test_nothing_overflows_wherever_noise_throws_the_output(task, z):
    y = jnp.float32(-1) if task.kind == "numbers" else jnp.int32(1)
    assert np.isfinite(slope(task, [z], y)).all()
    assert np.isfinite(float(loss_of(task)(jnp.array([z], jnp.float32), y)))
    if task is COUNTS:
        assert abs(slope(task, [z], y)[0]) <= 16 / 4


def small(task: fs.Task, seed: int = 0) -> Dataset:
    """Two hundred made-up records."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(200, 4))
    y = {
        "two-classes": (x[:, 0] > 0).astype(int),
        "labels": (x[:, :3] > 0.2).astype(int),
        "numbers": 200 + 60 * x[:, 0] + 20 * random.normal(size=200),
        "counts": random.poisson(4 * np.exp(0.3 * x[:, 0])).clip(0, 16),
    }[task.kind]
    return Dataset.from_arrays(x, y, task=task)


@pytest.mark.parametrize("task", [TWO, LABELS, NUMBERS, HUBER, COUNTS], ids=str)
def test_one_round_takes_the_clipped_mean_gradient_and_forms_none_of_it(task):
    data = small(task)
    run = fs.train(
        split(data, 2, iid=True, min_size=1),
        fs.fedgd(lr=1.0),
        fs.NO_PRIVACY,
        1,
        recipe="paper",
        clip=0.5,
        weights="size",
    )
    begin = np.asarray(run.plan.model.init(jax.random.split(jax.random.key(0))[0], (4,), data.outputs), np.float64)
    rows = np.concatenate([data.x_train, np.ones((len(data.x_train), 1))], axis=1).astype(np.float64)
    z = rows @ begin
    if task.kind in ("two-classes", "labels"):
        r = expit(z) - data.y_train.reshape(z.shape)
    elif task.kind == "numbers":
        far = np.inf if task.huber is None else task.huber / task.half
        r = np.clip(z - data.y_train[:, None], -far, far)
    else:
        r = np.exp(z) - data.y_train[:, None] / task.scale
    each = rows[:, :, None] * r[:, None, :]
    length = np.sqrt(np.sum(each**2, axis=(1, 2)))
    mean = np.mean(each * np.minimum(1, 0.5 / length)[:, None, None], axis=0)
    assert np.sum(length > 0.5) > 10
    np.testing.assert_allclose(np.asarray(run.params), begin - mean, atol=2e-3 * np.abs(mean).max())
    assert formed(run.plan)["gradient"] == f"none of a record's {5 * data.outputs} numbers is formed"
    assert is_linear(run.plan.model) and run.plan.pooled
    assert run.final == pytest.approx(run.metrics.values[task.metric], rel=1e-4)
    z = jnp.asarray(run._outputs(data.x_test), jnp.float32)
    assert run.trace.loss[-1] == pytest.approx(float(measured(task, z, jnp.asarray(data.y_test))[1]), rel=1e-3)


def test_evaluating_asks_for_the_task_and_the_head_refuses_others():
    data, model = small(NUMBERS), linear(NUMBERS)
    params = jnp.zeros((5, 1), jnp.float32)
    rmse, loss = evaluate(model, params, jnp.asarray(data.x_test), jnp.asarray(data.y_test), NUMBERS)
    assert float(rmse) == pytest.approx(np.sqrt(np.mean((200 * data.y_test) ** 2)), rel=1e-5)  # 0 is the middle
    assert float(loss) == pytest.approx(np.mean(data.y_test**2) / 2, rel=1e-5)
    with pytest.raises(
        InputError, match="softmax_head is about classes and the softmax head; the task here is numbers"
    ):
        fs.train(split(data, 2, iid=True, min_size=1), fs.fedgd(), fs.NO_PRIVACY, 1, model=softmax_head())
