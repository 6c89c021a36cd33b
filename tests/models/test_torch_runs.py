"""Runs of torch modules: the sums, clip, noise and ledger of the same network in JAX, since that is what runs."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
import torch_nets as nets
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.evaluation import Evaluation
from fedsofim.core.leaves import Form
from fedsofim.core.losses import loss_of
from fedsofim.core.models import for_task
from fedsofim.core.opening import opened
from fedsofim.core.queries import PerRecord
from fedsofim.core.records import in_blocks
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from fedsofim.tasks import Task
from toy import make_toy

torch, nn = nets.torch, nets.nn
KEY = jax.random.key(0)  # of modules, which bring their own weights
PAIRS = {
    "mlp": (nets.mlp, nets.mlp_in_jax, 5),
    "cnn": (nets.cnn, nets.cnn_in_jax, 64),
    "attention": (nets.Attention, nets.attention_in_jax, 12),
}
TOY = make_toy(sizes=(9, 30, 21))


def records_of(features: int, count: int = 70) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x = random.normal(size=(count, features)) * random.lognormal(size=(count, 1))
    return x.astype(np.float32), random.integers(3, size=count).astype(np.int32)


def query_of(model: fs.Model, params: Any, x: np.ndarray, y: np.ndarray) -> tuple[PerRecord, list, Any]:
    return PerRecord.trace(opened(lambda a, b: jax.grad(model.loss)(params, a, b)), x[0], y[0])


def sums(model: fs.Model, params: Any, x: np.ndarray, y: np.ndarray, clip: float, clients: int = 1) -> list[np.ndarray]:
    """Clipped sums of clients with equal shares of the records."""
    query, consts, _ = query_of(model, params, x, y)
    records = in_blocks(x, y, np.array_split(np.arange(len(y)), clients))
    summed = jax.jit(lambda c, r: client_sums(query, c, [False] * len(c), r, clients, clip))
    return [np.asarray(s.hi, np.float64) + np.asarray(s.lo) for s in summed(consts, records)]


@pytest.mark.slow
@pytest.mark.parametrize("name, clip", [("mlp", 0.3), ("mlp", 1e6), ("cnn", 0.3), ("attention", 0.3)])
def test_clipped_sums_are_those_of_the_same_network_in_jax(name: str, clip: float):
    make_net, in_jax, features = PAIRS[name]
    net = make_net()
    ours, theirs = fs.from_torch(net), in_jax(net)
    params = ours.init(KEY, (features,), 3)
    x, y = records_of(features)
    found, wanted = (sums(m, params, x, y, clip, clients=2) for m in (ours, theirs))
    length = math.sqrt(sum(float(np.square(w).sum()) for w in wanted))
    assert length > 1
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6 * length)


def test_gradients_of_matrices_are_not_formed_for_every_record():
    for net, features in ((nets.mlp(), 5), (nets.cnn(), 64)):
        model = fs.from_torch(net)
        params = model.init(KEY, (features,), 3)
        leaves = query_of(model, params, *records_of(features))[0].leaves()
        forms = dict(zip(params, (leaf.form for leaf in leaves), strict=True))
        dense = [name for name, p in params.items() if p.ndim == 2]
        assert dense and {forms[name] for name in dense} == {Form.APART}


def test_a_table_of_tokens_is_looked_up():
    net = nn.Sequential(Tokens(), nn.Embedding(50, 4), nn.Flatten(), nn.Linear(12, 3))
    model = fs.from_torch(net)
    params = model.init(KEY, (3,), 3)
    leaves = query_of(model, params, *records_of(3))[0].leaves()
    assert dict(zip(params, (leaf.form for leaf in leaves), strict=True))["1.weight"] is Form.LOOKUP


class Tokens(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.long()


@pytest.mark.parametrize("value", [99.0, -1.0])
def test_a_record_that_the_module_fails_on_contributes_zero(value: float):
    """Here: a token beyond the table, which is an error in torch."""
    torch.manual_seed(0)
    model = fs.from_torch(nn.Sequential(Tokens(), nn.Embedding(4, 2), nn.Flatten(), nn.Linear(6, 3)))
    params = model.init(KEY, (3,), 3)
    x = np.random.default_rng(0).integers(4, size=(7, 3)).astype(np.float32)
    y = np.arange(7, dtype=np.int32) % 3
    without = sums(model, params, np.delete(x, 2, axis=0), np.delete(y, 2), 0.5)
    x[2, 1] = value
    for a, b in zip(sums(model, params, x, y, 0.5), without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


class Asserting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        torch._assert_async((x < 5).all(), "less than five")
        return self.layer(x)


def test_a_record_that_fails_an_assertion_contributes_zero():
    model = fs.from_torch(Asserting())
    params, (x, y) = model.init(KEY, (3,), 3), records_of(3, 7)
    x = np.clip(x, -3, 3)
    without = sums(model, params, np.delete(x, 2, axis=0), np.delete(y, 2), 0.5)
    x[2, 1] = 9
    for a, b in zip(sums(model, params, x, y, 0.5), without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    "task, outputs",
    [(Task("two-classes"), 1), (Task("labels"), 3), (Task("numbers", range=(0, 10)), 1),
     (Task("numbers", range=(0, 10), huber=0.5), 1), (Task("counts", range=(0, 9)), 1)],
    ids=str,
)  # fmt: skip
def test_without_a_loss_of_its_own_it_has_the_tasks(task: Task, outputs: int):
    net = nets.mlp(classes=outputs)
    model = for_task(fs.from_torch(net), task)
    shape, dtype = task.target(outputs)
    x, y = records_of(5, 6)[0], (np.arange(6 * max(1, math.prod(shape))) % 2).reshape(6, *shape).astype(dtype)
    params, theirs = model.init(KEY, (5,), outputs), nets.mlp_in_jax(net)
    for one, answer in zip(x, y, strict=True):
        wanted = loss_of(task)(theirs.logits(params, one[None])[0], answer)
        assert float(model.loss(params, one, answer)) == pytest.approx(float(wanted), rel=1e-5)


# --- the same run -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedsofim", "scaffold"])
def test_a_run_has_the_same_ledger_noise_and_end(name: str):
    net = nets.mlp()
    ends = []
    for model in (fs.from_torch(net), nets.mlp_in_jax(net)):
        plan = plan_for(TOY, make(name), fs.Budget(2.0), 3, model=model, clip=0.5)
        ends.append((plan, *simulate(plan, TOY, seed=4, every=3)))
    (plan, params, trace), (their_plan, their_params, their_trace) = ends
    assert plan.ledger == their_plan.ledger
    assert plan.multipliers == their_plan.multipliers
    assert plan.noise_std > 0
    for key, first in fs.from_torch(net).init(KEY, (5,), 3).items():
        np.testing.assert_allclose(params[key], their_params[key], rtol=0, atol=1e-4)
        assert np.abs(params[key] - first).max() > 0.01
    assert trace.accuracy.tolist() == their_trace.accuracy.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("unit, trust, rate", [("person", "local", 0.5), ("client", "secure-sum", 1.0)])
def test_a_run_protects_persons_and_clients(unit: Any, trust: Any, rate: float):
    person = (np.arange(len(TOY.dataset.y_train)) // 2).astype(str)
    data = replace(TOY, dataset=replace(TOY.dataset, person=person)).protecting(unit, 2 if unit == "person" else 30)
    how: Any = {"clip": 0.5, "trust": trust, **({"batch_rate": rate} if rate < 1 else {})}
    ends = []
    for model in (fs.from_torch(nets.mlp()), nets.mlp_in_jax(nets.mlp())):
        plan = plan_for(data, make("fedsofim"), fs.Budget(3.0), 2, model=model, **how)
        ends.append((plan.ledger, simulate(plan, data, 0, every=2)[0]))
    assert ends[0][0] == ends[1][0]
    for name, value in ends[0][1].items():
        np.testing.assert_allclose(value, ends[1][1][name], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_adaptive_clipping_trains_a_module():
    ends = []
    for model in (fs.from_torch(nets.mlp()), nets.mlp_in_jax(nets.mlp())):
        plan = plan_for(TOY, make("fedgd", {"clip_quantile": 0.5}), fs.Budget(5.0), 3, model=model, clip=0.1)
        ends.append((plan.ledger, simulate(plan, TOY, 1, every=3)[0]))
    assert ends[0][0] == ends[1][0]
    for name, value in ends[0][1].items():
        np.testing.assert_allclose(value, ends[1][1][name], rtol=1e-3, atol=1e-4)


class WithConstants(nn.Module):
    """A frozen layer, a buffer, and a tensor that is made while it runs: all of them are public."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.layer = nn.Linear(5, 4).requires_grad_(False), nn.Linear(4, 3)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Any) -> Any:
        return self.layer((self.frozen(x) + self.shift) * torch.tensor([1.0, 2.0, 3.0, 4.0]))


@pytest.mark.slow
@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))])
def test_constants_of_a_module_may_stand_in_a_clients_program(loss: Any):
    run = fs.train(TOY, fs.fedgd(lr=1.0), fs.Budget(5), 2, model=fs.from_torch(WithConstants(), loss), clip=1.0)
    assert sorted(run.params) == ["layer.bias", "layer.weight"]
    module, x = run.model.to_torch(), np.asarray(TOY.dataset.x_test)
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), run.model.logits(x), atol=1e-4)


def test_right_answers_of_a_module_are_a_program_of_jax():
    model = fs.from_torch(nets.mlp())
    params = model.init(KEY, (5,), 3)
    assert Evaluation().client(model)
    assert jax.make_jaxpr(model.logits)(params, np.ones((2, 5), np.float32))


def test_parameters_that_are_not_its_own_are_an_error():
    def client(door: Any, params: Any, state: Any, memory: Any) -> Any:
        return door.gradient({"a": jnp.zeros(3)}), memory

    method = fs.Method("mine", client, fs.fedgd(lr=1.0).server)
    with pytest.raises(Exception, match=r"0\.weight|shapes"):
        fs.train(TOY, method, fs.Budget(1), 1, model=fs.from_torch(nets.mlp()), clip=1.0)


def test_records_of_another_shape_are_an_error():
    with pytest.raises(fs.InputError, match=r"records? of shape \(5,\)"):
        plan_for(TOY, make("fedgd"), fs.Budget(1.0), 2, model=fs.from_torch(nets.mlp(features=6)), clip=1.0)
