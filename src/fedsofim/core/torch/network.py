"""A torch module whose gradients are summed behind the door: its graph, and Opacus at work on a copy of it.

The argument is in core/torch_gradient.py. Parameters are always passed in, as arrays, in the order of their names.
"""

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import fx, nn  # pyright: ignore[reportMissingImports]

from fedsofim.core.torch.losses import torch_loss_of
from fedsofim.core.torch.rows import PREFIX, Running, tensor_of, weighted
from fedsofim.core.torch.tracing import WithLoss, attribute, traced
from fedsofim.errors import InputError, Refused
from fedsofim.tasks import Task

MOST = 1024  # records of a batch: torch_gradient.py counts with it
_FORMED = 2**21  # numbers of formed rows held at a time
_READ = 8  # records of the batch that a module is tried with before any record is there
_TRAINED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.Embedding)
"""Layers whose rows Opacus forms by a rule of its own. Trained ones must be of these; frozen ones may be any."""


class TorchNetwork:
    """A module's graph from records to logits, and on to one loss a record."""

    def __init__(self, origin: nn.Module, logits: fx.GraphModule, whole: fx.GraphModule, of_task: bool) -> None:
        self.origin, self.logits, self.whole = origin, logits, whole  # the first only to be given back
        self.of_task = of_task  # is the loss the task's?
        trained = {n: p for n, p in whole.named_parameters() if p.requires_grad}
        if strange := [name for name in trained if not name.startswith(PREFIX)]:
            raise InputError(f"the loss has parameters of its own ({strange[0]}); expected them in the module")
        for node in whole.graph.nodes:
            if node.op == "get_attr" and attribute(whole, str(node.target)).requires_grad:
                raise Refused(
                    f"the parameter {str(node.target).removeprefix(PREFIX)} is used outside its layer, where Opacus "
                    "does not see it; call the layer, or freeze the parameter"
                )
        self.parameters = dict(sorted((n.removeprefix(PREFIX), p) for n, p in trained.items()))
        self.shapes = {name: tuple(p.shape) for name, p in self.parameters.items()}
        self._running: Running | None = None
        self._busy = threading.Lock()  # parameters are loaded into it

    @staticmethod
    def of(module: nn.Module, loss: Callable[..., Any] | None) -> "TorchNetwork":
        """Reads a module that is nobody else's; it is left in evaluation mode. Without a loss it has the task's."""
        module.eval()
        part: Any
        for name, part in module.named_modules():
            if getattr(part, "inplace", False):
                part.inplace = False  # in place, a layer would overwrite what the one before it gave
            if any(p.requires_grad for p in part.parameters(recurse=False)) and type(part) not in _TRAINED:
                _explain(name, part)
        logits = traced(module)
        whole = traced(WithLoss(logits, torch_loss_of(Task()) if loss is None else loss))
        return TorchNetwork(module, logits, whole, of_task=loss is None)

    def for_task(self, task: Task) -> "TorchNetwork":
        """The same with the task's loss, unless it has one of its own."""
        if not self.of_task:
            return self
        return TorchNetwork(self.origin, self.logits, traced(WithLoss(self.logits, torch_loss_of(task))), of_task=True)

    def own(self) -> "TorchNetwork":
        """A copy that nobody else holds, read anew."""
        logits, whole = (traced(graph) for graph in copy.deepcopy((self.logits, self.whole)))
        return TorchNetwork(self.origin, logits, whole, self.of_task)

    def check(self, shape: tuple[int, ...], label: tuple[int, ...], labels: np.dtype) -> None:
        """Refused or InputError unless it works for records and labels of these shapes, and keeps them apart."""
        x, y = np.zeros((_READ, *shape), np.float32), np.zeros((_READ, *label), labels)
        self.clipped_sum(self.initial(), x, y, np.ones(_READ, np.float32), clip=1.0, step=None)

    def initial(self) -> list[np.ndarray]:
        """The parameters as they were given."""
        return [p.detach().numpy().copy() for p in self.parameters.values()]

    def predicted(self, params: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Logits of a batch."""
        named = {name: tensor_of(a) for name, a in zip(self.shapes, params, strict=True)}
        with torch.no_grad():
            return torch.func.functional_call(self.logits, named, (tensor_of(x),)).numpy()

    def clipped_sum(
        self, params: Sequence, x: np.ndarray, y: np.ndarray, weight: np.ndarray, *, clip: float, step: float | None
    ) -> list[np.ndarray]:
        """Σ weight·clip(gradient) in doubles, by parameter; in whole numbers of `step` until the end, if there is one.

        Batch by batch: `batch_size` says how many records each has, the last one filled up with nothing.
        """
        totals = [np.zeros(shape, np.float64 if step is None else np.int64) for shape in self.shapes.values()]
        with self._busy:
            running = self._ready(params)
            size = batch_size(len(y), running.formed)
            for first in range(0, len(y), size):
                piece = slice(first, first + size)
                rows = running.gradients(*(_filled(a[piece], size) for a in (x, y)))
                factor = tensor_of(_filled(weight[piece], size)).double() * running.factors(rows, clip)
                for total, row in zip(totals, rows, strict=True):
                    found = weighted(row, factor).numpy()
                    total += found if step is None else np.rint(found / step).astype(np.int64)
        return [t if step is None else t.astype(np.float64) * step for t in totals]

    def rows(self, params: Sequence, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """Every record's gradient, unclipped, by parameter: of as many records as whoever asks can hold."""
        found, size = [], batch_size(len(y))
        with self._busy:
            running = self._ready(params)
            for first in range(0, len(y), size):
                x_piece, y_piece = (a[first : first + size] for a in (x, y))
                rows = running.gradients(_filled(x_piece, size), _filled(y_piece, size))
                found.append([row.dense[: len(y_piece)].numpy() for row in rows])
        return [np.concatenate(leaf) for leaf in zip(*found, strict=True)]

    def _ready(self, params: Sequence) -> "Running":
        if self._running is None:
            self._running = Running(copy.deepcopy(self.whole), tuple(self.shapes))
        self._running.load(params)
        return self._running


def batch_size(records: int, formed: int = 0) -> int:
    """How many records go through the module at a time, where each has so many formed numbers.

    >>> batch_size(50_000, 100), batch_size(50, 100), batch_size(50_000, 10**6)
    (1024, 64, 2)
    """
    fitting = max(2, min(MOST, _FORMED // max(1, formed)))
    return min(fitting, max(2, 1 << (records - 1).bit_length()))


def _filled(a: np.ndarray, size: int) -> np.ndarray:
    return a if len(a) == size else np.concatenate([a, np.zeros((size - len(a), *a.shape[1:]), a.dtype)])


def _explain(name: str, part: nn.Module) -> None:
    """Refused: why this layer cannot be trained."""
    kind = type(part).__name__
    if "Batch" in kind:
        raise Refused(
            f"the layer {name or kind} is a {kind}, which normalises each record by the others of its batch: a record "
            "would count in other records' gradients, beyond the clip. Use nn.GroupNorm or nn.LayerNorm (Opacus' "
            "ModuleValidator.fix replaces it), or freeze it: then it uses its stored statistics"
        )
    known = ", ".join(k.__name__ for k in _TRAINED)
    raise Refused(
        f"the parameters of {name or 'the module'} ({kind}) are trained, and Opacus has no rule for their rows; "
        f"trained parameters stand in {known}. Freeze them, or put them into such layers"
    )
