"""A torch module is read before it meets a record: what mixes records, draws, decides or runs a stranger's Python."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import torch_nets as nets
from fedsofim.core.models import Model
from fedsofim.core.torch_models import from_torch
from fedsofim.errors import InputError, Refused

torch, nn = nets.torch, nets.nn


class Around(nn.Module):
    """A linear layer with something before it."""

    def __init__(self, before: Callable[[Any], Any], features: int = 4) -> None:
        super().__init__()
        self.before, self.layer = before, nn.Linear(features, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(self.before(x))


def read(module: Any, shape: tuple[int, ...] = (4,), **how: Any) -> Model:
    model: Any = from_torch(module, **how)
    model.gradient.network.check(shape, (), np.dtype(np.int32))
    return model


MIXING = {
    "mean": lambda x: x - x.mean(0),
    "whole sum": lambda x: x / x.sum(),
    "softmax of the batch": lambda x: torch.softmax(x, dim=0),
    "neighbours": lambda x: x + torch.roll(x, 1, dims=0),
    "turned": lambda x: x.flip(0),
    "product of records": lambda x: (x @ x.T) @ x,
    "another order": lambda x: x[torch.arange(x.size(0) - 1, -1, -1)],
    "sorted": lambda x: x.sort(dim=0).values,
    "rows seen as columns": lambda x: x.reshape(4, -1).T.contiguous(),
    "only where large": lambda x: torch.where(x > 1e6, x.mean(0), x),
    "largest of all": lambda x: x / x.amax(),
    "running sum": lambda x: x.cumsum(0),
    "first record": lambda x: x + x[:1],
    "joined": lambda x: torch.cat([x[1:], x[:1]]),
}


@pytest.mark.parametrize("before", MIXING.values(), ids=list(MIXING))
def test_what_mixes_records_is_refused(before: Callable[[Any], Any]):
    with pytest.raises(Refused, match="each record's gradient must depend on that record alone"):
        read(Around(before))


ALONE = {
    "centred": lambda x: x - x.mean(1, keepdim=True),
    "softmax": lambda x: torch.softmax(x, dim=-1),
    "sorted": lambda x: x.sort(dim=1).values,
    "there and back": lambda x: x.view(-1, 2, 2).transpose(1, 2).reshape(x.size(0), -1),
    "chosen": lambda x: torch.where(x > 0, x, 0.1 * x),
    "products": lambda x: (x.unsqueeze(2) @ x.unsqueeze(1)).mean(2),
    "padded": lambda x: nn.functional.pad(x[:, 1:], (1, 0)),
}


@pytest.mark.parametrize("before", ALONE.values(), ids=list(ALONE))
def test_what_keeps_them_apart_is_not(before: Callable[[Any], Any]):
    assert list(read(Around(before)).init(None, (4,), 3)) == ["layer.bias", "layer.weight"]  # type: ignore[arg-type]


# --- normalisation and dropout ------------------------------------------------------------------------------


def normed() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def test_batch_norm_is_refused_by_name():
    with pytest.raises(Refused, match=r"BatchNorm1d.*GroupNorm"):
        read(normed())


def test_frozen_it_is_a_map_of_each_record_by_what_was_stored():
    net = normed()
    with torch.no_grad():
        net(torch.randn(50, 4))
    before = net[1].running_mean.clone()
    model: Any = read(net, trainable="3")
    assert list(model.gradient.network.shapes) == ["3.bias", "3.weight"]
    x = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    model.gradient.network.clipped_sum(
        model.gradient.network.initial(), x, np.zeros(9, np.int32), np.ones(9), clip=1.0, step=None
    )
    assert torch.equal(model.gradient.network.whole.get_buffer("module.1.running_mean"), before)
    with torch.no_grad():
        wanted = net.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(model.logits(model.init(None, (4,), 3), x), wanted, atol=1e-6)


def test_batch_statistics_without_parameters_are_refused_too():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, affine=False, track_running_stats=False), nn.Linear(6, 3))
    with pytest.raises(Refused, match="native_batch_norm"):
        read(net)


def test_dropout_is_off():
    torch.manual_seed(0)
    plain = nn.Linear(4, 3)
    model, other = read(nn.Sequential(nn.Dropout(0.9), plain)), read(nn.Sequential(nn.Identity(), plain))
    x, y = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    found = [m.gradient.rows(list(m.init(None, (4,), 3).values()), x, y) for m in (model, other)]  # type: ignore[union-attr]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_random_numbers_are_refused():
    with pytest.raises(Refused, match="random"):
        read(Around(lambda x: torch.bernoulli(torch.sigmoid(x))))


# --- a stranger's Python ------------------------------------------------------------------------------------


def test_a_branch_on_records_is_no_graph():
    with pytest.raises(InputError, match="control flow"):
        read(Around(lambda x: x if x.sum() > 0 else -x))


def test_the_authors_python_never_sees_a_record():
    seen: list[Any] = []

    model: Any = read(Around(lambda x: seen.append(x) or x))
    count = len(seen)
    model.gradient.rows(list(model.init(None, (4,), 3).values()), np.ones((8, 4), np.float32), np.zeros(8, np.int32))
    model.logits(model.init(None, (4,), 3), np.ones((8, 4), np.float32))
    assert count == len(seen) > 0
    assert not any(isinstance(x, torch.Tensor) for x in seen)


def kept_apart(x: Any) -> Any:
    return x


torch.fx.wrap("kept_apart")


def test_a_function_that_fx_was_told_to_leave_alone_is_refused():
    with pytest.raises(Refused, match="not torch's own"):
        read(Around(lambda x: kept_apart(x)))


def test_a_hook_is_refused():
    net = nets.mlp(features=4)
    net[0].register_forward_hook(lambda *_: None)
    with pytest.raises(Refused, match="hooks"):
        read(net)


@pytest.mark.parametrize("name", ["forward", "__deepcopy__"])
def test_a_layer_with_a_function_of_its_own_is_no_layer(name: str):
    net = nets.mlp(features=4)
    seen: list[Any] = []
    layer = net[0]
    setattr(layer, name, lambda x: seen.append(x) or layer)
    with pytest.raises(InputError):
        read(net)
    assert not any(isinstance(x, torch.Tensor) for x in seen)


# --- what is trained ----------------------------------------------------------------------------------------


def test_rows_that_are_not_records_are_refused():
    with pytest.raises(Refused, match="other rows than records"):
        read(Wide(), (2, 4))


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x.reshape(-1, 4)).view(x.size(0), 2, 3).mean(1)


def test_parameters_outside_layers_are_refused_by_name():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x * self.scale)

    with pytest.raises(Refused, match="Scaled"):
        read(Scaled())
    assert list(read(Scaled(), trainable="layer").init(None, (4,), 3)) == ["layer.bias", "layer.weight"]  # type: ignore[arg-type]


def test_a_weight_that_is_used_outside_its_layer_is_refused():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.last(torch.tanh(self.layer(x)) @ self.layer.weight)

    with pytest.raises(Refused, match=r"layer\.weight is used outside its layer"):
        read(Tied())
    assert list(read(Tied(), trainable="last").init(None, (4,), 3)) == ["last.bias", "last.weight"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "how, said",
    [({"trainable": "7"}, "it has 0, 2"), ({"trainable": []}, "no parameter"), ({"rank": 0}, "rank"),
     ({"loss": lambda out, y: nn.functional.cross_entropy(out, y)}, "reduction='none'"),
     ({"loss": lambda out, y: out}, "one number for each")],
    ids=["a layer", "none", "rank", "a loss of all", "a loss of each"],
)  # fmt: skip
def test_senseless_choices_are_errors(how: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        read(nets.mlp(features=4), **how)


def test_a_loss_of_ones_own():
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)  # averaged by default: taken for each record here
    model: Any = read(nets.mlp(features=4), loss=loss)
    plain: Any = read(nets.mlp(features=4))
    x, y = np.ones((4, 4), np.float32), np.zeros(4, np.int32)
    first, second = (m.gradient.rows(list(m.init(None, (4,), 3).values()), x, y)[2] for m in (model, plain))
    assert loss.reduction == "mean"
    assert np.abs(first - second).max() > 1e-3
