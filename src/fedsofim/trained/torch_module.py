"""A trained head, or a module that was trained, as a torch module: from features to logits, prepared inside.

Importing this file needs torch.
"""

from typing import Any

from fedsofim.core.isolation import call_apart
from fedsofim.errors import InputError
from fedsofim.trained.model import Trained
from fedsofim.trained.operations import Cap, Move, Unit, operations_of

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
except ImportError:
    raise InputError("this needs torch, which is not installed: pip install 'fedsofim[torch]'") from None


def as_module(model: Trained) -> nn.Module:
    """The module, in evaluation mode; `labels` says which logit is which class, `task` how logits are read.

    One that came from torch (fs.from_torch) is a copy of itself with the trained weights in it, behind the preparation
    if there was one.
    """
    layers = [_LAYERS[type(operation)](operation) for operation in operations_of(model)]
    trained = None if model.model.module is None else call_apart(model.model.module, model.params)
    if isinstance(trained, nn.Module):
        module: Any = nn.Sequential(*layers, trained) if layers else trained
    else:
        model.check_exportable("torch")
        module = nn.Sequential(*layers, _head(*model.theta()))
    module.labels, module.task = model.labels, model.task
    return module.eval()


def _head(weight: Any, bias: Any) -> nn.Linear:
    head = nn.Linear(*weight.shape)
    with torch.no_grad():
        head.weight.copy_(torch.tensor(weight.T))
        head.bias.copy_(torch.tensor(bias))
    return head


class MoveLayer(nn.Module):
    """x -> (x - shift)·scale, in doubles on the way as in training."""

    shift: Tensor
    scale: Tensor

    def __init__(self, move: Move):
        super().__init__()
        self.register_buffer("shift", torch.tensor(move.shift, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(move.scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        moved = x.double() - self.shift
        return (moved @ self.scale if self.scale.ndim == 2 else moved * self.scale).float()


class UnitLayer(nn.Module):
    """Rows of length 1, with a constant and square roots beside them where the recipe has them."""

    def __init__(self, unit: Unit):
        super().__init__()
        self.constant, self.lift = unit.constant, unit.lift

    def forward(self, x: Tensor) -> Tensor:
        x = x.double()
        if self.constant:
            x = torch.cat([x / x.shape[1] ** 0.5, torch.ones_like(x[:, :1])], dim=1)
        u = _unit(x)
        if self.lift:
            u = torch.cat([u, _unit(torch.sign(u) * torch.sqrt(torch.abs(u)))], dim=1) / 2**0.5
        return u.float()


class CapLayer(nn.Module):
    """No row longer than cap·radius."""

    def __init__(self, cap: Cap):
        super().__init__()
        self.radius, self.cap = cap.radius, cap.cap

    def forward(self, x: Tensor) -> Tensor:
        norm = x.double().norm(dim=1, keepdim=True)
        return (self.radius * x.double() * torch.clamp(self.cap / norm.clamp(min=1e-30), max=1.0)).float()


def _unit(x: Tensor) -> Tensor:
    largest = x.abs().amax(dim=1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1.0)
    norm = x.norm(dim=1, keepdim=True)
    return x / torch.where(norm > 0, norm, 1.0)


_LAYERS: dict[type, Any] = {Move: MoveLayer, Unit: UnitLayer, Cap: CapLayer}
