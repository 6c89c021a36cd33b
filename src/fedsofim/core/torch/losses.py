"""The losses of core/losses.py in torch: of a batch, one number a record."""

import math
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from fedsofim.tasks import CLASSES, COUNTS, NUMBERS, TWO, Task


def torch_loss_of(task: Task) -> Callable[[Any, Any], Any]:
    """loss(z, y): z has shape (records, outputs), y as tasks.py has it."""
    if task.kind == CLASSES:
        return nn.CrossEntropyLoss(reduction="none")
    if task.kind == NUMBERS:
        far = math.inf if task.huber is None else task.huber / task.half
        return lambda z, y: _huber(z[:, 0] - y, far)
    if task.kind == COUNTS:
        top = math.log(task.ends[1] / task.scale)
        return lambda z, y: _poisson(z[:, 0], y.to(z.dtype) / task.scale, top)
    return (lambda z, y: _logistic(z, y.unsqueeze(1))) if task.kind == TWO else _logistic


def _logistic(z: Any, y: Any) -> Any:
    return functional.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none").sum(dim=1)


def _huber(error: Any, far: float) -> Any:
    near = error if far == math.inf else torch.clamp(error, -far, far)
    return near * error - 0.5 * near * near


def _poisson(z: Any, y: Any, top: float) -> Any:
    inside = torch.clamp(z, max=top)
    return torch.exp(inside) * (1.0 + torch.relu(z - top)) - y * z
