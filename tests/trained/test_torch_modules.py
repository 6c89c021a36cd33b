"""A torch module from its author and back: trained under a budget, in part or by adapters, kept, and given back."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
import torch_nets as nets
from fedsofim.core.prepared import Prepared

torch = nets.torch
DIGITS: dict[str, Any] = {"clip": 1.0, "weights": "size", "preparation": ()}


@pytest.fixture(scope="module")
def digits() -> fs.Run:
    """Four clients of 360 records each."""
    data = fs.split(fs.load("digits"), clients=4, iid=True)
    model = fs.from_torch(nets.mlp(64, 32, 10))
    return fs.train(data, fs.fedadam(lr=0.05), fs.Budget(5), 40, model=model, every=40, **DIGITS)


@pytest.mark.slow
def test_it_learns_digits_under_epsilon_5(digits: fs.Run):
    assert digits.plan.epsilon == pytest.approx(5.0)
    assert digits.plan.releases == 40
    assert digits.accuracy > 87


@pytest.mark.slow
def test_it_is_kept_and_given_back(digits: fs.Run, tmp_path: Path):
    x = digits.split.dataset.x_test
    digits.save(tmp_path / "m")
    with pytest.raises(fs.InputError, match="from_torch"):
        fs.load_model(tmp_path / "m")
    loaded = fs.load_model(tmp_path / "m", model=fs.from_torch(nets.mlp(64, 32, 10, seed=9)))
    assert np.array_equal(loaded.predict(x), digits.model.predict(x))
    module = loaded.to_torch()
    assert type(module) is torch.nn.Sequential
    assert not module.training
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), loaded.logits(x), atol=1e-5)
    fresh = nets.mlp(64, 32, 10)
    fresh.load_state_dict(module.state_dict())  # it is the same architecture
    assert np.array_equal(module.labels, loaded.labels)


# --- in part ------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)
Y = np.arange(40, dtype=np.int32) % 3


def stepped(net: Any, prepared: Prepared = Prepared(), **how: Any) -> fs.Trained:
    """A trained model: three steps without noise."""
    model: Any = fs.from_torch(net, **how)
    params = model.init(None, (64,), 3)
    total = jax.grad(lambda p: jnp.sum(jax.vmap(model.loss, (None, 0, 0))(p, X, Y)))
    for _ in range(3):
        params = {name: np.asarray(params[name] - 0.01 * slope) for name, slope in total(params).items()}
    return fs.Trained(
        params=params, model=model, name=model.name, shape=(64,), labels=("a", "b", "c"), prepared=prepared
    )


def changed(net: Any, trained: fs.Trained) -> list[str]:
    before, after = net.state_dict(), trained.to_torch().state_dict()
    assert list(before) == list(after)
    return [name for name in before if not torch.equal(before[name], after[name])]


def test_only_the_last_layers_are_trained_if_the_rest_is_frozen():
    net = nets.cnn()
    wanted = ["6.weight", "6.bias", "8.weight", "8.bias"]
    named = stepped(net, trainable=["6", "8"])
    assert changed(net, named) == wanted
    assert all(p.requires_grad for p in net.parameters())  # the one that was given is left alone
    for layer in (net[1], net[2]):
        layer.requires_grad_(False)
    frozen = stepped(net)
    assert all(np.array_equal(named.params[key], frozen.params[key]) for key in wanted)


def test_an_adapter_changes_linear_layers_by_a_matrix_of_its_rank():
    net = nets.cnn()
    trained = stepped(net, rank=2)
    assert {name: leaf.shape for name, leaf in trained.params.items()} == {
        "6.down.weight": (2, 36), "6.up.weight": (8, 2), "8.down.weight": (2, 8), "8.up.weight": (3, 2)
    }  # fmt: skip
    assert changed(net, trained) == ["6.weight", "8.weight"]
    moved = trained.to_torch()[6].weight - net[6].weight
    assert np.linalg.matrix_rank(moved.detach().numpy(), tol=1e-5) == 2
    with torch.no_grad():
        np.testing.assert_allclose(trained.to_torch()(torch.from_numpy(X)).numpy(), trained.logits(X), atol=1e-4)


def test_it_begins_at_the_modules_own_weights_and_an_adapter_at_none():
    net = nets.cnn()
    with torch.no_grad():
        wanted = net.eval()(torch.from_numpy(X)).numpy()
    hows: list[Any] = [{}, {"rank": 3}, {"trainable": "8"}]
    for how in hows:
        model: Any = fs.from_torch(net, **how)
        np.testing.assert_allclose(model.logits(model.init(None, (64,), 3), X), wanted, atol=1e-5)


def test_behind_a_preparation_it_is_given_back_with_it():
    trained = stepped(nets.mlp(64), prepared=Prepared(steps=(fs.UnitNorm(),), released={}, stds={}))
    with torch.no_grad():
        logits = trained.to_torch()(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(logits, trained.logits(X), atol=1e-5)
    assert np.abs(trained.logits(5 * X) - logits).max() < 1e-4  # its length no longer counts
