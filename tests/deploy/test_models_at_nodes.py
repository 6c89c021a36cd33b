"""Any model that a node has installed and allows is trained there: the simulator's training, and nothing else."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from fedsofim import extensions, models
from fedsofim.core.budget import NO_PRIVACY, WITHOUT
from fedsofim.core.opening import opened
from fedsofim.core.queries import PerRecord
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.exact_sums import exact_sum
from fedsofim.deploy.installed import MOST_NUMBERS, check_numbers
from fedsofim.deploy.node import consider
from fedsofim.deploy.order import Conduct, Order, from_config, to_config
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.server import check_order
from fedsofim.deploy.trained_job import trained_of_job
from fedsofim.deploy.wire import Job
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from fedsofim.trained import load_model
from nodes import (
    REHEARSAL,
    SMALL,
    X,
    allowing,
    asked,
    charges,
    finish,
    leaves,
    make_nodes,
    refusal,
    started,
    with_terms,
)

MLP: dict[str, Any] = {"model": "mlp", "model_settings": (("hidden", "4,3"),)}


@pytest.fixture
def torch_net(monkeypatch: pytest.MonkeyPatch) -> str:
    """A torch module that an installed package offers."""
    pytest.importorskip("torch")
    offered = [EntryPoint(name, f"offered_net:{name}", "fedsofim.models") for name in ("net", "narrow")]
    monkeypatch.setattr(extensions, "entry_points", lambda group: offered if group == "fedsofim.models" else [])
    return "net"


def trained_alike(folder: Path, method: str, order: dict[str, Any]) -> None:
    """At zero noise the nodes' training is the simulator's, and something was learnt."""
    nodes = allowing(folder, [order["model"]], **REHEARSAL)
    now = started(nodes, method, epsilon=WITHOUT, **order)
    begun, now = leaves(now.params), finish(nodes, now)
    model = models.make(order["model"], dict(order.get("model_settings", ())))
    wanted, _ = simulate(plan_for(SMALL, make(method), NO_PRIVACY, 2, model=model), SMALL, 0, every=2)
    for ours, theirs, first in zip(leaves(now.params), leaves(wanted), begun, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)  # they clip a little differently (GUARD)
        assert np.abs(ours - first).max() > 1e-3


@pytest.mark.slow
def test_an_mlp_is_trained_as_in_the_simulator(tmp_path: Path):
    trained_alike(tmp_path, "fedsofim", MLP)


@pytest.mark.slow
def test_a_torch_module_is_trained_as_in_the_simulator_in_local_steps_too(tmp_path: Path, torch_net: str):
    trained_alike(tmp_path, "fedavg", {"model": torch_net})


@pytest.mark.slow
def test_with_noise_it_is_charged_kept_and_used(tmp_path: Path):
    nodes = allowing(tmp_path, ["mlp"])
    now = finish(nodes, started(nodes, "fedgd", **MLP))
    assert [charges(node) for node in nodes] == [2, 2, 2]
    save(now, tmp_path / "checkpoint.npz")
    again = restore(tmp_path / "checkpoint.npz")
    assert all(np.array_equal(a, b) for a, b in zip(leaves(again.params), leaves(now.params), strict=True))
    trained = trained_of_job(tmp_path / "checkpoint.npz")
    trained.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.name == "mlp"
    assert np.array_equal(loaded.predict(X), now.predict(X))


# --- what is allowed ----------------------------------------------------------------------------------------


def test_a_model_that_the_policy_does_not_name_is_refused_before_anything_is_built(tmp_path: Path):
    nodes = make_nodes(tmp_path)
    request = asked(nodes)
    assert nodes[0].models == ("linear",)
    said = refusal(nodes[0], with_terms(request, model="mlp", model_settings={"hidden": [4]}))
    assert said == "the model mlp is not allowed here; allowed: linear"
    with pytest.raises(Refused, match="not allowed here"):
        consider(nodes[0], replace(request.job, model="cnn"))


@pytest.mark.parametrize("name", ["./mine.py", "nosuch", "os:system"])
def test_a_model_that_is_not_installed_is_never_built(nodes: list[Any], name: str):
    job = asked(nodes).job
    with pytest.raises(Refused, match="not installed here"):
        Job.read(replace(job, model=name).text())
    path = nodes[0].ledger.parent / "policy.toml"
    path.write_text(path.read_text().replace("[limits]", f"[limits]\nmodels = ['{name}']"))
    with pytest.raises(InputError, match="model"):
        read_policy(path)


def test_no_policy_allows_nothing_at_all(nodes: list[Any]):
    path = nodes[0].ledger.parent / "policy.toml"
    path.write_text(path.read_text().replace("[limits]", "[limits]\nmodels = []"))
    with pytest.raises(InputError, match="models is empty"):
        read_policy(path)


def test_a_model_too_large_to_bear_is_refused_by_its_shapes(tmp_path: Path):
    (node, *others) = allowing(tmp_path, ["linear", "mlp"])
    request = with_terms(asked([node, *others]), model="mlp", model_settings={"hidden": [10**6, 10**6]})
    assert f"the most here are {MOST_NUMBERS}" in refusal(node, request)


def test_a_model_that_would_hold_too_much_for_a_record_is_refused_by_its_shapes():
    wide = models.make("cnn", {"channels": [10**6, 1], "kernel": 1, "stride": 1})
    with pytest.raises(Refused, match="for two records; the most here are"):
        check_numbers(wide, (784,), 10)


@pytest.mark.parametrize("settings", [{"hidden": [1] * 101}, {"hidden": {"a": 1}}, {"hidden": "9" * 1900}])
def test_settings_that_nobody_gives_are_refused_in_words(tmp_path: Path, settings: dict[str, Any]):
    nodes = allowing(tmp_path, ["linear", "mlp"])
    with pytest.raises(InputError, match="terms make no sense"):
        Job.read(replace(asked(nodes).job, model="mlp", model_settings=settings).text())


def test_a_model_for_other_classes_is_refused(tmp_path: Path, torch_net: str):
    nodes = allowing(tmp_path, ["linear", "narrow"])
    said = refusal(nodes[0], with_terms(asked(nodes), model="narrow"))
    assert "shape (2,) for a record; expected 3 numbers" in said


def test_settings_that_it_does_not_have_are_refused(tmp_path: Path):
    (node, *others) = allowing(tmp_path, ["linear", "mlp"])
    assert "hiden" in refusal(node, with_terms(asked([node, *others]), model="mlp", model_settings={"hiden": 3}))


def test_a_file_is_no_model_of_an_order():
    with pytest.raises(InputError, match=r"entry point in the group fedsofim\.models"):
        Order(model="./mine.py")


def test_an_order_is_checked_before_the_form_of_records_is_known(torch_net: str):
    check_order(Order(model=torch_net))  # which is for three features
    check_order(Order(model="cnn"))
    with pytest.raises(InputError, match="hiden"):
        check_order(Order(model="mlp", model_settings=(("hiden", "3"),)))
    with pytest.raises(InputError, match="nosuch"):
        check_order(Order(model="nosuch"))


def test_an_order_travels_with_its_model():
    order = Order(model="mlp", model_settings=(("activation", "relu"), ("hidden", "64,64")))
    assert from_config(to_config(order, Conduct()))[0] == order


# --- exact sums ---------------------------------------------------------------------------------------------


def test_a_torch_modules_sum_is_exact_whatever_is_taken_together(torch_net: str, monkeypatch: pytest.MonkeyPatch):
    model: Any = models.make(torch_net)
    params = model.init(None, (3,), 3)
    x, y = X[:23], SMALL.dataset.y_train[:23]
    query, consts, _ = PerRecord.trace(opened(lambda a, b: jax.grad(model.loss)(params, a, b)), x[0], y[0])
    whole = exact_sum(query, consts, x, y, 0.5, 2.0**-30)
    each = sum(exact_sum(query, consts, x[i : i + 1], y[i : i + 1], 0.5, 2.0**-30) for i in range(23))
    assert whole.dtype == np.int64
    assert np.abs(whole - each).max() <= 23 * 64  # of 2^30: a row's last digits may depend on its place in a batch
    monkeypatch.setattr("fedsofim.deploy.exact_sums._AT_ONCE", 8)
    assert np.abs(exact_sum(query, consts, x, y, 0.5, 2.0**-30) - whole).max() <= 23 * 64
    assert np.abs(whole).max() > 2**24
