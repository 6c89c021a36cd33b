"""What a torch module may do: what mixes records, draws, branches, changes or has no translation is refused by name."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
import torch_zoo as zoo

torch, nn, F = zoo.torch, zoo.nn, zoo.F


class Around(nn.Module):
    """A function, with the module at hand, before a linear layer."""

    def __init__(self, before: Callable[[Any, Any], Any], **parts: Any) -> None:
        super().__init__()
        self.before, self.layer = before, nn.Linear(4, 3)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any) -> Any:
        return self.layer(self.before(self, x))


def read(module: Any, shape: tuple[int, ...] = (4,), outputs: int = 3, **how: Any) -> fs.Model:
    model = fs.from_torch(module, **how)
    model.init(None, shape, outputs)  # type: ignore[arg-type]
    return model


def trained(model: fs.Model) -> list[str]:
    return list(model.init(None, (4,), 3))  # type: ignore[arg-type]


# --- records of a batch -------------------------------------------------------------------------------------

MIXING = {
    "mean": lambda s, x: x - x.mean(0),
    "whole sum": lambda s, x: x / x.sum(),
    "softmax of the batch": lambda s, x: torch.softmax(x, dim=0),
    "neighbours": lambda s, x: x + torch.roll(x, 1, dims=0),
    "product of records": lambda s, x: (x @ x.T) @ x,
    "another order": lambda s, x: x.flip(0),
    "largest of all": lambda s, x: x / x.amax(),
    "running sum": lambda s, x: x.cumsum(0),
    "first record": lambda s, x: x + x[:1],
    "how many": lambda s, x: x / x.shape[0],
    "other where alone": lambda s, x: x if x.shape[0] == 1 else 2 * x,
    "batch statistics": lambda s, x: F.instance_norm(x.unsqueeze(0)).squeeze(0) + F.layer_norm(x, x.shape),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_module_that_mixes_records_is_refused(name: str):
    with pytest.raises(fs.Refused, match="records of a batch count in each other's results"):
        read(Around(MIXING[name]))


def test_records_that_count_in_results_and_in_no_gradient_are_refused():
    with pytest.raises(fs.Refused, match="the result of the torch module"):
        read(Shifted())


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + x.mean(0)[:3]


def test_an_axis_of_records_that_is_not_first_is_refused():
    with pytest.raises(fs.Refused, match="records of a batch"):
        read(nn.TransformerEncoderLayer(4, 1, 4, 0.0, batch_first=False), (5, 4), loss=lambda z, y: z.sum((1, 2)))


class Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return 100 * slopes[0].mean(0, keepdim=True).expand_as(slopes[0])


def test_a_gradient_of_its_own_is_refused():
    net = nn.Sequential(nn.Linear(4, 4), Around(lambda s, x: Backwards.apply(x)))
    with pytest.raises(fs.Refused, match="the gradient in 0"):
        read(net)


def test_a_part_without_gradients_is_refused_and_a_detached_one_is_translated():
    def without(s: Any, x: Any) -> Any:
        with torch.no_grad():
            y = s.layer(x)
        return torch.cat([x[:, :1], y], 1)

    with pytest.raises(fs.Refused, match=r"detach\(\)"):
        read(Around(without))
    read(Around(lambda s, x: torch.cat([x[:, :1], s.layer(x).detach()], 1)))


# --- normalisation and dropout ------------------------------------------------------------------------------


def normed(**how: Any) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, **how), nn.ReLU(), nn.Linear(6, 3))


def test_batch_norm_in_training_is_refused_by_name():
    with pytest.raises(fs.Refused, match=r"1 is nn\.BatchNorm1d.*group norm.*eval\(\)"):
        read(normed())


@pytest.mark.parametrize("freeze", [lambda net: net.eval(), lambda net: net[1].requires_grad_(False)])
def test_with_stored_statistics_it_is_a_map_of_each_record(freeze: Callable[[Any], Any]):
    net = normed()
    with torch.no_grad():
        net(torch.randn(50, 4))
    freeze(net)
    model, x = read(net), np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    with torch.no_grad():
        wanted = net.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(model.logits(model.init(None, (4,), 3), x), wanted, atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [True, False])
def test_batch_norm_without_stored_statistics_is_refused_in_any_mode(mode: bool):
    with pytest.raises(fs.Refused, match="BatchNorm1d"):
        read(normed(affine=False, track_running_stats=False).train(mode))


DROPPING = {
    "a layer": lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 3)),
    "an attention": lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 1, 4, batch_first=True), nn.Linear(4, 3)),
    "a recurrent layer": lambda: zoo.Last(nn.GRU(4, 3, 2, batch_first=True, dropout=0.2), 3),
    "a function": lambda: Around(lambda s, x: F.dropout(x, 0.2, s.training)),
    "another function": lambda: Around(lambda s, x: F.alpha_dropout(x, 0.2, s.training)),
    "random slopes": lambda: Around(lambda s, x: F.rrelu(x, training=s.training)),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_is_refused_until_it_is_switched_off(name: str):
    shape = (4,) if name not in ("an attention", "a recurrent layer") else (5, 4)
    how: Any = {"loss": lambda z, y: z.flatten(1).sum(1)}
    with pytest.raises(fs.Refused, match=r"(?s)draws.*eval\(\)"):
        read(DROPPING[name](), shape, **how)
    read(DROPPING[name]().eval(), shape, **how)


def test_dropout_of_probability_0_is_none():
    read(nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)))


# --- what has no translation --------------------------------------------------------------------------------


def _branch(s: Any, x: Any) -> Any:
    return x if x.sum() > 0 else -x


REFUSED = {
    "branch": (_branch, "does not branch"),
    "item": (lambda s, x: x * x.sum().item(), "_local_scalar_dense.*torch.where"),
    "cond": (lambda s, x: torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,)), "'cond'.*torch.where"),
    "nonzero": (lambda s, x: x + x.nonzero().sum(), "nonzero.*torch.where"),
    "a mask": (lambda s, x: x + x[x > 0].sum(), "torch.where"),
    "whole numbers divided": (lambda s, x: x // 1 + x.long() // (1 + x.long().abs()), "fails where these are 0"),
    "random": (lambda s, x: x + torch.rand(4), r"aten\.rand.*random"),
    "random like": (lambda s, x: x + torch.randn_like(x), "randn_like.*random"),
    "bernoulli": (lambda s, x: torch.bernoulli(torch.sigmoid(x)), "random"),
    "dropout in any mode": (lambda s, x: F.dropout(x, 0.2, True), "dropout.*random"),
    "doubles": (lambda s, x: x.double().sin().float(), "float64"),
    "halves": (lambda s, x: x.half().float(), "float16"),
    "fourier": (lambda s, x: torch.fft.fft(x).abs(), "fft"),
    "singular values": (lambda s, x: torch.linalg.svdvals(x.view(-1, 2, 2)).repeat(1, 2), "svd"),
    "determinant": (lambda s, x: x * torch.linalg.det(x.view(-1, 2, 2))[:, None], r"aten\.\w*det"),
    "large whole numbers": (lambda s, x: x + x.long() * 2654435761 % 7, "32 bits"),
    "a dilated pool": (lambda s, x: F.max_pool1d(x[:, None], 2, 1, 0, 3).repeat(1, 4, 1)[..., 0], "dilation"),
    "places of a pool": (lambda s, x: x + F.max_pool1d(x[:, None], 4, return_indices=True)[1][:, 0], "places"),
    "a norm of order 3": (lambda s, x: x / x.norm(p=3, dim=1, keepdim=True), "order 3"),
    "changed input": (lambda s, x: x.mul_(2), "changes x"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_translation_is_refused_by_name(name: str):
    before, said = REFUSED[name]
    with pytest.raises(fs.InputError, match=f"(?s){said}"):
        read(Around(before))


@pytest.mark.parametrize(
    "net, said",
    [(nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), "ends in softmax"),
     (nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1)), "ends in log_softmax"),
     (nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Unflatten(1, (3, 1)), nn.Flatten()), "ends in sigmoid"),
     (nn.Linear(4, 2), r"shape \(2,\).*expected 3"), (nn.Linear(5, 3), "records?.*of shape"),
     (nn.Sequential(nn.Embedding(4, 3)), "long"), (nn.LazyLinear(3), "UninitializedParameter"),
     (3, "torch.nn.Module"),
     (Around(lambda s, x: x, bad=nn.Parameter(torch.tensor([np.nan]))), "NaN"),
     (zoo.Then(lambda h: (h, h), 4), "one tensor"), (zoo.Then(lambda h: h.sum(), 4), "one row for each|outputs"),
     (zoo.Then(lambda h: h.argmax(1), 4), "float32")],
    ids=lambda value: value[:20] if isinstance(value, str) else "net",
)  # fmt: skip
def test_senseless_modules_are_errors(net: Any, said: str):
    with pytest.raises(fs.InputError, match=f"(?s){said}"):
        read(net)


# --- what is trained, and by which loss ---------------------------------------------------------------------


def test_weights_outside_layers_and_tied_ones_are_trained():
    assert list(read(zoo.Bare(), (6,)).init(None, (6,), 3)) == ["matrix", "scale"]  # type: ignore[arg-type]
    text = read(zoo.Text().eval(), (5,), 9)
    names = list(text.init(None, (5,), 9))  # type: ignore[arg-type]
    assert "table.weight" in names and "out.weight" not in names


def test_doubles_are_read_as_floats():
    assert trained(read(nn.Linear(4, 3).double())) == ["bias", "weight"]


class Learning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, z: Any, y: Any) -> Any:
        return (z * self.scale).sum(1)


@pytest.mark.parametrize(
    "how, said",
    [({"trainable": "7"}, "it has 0, 2"), ({"trainable": []}, "no parameter"), ({"rank": 0}, "rank"),
     ({"loss": Learning()}, "trained parameters")],
    ids=["a layer", "none", "rank", "a loss that learns"],
)  # fmt: skip
def test_senseless_choices_are_errors(how: dict[str, Any], said: str):
    net = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
    with pytest.raises(fs.InputError, match=said):
        model = read(net, **how)
        model.loss(model.init(None, (4,), 3), np.ones(4, np.float32), np.int32(0))  # type: ignore[arg-type]


LOSSES = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5])),
    "a function": lambda z, y: F.cross_entropy(z, y, reduction="none") + z.square().mean(1),
    "a mean": lambda z, y: (z.logsumexp(1) - z.gather(1, y[:, None])[:, 0]).mean(),
    "closed over": (lambda scale: lambda z, y: (z * scale).logsumexp(1) * (y + 1))(torch.tensor([1.0, 2.0, 3.0])),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_ones_own_has_the_values_of_torch(name: str):
    net, loss = nn.Linear(4, 3), LOSSES[name]
    model = read(net, loss=loss)
    x, y = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.arange(6, dtype=np.int32) % 3
    params = model.init(None, (4,), 3)  # type: ignore[arg-type]
    for one, label in zip(x, y, strict=True):
        alone: Any = loss
        if isinstance(loss, nn.Module):  # averaged over a batch by its weights: taken for each record here
            how: Any = {"weight": loss.weight, "label_smoothing": loss.label_smoothing, "reduction": "none"}
            alone = nn.CrossEntropyLoss(**how)
        wanted = float(alone(net(torch.from_numpy(one[None])), torch.tensor([int(label)])).detach())
        assert float(model.loss(params, jnp.asarray(one), jnp.asarray(label))) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    "loss, said",
    [(lambda z, y: z, "one number for each|one number"), (lambda z, y: z.std(0).sum(), "records of a batch|fails|NaN"),
     (lambda z, y: z.sum(1) * torch.rand(1), "random")],
    ids=["outputs", "of the batch", "random"],
)  # fmt: skip
def test_a_loss_that_is_not_one_of_each_record_is_refused(loss: Any, said: str):
    model = read(nn.Linear(4, 3), loss=loss)
    with pytest.raises(fs.InputError, match=said):
        model.loss(model.init(None, (4,), 3), np.ones(4, np.float32), np.int32(0))  # type: ignore[arg-type]


def test_a_shape_that_was_not_read_is_an_error():
    model = read(nn.Linear(4, 3))
    with pytest.raises(fs.InputError, match=r"read for records of shape \(4,\)"):
        model.logits(model.init(None, (4,), 3), np.ones((2, 5), np.float32))  # type: ignore[arg-type]
