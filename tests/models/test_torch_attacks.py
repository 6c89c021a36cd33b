"""Torch modules by whoever wants the records: their Python never sees one, and no sum moves by more than is priced.

Each attack once succeeded against a torch path that ran the module on records, or is a variant of one that did.
"""

import builtins
import collections
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
import torch_zoo as zoo

torch, nn, F = zoo.torch, zoo.nn, zoo.F

from torch import fx  # noqa: E402 # pyright: ignore[reportMissingImports]
from torch._subclasses.fake_tensor import FakeTensor  # noqa: E402 # pyright: ignore[reportMissingImports]

RECORD = 1e6  # no made-up number is as large
SEEN: list[Any] = []


def real(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not isinstance(x, fx.Proxy | FakeTensor)


def see(x: Any) -> bool:
    if real(x):
        SEEN.append(x.detach().clone())
    return real(x)


def mix(x: Any) -> Any:
    return x.mean(0, keepdim=True).expand_as(x) * 1000


def moved_by(module: Any) -> float:
    """How far the sum of a client moves, in clips, when its first record is replaced."""
    ends = []
    for first in (RECORD, -RECORD):
        x = np.zeros((16, 4), np.float32)
        x[0] = first
        y = np.arange(16, dtype=np.int32) % 3
        data = fs.Dataset.of("toy", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
        split = fs.Split(data, (np.arange(16),), "toy")
        run = fs.train(
            split, fs.make("fedgd", {"lr": 1.0}), fs.Budget(1.0), 1, model=fs.from_torch(module), clip=1.0, seed=0,
            preparation=(),
        )  # fmt: skip
        ends.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(run.params)]))
    return float(np.linalg.norm(ends[0] - ends[1])) * 16


class One(nn.Module):
    def __init__(self, step: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.l, self.step = nn.Linear(4, 3), step

    def forward(self, x: Any) -> Any:
        return self.l(self.step(x) if self.step else x)


# --- 1: fake tensors that real ones can be told from --------------------------------------------------------

FAKE = {
    "storage": lambda x: x.cumsum((x.storage().device == torch.device("meta")) * 1),
    "pointer": lambda x: x.cumsum((x.untyped_storage().data_ptr() == 0) * 1),
    "pointer of the tensor": lambda x: x.cumsum(1 - 1 * (x.data_ptr() != 0)),
    "type": lambda x: mix(x) if see(x) else x,
    "class": lambda x: x if type(x) is not torch.Tensor else mix(x),
    "a mode": lambda x: x if torch.utils._python_dispatch._get_current_dispatch_mode() else mix(x),
    "compiling": lambda x: x if torch.compiler.is_exporting() else mix(x),
    "how large": lambda x: torch.where(x.abs().amax() > RECORD / 2, mix(x), x),
    "how many": lambda x: mix(x) if x.shape[0] > 1 else x,
    "how many more": lambda x: mix(x) if x.shape[0] > 3 else x,
}


# --- 2: layers that contain modules -------------------------------------------------------------------------


class MyLayer(nn.TransformerEncoderLayer):
    def forward(self, src: Any, *_: Any, **__: Any) -> Any:
        return mix(src) if see(src) else src


class Encoder(One):
    def __init__(self) -> None:
        super().__init__()
        layer = MyLayer(4, 1, 4, 0.0, batch_first=True)
        self.e = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.l(self.e(x.view(-1, 1, 4)).flatten(1))


class Own(nn.Module):
    def forward(self, x: Any, **_: Any) -> Any:
        return mix(x) if see(x) else x


class Last(nn.Module):
    def forward(self, tgt: Any, memory: Any, **_: Any) -> Any:
        return memory


class Whole(One):
    def __init__(self) -> None:
        super().__init__()
        how: Any = {"custom_encoder": Own(), "custom_decoder": Last(), "batch_first": True, "dropout": 0.0}
        self.t = nn.Transformer(4, 1, 1, 1, 4, **how)

    def forward(self, x: Any) -> Any:
        return self.l(self.t(x.view(-1, 1, 4), x.view(-1, 1, 4)).flatten(1))


# --- 3: code that the author writes -------------------------------------------------------------------------

KEY = "other=0) if not evil.see(x) else evil.mix(x) if evil.see(x) else evil.again(x, dummy"
NAME = 'q") if evil_see(x) is None else getattr(self, "q" or "'


class Evil:
    see, mix = staticmethod(see), staticmethod(mix)


class Keyword(One):
    def forward(self, x: Any) -> Any:
        return self.l(x.add(**{KEY: 1}) if isinstance(x, fx.Proxy) else x)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module(NAME, nn.Linear(4, 3))

    def forward(self, x: Any) -> Any:
        return self._modules[NAME](x)  # type: ignore[misc]


class Name(str):
    def __hash__(self) -> int:
        SEEN.append("hashed")
        return super().__hash__()


class NamesOfItsOwn(One):
    def named_parameters(self, *args: Any, **how: Any) -> Any:
        return ((Name(name), p) for name, p in super().named_parameters(*args, **how))


class Number(float):
    def __mul__(self, other: Any) -> Any:
        SEEN.append(other)
        return super().__mul__(other)

    __rmul__ = __mul__


# --- 4: hooks, subclasses, operations of one's own ----------------------------------------------------------


class Hooks(collections.OrderedDict):
    def __bool__(self) -> bool:
        return sys._getframe(1).f_code.co_name in ("_call_impl", "inner")

    def items(self) -> Any:
        return [*super().items(), (-1, hook)]

    def __deepcopy__(self, memo: Any) -> Any:
        return Hooks()


def hook(module: Any, args: Any) -> Any:
    return (mix(args[0]),) if see(args[0]) else None


class Hooked(One):
    def __init__(self) -> None:
        super().__init__()
        self.l._forward_pre_hooks = Hooks()


class OnReal(One):
    def __init__(self) -> None:
        super().__init__()
        self.l.register_forward_pre_hook(hook)


class Tensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for a in args:
            if type(a) is torch.Tensor:
                SEEN.append(a)
        return super().__torch_function__(func, types, args, kwargs or {})

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Subclass(One):
    def __init__(self, kind: str = "parameter") -> None:
        super().__init__()
        own = torch.randn(3, 4).as_subclass(Tensor)
        if kind == "parameter":
            self.l.weight = nn.Parameter(own)
        elif kind == "buffer":
            self.register_buffer("b", own)
        else:
            self.b = own
        self.kind = kind

    def forward(self, x: Any) -> Any:
        return self.l(x) if self.kind == "parameter" else self.l(x) + self.b.sum()


def custom() -> Any:
    name = "fedsofim_tests::mix"
    if not hasattr(torch.ops.fedsofim_tests, "mix"):
        made = torch.library.custom_op(name, lambda x: mix(x).clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
        made.register_fake(torch.empty_like)
    return torch.ops.fedsofim_tests.mix


class SecondTime(One):
    """Another function at every call."""

    calls = 0

    def forward(self, x: Any) -> Any:
        SecondTime.calls += 1
        return self.l(x) * SecondTime.calls


class Keeps(One):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1, 4))

    def forward(self, x: Any) -> Any:
        before = self.kept.sum()
        self.kept.copy_(x[:1])
        return self.l(x) + before


ATTACKS: dict[str, Callable[[], Any]] = {
    **{name: partial(One, step) for name, step in FAKE.items()},
    "an encoder's layer": Encoder,
    "a transformer's parts": Whole,
    "a keyword": Keyword,
    "a module's name": Named,
    "names of a type of its own": NamesOfItsOwn,
    "a number of a type of its own": lambda: One(lambda x: x * Number(1.0)),
    "hooks that deny themselves": Hooked,
    "a hook": OnReal,
    "a parameter's subclass": Subclass,
    "a buffer's subclass": lambda: Subclass("buffer"),
    "a constant's subclass": lambda: Subclass("constant"),
    "an operation": lambda: One(custom()),
    "other each time": SecondTime,
    "a buffer that keeps": Keeps,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_refused_or_moves_a_sum_as_priced_and_never_sees_a_record(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(builtins, "evil", Evil, raising=False)
    monkeypatch.setattr(builtins, "evil_see", see, raising=False)
    torch.manual_seed(0)
    module = ATTACKS[name]()
    SEEN.clear()
    try:
        moved = moved_by(module)
    except fs.InputError:
        moved = 0.0
    assert moved <= 2
    assert not any(isinstance(x, torch.Tensor) and x.numel() and float(x.abs().max()) > RECORD / 2 for x in SEEN)
    assert "hashed" not in SEEN


MUST_BE_REFUSED = [
    "storage", "type", "class", "how many", "an encoder's layer", "a transformer's parts",
    "names of a type of its own", "hooks that deny themselves", "a hook", "a parameter's subclass",
    "a buffer's subclass", "an operation", "other each time", "a buffer that keeps",
]  # fmt: skip


@pytest.mark.parametrize("name", MUST_BE_REFUSED)
def test_it_is_refused_before_a_record_is_there(name: str):
    with pytest.raises(fs.InputError):
        fs.from_torch(ATTACKS[name]()).init(None, (4,), 3)  # type: ignore[arg-type]


def test_the_authors_python_does_not_run_once_the_module_is_read():
    calls: list[int] = []
    model = fs.from_torch(One(lambda x: (calls.append(1), x)[1]))
    params = model.init(None, (4,), 3)  # type: ignore[arg-type]
    count = len(calls)
    assert count > 0
    x, y = jnp.ones((8, 4)), jnp.zeros(8, jnp.int32)
    model.logits(params, x)
    jax.grad(model.loss)(params, x[0], y[0])
    model.init(None, (4,), 3)  # type: ignore[arg-type]
    assert len(calls) == count


def test_what_was_read_stays_whatever_its_author_does_to_the_module():
    net = One()
    model = fs.from_torch(net)
    params, x = model.init(None, (4,), 3), jnp.ones((2, 4))  # type: ignore[arg-type]
    before = np.asarray(model.logits(params, x))
    with torch.no_grad():
        net.l.weight.zero_()
    net.step = mix
    assert np.array_equal(before, model.logits(params, x))
    assert np.array_equal(params["l.weight"], model.init(None, (4,), 3)["l.weight"])  # type: ignore[arg-type]


def test_an_export_that_was_replaced_gives_no_more_than_a_function_of_one_record(monkeypatch: pytest.MonkeyPatch):
    """What is read of it are names of operations and arrays; anything else is refused."""
    export = torch.export.export

    def replaced(module: Any, args: Any, **how: Any) -> Any:
        found = export(module, args, **how)
        monkeypatch.setattr(type(found), "run_decompositions", lambda self: self)
        for node in found.graph.nodes:
            if node.op == "call_function":
                node.target = see
        return found

    monkeypatch.setattr(torch.export, "export", replaced)
    with pytest.raises(fs.Refused, match="not an operation of torch's own"):
        fs.from_torch(One()).init(None, (4,), 3)  # type: ignore[arg-type]


def test_an_operation_under_a_known_name_is_refused():
    library = torch.library.Library("fedsofim_names", "DEF")
    library.define("relu(Tensor self) -> Tensor")
    library.impl("relu", mix, "CompositeExplicitAutograd")
    try:
        with pytest.raises(fs.Refused, match="not an operation of torch's own"):
            fs.from_torch(One(torch.ops.fedsofim_names.relu)).init(None, (4,), 3)  # type: ignore[arg-type]
    finally:
        library._destroy()
