"""A torch module whose gradients are summed behind the door: its graph, and Opacus at work on a copy of it.

The argument is in core/torch_gradient.py. Parameters are always passed in, as arrays, in the order of their names.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import fx, nn  # pyright: ignore[reportMissingImports]

from fedsofim.core.torch.batches import batch_size, in_place, in_turns, lanes_of, taken, units_at_once
from fedsofim.core.torch.losses import torch_loss_of
from fedsofim.core.torch.rows import PREFIX, Row, Running, tensor_of
from fedsofim.core.torch.summands import ALONE, Summand, summed, unit_rows, vectors
from fedsofim.core.torch.tracing import WithLoss, attribute, traced
from fedsofim.errors import InputError, Refused
from fedsofim.tasks import Task

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

    def check(self, shape: tuple[int, ...], label: tuple[int, ...], labels: np.dtype, of: Summand = ALONE) -> None:
        """Refused or InputError unless it works for records and labels of these shapes, and keeps them apart."""
        count = 2 if of.unit else _READ
        x, y = np.zeros((count, *shape), np.float32), np.zeros((count, *label), labels)
        params = [*self.initial(), np.float32(1)]
        self.clipped_sum(params, x, y, np.ones(count, np.float32), clip=1.0, step=None, of=of)

    def initial(self) -> list[np.ndarray]:
        """The parameters as they were given."""
        return [p.detach().numpy().copy() for p in self.parameters.values()]

    def predicted(self, params: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        """Logits of a batch."""
        named = {name: tensor_of(a) for name, a in zip(self.shapes, params, strict=True)}
        with torch.no_grad():
            return torch.func.functional_call(self.logits, named, (tensor_of(x),)).numpy()

    def clipped_sum(
        self,
        params: Sequence,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        *,
        clip: float,
        step: float | None,
        of: Summand = ALONE,
        rate: float = 1.0,
    ) -> list[np.ndarray]:
        """Σ weight·clip(vector) in doubles, by leaf; in whole numbers of `step` until the end, if there is one.

        `params` are the parameters, and behind them what a vote is about. `rate`: this part of the records was drawn,
        and only those with a weight are computed.
        """
        shapes = [*self.shapes.values(), *([()] if of.vote else [])]
        totals = [np.zeros(shape, np.float64 if step is None else np.int64) for shape in shapes]
        with self._busy:
            running = self._ready(params)
            for places in _places(running, weight, of, rate):
                rows = _rows_of(running, taken(x, places), taken(y, places), of.unit)
                share = tensor_of(taken(weight, places)).double()
                for total, row in zip(totals, summed(rows, share, of.vote, _scale(params, of), clip), strict=True):
                    total += row if step is None else np.rint(row / step).astype(np.int64)
        return [t if step is None else t.astype(np.float64) * step for t in totals]

    def rows(self, params: Sequence, x: np.ndarray, y: np.ndarray, of: Summand = ALONE) -> list[np.ndarray]:
        """Every record's vector, unclipped, by leaf: of as many records as whoever asks can hold."""
        found = []
        with self._busy:
            running = self._ready(params)
            for places in _places(running, np.ones(len(y)), of, rate=1.0):
                rows = _rows_of(running, taken(x, places), taken(y, places), of.unit)
                told = vectors(rows, of.vote, _scale(params, of))
                found.append([row[: int((places >= 0).sum())] for row in told])
        return [np.concatenate(leaf) for leaf in zip(*found, strict=True)]

    def _ready(self, params: Sequence) -> "Running":
        if self._running is None:
            self._running = Running(copy.deepcopy(self.whole), tuple(self.shapes))
        self._running.load(params[: len(self.shapes)])
        return self._running


def _places(running: Running, weight: np.ndarray, of: Summand, rate: float) -> Iterator[np.ndarray]:
    """Who goes through the module together, in which place; of units, whose vectors are held together."""
    count = len(weight)
    most = min(units_at_once(running.numbers), batch_size(count)) if of.unit else batch_size(count, running.formed)
    return in_place(count, most) if rate == 1 else in_turns(weight > 0, lanes_of(count, rate, most))


def _rows_of(running: Running, x: np.ndarray, y: np.ndarray, unit: bool) -> list[Row]:
    return unit_rows(running, x, y) if unit else running.gradients(x, y)


def _scale(params: Sequence, of: Summand) -> float:
    return float(params[-1]) if of.vote else 1.0


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
