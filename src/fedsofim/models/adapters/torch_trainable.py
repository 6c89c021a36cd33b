"""Which parameters of a torch module are trained: some of its layers, or low-rank adapters beside its linear ones.

Everything happens on a copy: the module that was given is never changed. Importing this needs torch.
"""

import copy
from collections.abc import Iterable, Sequence

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from fedsofim.errors import InputError, expect_whole


class LowRank(nn.Module):
    """x -> base(x) + up(down(x)): the base stays as it is, and the change has rank r. It begins at no change at all."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        with torch.no_grad():
            fixed = torch.Generator().manual_seed(rank)  # the same wherever it is made
            self.down.weight.copy_(torch.randn(self.down.weight.shape, generator=fixed) / base.in_features**0.5)
            self.up.weight.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))

    def merged(self) -> nn.Linear:
        """One layer that does the same."""
        layer = copy.deepcopy(self.base)
        with torch.no_grad():
            layer.weight += self.up.weight @ self.down.weight
        return layer


def chosen(module: nn.Module, trainable: str | Sequence[str] | None, rank: int | None) -> nn.Module:
    """A copy in float32 in which only what was chosen has `requires_grad`: by default what has it already.

    `trainable` are names of layers or parameters; all others are frozen. With a `rank`, every linear layer among them
    (or of all) is frozen too and gets an adapter, which is then all that is trained.
    """
    copied = copy.deepcopy(module).float()
    names = [trainable] if isinstance(trainable, str) else None if trainable is None else list(trainable)
    if names is not None:
        _freeze_others(copied, names)
    if rank is not None:
        expect_whole("rank", rank, 1)
        copied = _adapted(copied, names, rank)
    if not any(p.requires_grad for p in copied.parameters()):
        raise InputError("no parameter of the module is trained; set requires_grad, or name layers with trainable=")
    return copied


def merged(module: nn.Module) -> nn.Module:
    """The module with adapters added into the layers they stand beside; in place."""
    for name, part in list(module.named_children()):
        module.add_module(name, part.merged() if isinstance(part, LowRank) else merged(part))
    return module.merged() if isinstance(module, LowRank) else module


def _freeze_others(module: nn.Module, names: list[str]) -> None:
    known = {name for name, _ in module.named_parameters()} | {name for name, _ in module.named_modules() if name}
    for name in names:
        if name not in known:
            layers = sorted({n.rpartition(".")[0] or n for n, _ in module.named_parameters()})
            raise InputError(f"trainable names {name!r}, which the module does not have; it has {', '.join(layers)}")
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(_under(name, names))


def _adapted(module: nn.Module, names: Iterable[str] | None, rank: int) -> nn.Module:
    linear = [n for n, m in module.named_modules() if type(m) is nn.Linear and (names is None or _under(n, names))]
    if not linear:
        raise InputError("rank is given, but the module has no nn.Linear (among trainable) to put an adapter beside")
    module.requires_grad_(False)
    for name in linear:
        adapter = LowRank(module.get_submodule(name), rank)  # type: ignore[arg-type]
        if not name:
            return adapter
        parent, _, last = name.rpartition(".")
        module.get_submodule(parent).add_module(last, adapter)
    return module


def _under(name: str, names: Iterable[str]) -> bool:
    """Is this one of the names, or inside one of them?

    >>> _under("fc.1.weight", ["fc.1"]), _under("fc.10.weight", ["fc.1"])
    (True, False)
    """
    return any(name == n or name.startswith(f"{n}.") for n in names)
