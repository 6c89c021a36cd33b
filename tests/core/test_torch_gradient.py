"""Sums of a torch module's gradients: those of the same network in JAX, with the same clip, noise and ledger."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import torch_nets as nets
from fedsofim.core.audit import Program
from fedsofim.core.budget import Budget
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.losses import loss_of
from fedsofim.core.models import Model, for_task
from fedsofim.core.plan import make_plan
from fedsofim.core.queries import PerRecord, TorchGradient
from fedsofim.core.records import Records, in_blocks
from fedsofim.core.torch_models import from_torch
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from fedsofim.tasks import Task
from stranger import stranger
from toy import make_toy

KEY = jax.random.key(0)  # of modules, which bring their own weights
PAIRS = {
    "mlp": (nets.mlp, nets.mlp_in_jax, 5),
    "cnn": (nets.cnn, nets.cnn_in_jax, 64),
    "attention": (nets.Attention, nets.attention_in_jax, 12),
}


def records_of(features: int, count: int = 70) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x = random.normal(size=(count, features)) * random.lognormal(size=(count, 1))
    return x.astype(np.float32), random.integers(3, size=count).astype(np.int32)


def sums(model: Model, params: Any, x: np.ndarray, y: np.ndarray, clip: float, clients: int = 1) -> list[np.ndarray]:
    """Clipped sums of clients with equal shares of the records."""
    leaves = jax.tree.leaves(params)
    if isinstance(model.gradient, TorchGradient):
        query, consts = model.gradient.own(), leaves
    else:
        query, consts, _ = PerRecord.trace(lambda a, b: jax.grad(model.loss)(params, a, b), x[0], y[0])
    records = in_blocks(x, y, np.array_split(np.arange(len(y)), clients))
    summed = jax.jit(lambda c, r: client_sums(query, c, [False] * len(c), r, clients, clip))
    return [np.asarray(s.hi, np.float64) + np.asarray(s.lo) for s in summed(consts, records)]


@pytest.mark.slow
@pytest.mark.parametrize("name, clip", [("mlp", 0.3), ("mlp", 1e6), ("cnn", 0.3), ("attention", 0.3)])
def test_clipped_sums_are_those_of_the_same_network_in_jax(name: str, clip: float):
    make_net, in_jax, features = PAIRS[name]
    net = make_net()
    ours, theirs = from_torch(net), in_jax(net)
    params = theirs.init(KEY, (features,), 3)
    x, y = records_of(features)
    found, wanted = (sums(m, params, x, y, clip, clients=2) for m in (ours, theirs))
    length = math.sqrt(sum(float(np.square(w).sum()) for w in wanted))
    assert length > 1
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * length)


def test_one_record_moves_no_sum_by_more_than_twice_the_clip():
    model, clip = from_torch(nets.mlp()), 0.7
    params = model.init(KEY, (5,), 3)
    x, y = records_of(5, 9)
    before = sums(model, params, x, y, clip)
    for scale in (1.0, 1e4, 1e30):
        other = x.copy()
        other[3] = -x[3] * scale
        after = sums(model, params, other, (y + (np.arange(9) == 3)).astype(np.int32) % 3, clip)
        assert 0 < math.sqrt(sum(float(np.square(a - b).sum()) for a, b in zip(after, before, strict=True))) <= 2 * clip


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_record_that_is_not_finite_says_nothing(value: float):
    model = from_torch(nets.mlp())
    params = model.init(KEY, (5,), 3)
    x, y = records_of(5, 9)
    without = sums(model, params, np.delete(x, 4, axis=0), np.delete(y, 4), 1.0)
    x[4, 2] = value
    for a, b in zip(sums(model, params, x, y, 1.0), without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_record_that_the_module_fails_on_says_nothing():
    """An index beyond a table is an error in torch; whether there was one would tell of a record."""
    net = nets.nn.Sequential(Indices(), nets.nn.Embedding(4, 2), nets.nn.Flatten(), nets.nn.Linear(6, 3))
    model = from_torch(net)
    params = model.init(KEY, (3,), 3)
    x = np.random.default_rng(0).integers(4, size=(7, 3)).astype(np.float32)
    y = np.arange(7, dtype=np.int32) % 3
    without = sums(model, params, np.delete(x, 2, axis=0), np.delete(y, 2), 0.5)
    x[2, 1] = 99
    for a, b in zip(sums(model, params, x, y, 0.5), without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


class Indices(nets.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.long()


@pytest.mark.parametrize(
    "task, outputs",
    [(Task("two-classes"), 1), (Task("labels"), 3), (Task("numbers", range=(0, 10)), 1),
     (Task("numbers", range=(0, 10), huber=0.5), 1), (Task("counts", range=(0, 9)), 1)],
    ids=str,
)  # fmt: skip
def test_without_a_loss_of_its_own_it_has_the_tasks(task: Task, outputs: int):
    net = nets.mlp(classes=outputs)
    model: Any = for_task(from_torch(net), task)
    shape, dtype = task.target(outputs)
    x, y = records_of(5, 6)[0], (np.arange(6 * max(1, math.prod(shape))) % 2).reshape(6, *shape).astype(dtype)
    params = model.init(KEY, (5,), outputs)
    theirs = nets.mlp_in_jax(net)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return loss_of(task)(theirs.logits(params, x[None])[0], y)

    wanted = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    for row, name in zip(model.gradient.rows(list(params.values()), x, y), params, strict=True):
        np.testing.assert_allclose(row, wanted[name], atol=1e-5)


# --- the same run -------------------------------------------------------------------------------------------


TOY = make_toy(sizes=(9, 30, 21))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedsofim", "scaffold"])
def test_a_run_has_the_same_ledger_noise_and_end(name: str):
    net = nets.mlp()
    ends = []
    for model in (from_torch(net), nets.mlp_in_jax(net)):
        plan = plan_for(TOY, make(name), Budget(2.0), 3, model=model, clip=0.5)
        ends.append((plan, *simulate(plan, TOY, seed=4, every=3)))
    (plan, params, trace), (their_plan, their_params, their_trace) = ends
    assert plan.ledger == their_plan.ledger
    assert plan.multipliers == their_plan.multipliers
    assert plan.noise_std > 0
    for key, first in from_torch(net).init(KEY, (5,), 3).items():
        np.testing.assert_allclose(params[key], their_params[key], rtol=0, atol=1e-4)
        assert np.abs(params[key] - first).max() > 0.01
    assert trace.accuracy.tolist() == their_trace.accuracy.tolist()


def test_weights_count():
    model = from_torch(nets.mlp())
    params, (x, y) = model.init(KEY, (5,), 3), records_of(5, 40)
    wanted = [sums(model, params, part, labels, 1.0) for part, labels in ((x[:30], y[:30]), (x[30:], y[30:]))]
    weight = np.where(np.arange(40) < 30, 0.5, 0.125).astype(np.float32)
    records = Records(jnp.asarray(x)[None], jnp.asarray(y)[None], jnp.asarray(weight)[None], jnp.zeros(1, jnp.int32))
    leaves = jax.tree.leaves(params)
    found = client_sums(model.gradient, leaves, [False] * len(leaves), records, 1, 1.0)  # type: ignore[arg-type]
    for got, first, second in zip(found, *wanted, strict=True):
        np.testing.assert_allclose(got.hi, 0.5 * first + 0.125 * second, atol=1e-6)


# --- what is refused ----------------------------------------------------------------------------------------


def planned(model: Model, client: Any = None) -> Program:
    method = make("fedgd") if client is None else stranger(client)
    return make_plan(method, model, sizes=[9, 7], shape=(5,), classes=3, budget=Budget(1.0), rounds=2).program


def test_a_query_that_was_not_made_here_is_refused():
    model = from_torch(nets.mlp())

    class Mine:
        shapes = model.gradient.network.shapes  # type: ignore[union-attr]

        def check(self, *_: Any) -> None:
            pass

    with pytest.raises(Refused, match=r"fs\.from_torch"):
        planned(model._replace(gradient=TorchGradient(Mine())))


def test_a_subclass_is_a_stranger():
    model = from_torch(nets.mlp())

    class Mine(TorchGradient):
        pass

    with pytest.raises(
        Refused, match=r"use door\.gradient"
    ):  # its own sum is never asked: its loss would be differentiated
        planned(model._replace(gradient=Mine(model.gradient.network)))  # type: ignore[union-attr]


def test_what_is_priced_is_a_copy():
    net = nets.mlp()
    model = from_torch(net)
    program = planned(model)
    (site,) = program.sites
    assert site.query is not model.gradient
    params = model.init(KEY, (5,), 3)
    before = sums(model, params, *records_of(5), 1.0)
    with nets.torch.no_grad():
        net[0].weight.zero_()
    net[1] = nets.nn.ReLU()
    assert all(np.array_equal(a, b) for a, b in zip(before, sums(model, params, *records_of(5), 1.0), strict=True))


def test_parameters_that_are_not_its_own_are_an_error():
    model = from_torch(nets.mlp())
    with pytest.raises(InputError, match="shapes"):
        planned(model, lambda door, params, state, memory: (door.gradient({"a": jnp.zeros(3)}), memory))


def test_records_of_another_shape_are_an_error():
    with pytest.raises(InputError, match="records of shape \\(5,\\)"):
        planned(from_torch(nets.mlp(features=6)))


def test_nothing_else_differentiates_its_loss():
    model = from_torch(nets.mlp())
    with pytest.raises(Refused, match=r"use door\.gradient"):
        planned(model._replace(gradient=None))
