"""Opacus at work on a copy of a module's graph: every record's gradient, how long it is, and weighted sums of them.

What it computes is measured and added up from the same numbers, in doubles; the argument is in core/torch_gradient.py.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from opacus.grad_sample import GradSampleModule  # pyright: ignore[reportMissingImports]
from opacus.grad_sample.linear import compute_linear_norm_sample  # pyright: ignore[reportMissingImports]
from torch import fx, nn  # pyright: ignore[reportMissingImports]

from fedsofim.core.torch.record_axis import check_apart
from fedsofim.errors import InputError, Refused

PREFIX = "module."  # of names in a graph that ends in the loss


class Row(NamedTuple):
    """A parameter's gradients, one a record: formed, or the two factors of an outer product."""

    formed: torch.Tensor | None = None
    factors: tuple[torch.Tensor, torch.Tensor] | None = None  # (records, out), (records, in), in doubles

    @property
    def dense(self) -> torch.Tensor:
        if self.factors is None:
            assert self.formed is not None
            return self.formed
        return self.factors[0][:, :, None] * self.factors[1][:, None, :]


class Running(GradSampleModule):
    """Opacus on a copy of the graph, which keeps the factors of linear layers instead of forming their rows."""

    def __init__(self, whole: fx.GraphModule, names: tuple[str, ...]) -> None:
        super().__init__(whole, batch_first=True, loss_reduction="sum", strict=False)
        named = dict(whole.named_parameters())
        self.parameters_in_order: list[Any] = [named[PREFIX + name] for name in names]
        self.apart = _met_once(whole)
        self.kept: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self.read: set[Any] = set()
        for part in whole.modules():
            part.training = any(p.requires_grad for p in part.parameters(recurse=False))  # else Opacus looks away
        ghost = {id(p) for layer in self.apart for p in layer.parameters()}
        self.formed = sum(p.numel() for p in self.parameters_in_order if id(p) not in ghost)
        self.numbers = sum(p.numel() for p in self.parameters_in_order)

    def load(self, params: Sequence) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.parameters_in_order, params, strict=True):
                parameter.copy_(tensor_of(value))

    def capture_backprops_hook(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, module: Any, _forward_input: Any, forward_output: Any, **how: Any
    ) -> None:
        if module not in self.apart or forward_output[0].dim() != 2:
            super().capture_backprops_hook(module, _forward_input, forward_output, **how)
            return
        activations, backprops = self.rearrange_grad_samples(module=module, backprops=forward_output[0].detach(), **how)
        self.kept[module] = backprops.double(), activations[0].double()
        del module.max_batch_len
        for p in module.parameters():
            if p.requires_grad:
                p._forward_counter -= 1

    def gradients(self, x: np.ndarray, y: np.ndarray) -> list[Row]:
        """Every record's gradient, by parameter, of a batch of the size that was read.

        A record on which the module fails (an index beyond a table) has no gradient (NaN) and says nothing: that it
        failed would tell of it.
        """
        records, labels = tensor_of(x).float(), tensor_of(y)
        labels = labels.float() if labels.is_floating_point() else labels.long()
        self._read(records, labels)
        try:
            return self._together(records, labels)
        except InputError:
            raise
        except (RuntimeError, IndexError, ValueError):
            return self._one_by_one(records, labels)

    def _one_by_one(self, records: torch.Tensor, labels: torch.Tensor) -> list[Row]:
        nothing = torch.zeros_like(records), torch.zeros_like(labels)
        found = [Row(torch.full_like(row.dense, torch.nan)) for row in self._together(*nothing)]
        for i in range(len(records)):
            alone = [torch.zeros_like(a) for a in nothing]
            alone[0][i], alone[1][i] = records[i], labels[i]
            try:
                rows = self._together(*alone)
            except (RuntimeError, IndexError, ValueError):
                continue
            for row, whole in zip(rows, found, strict=True):
                whole.dense[i] = row.dense[i]
        return found

    def _together(self, records: torch.Tensor, labels: torch.Tensor) -> list[Row]:
        try:
            with torch.enable_grad(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Full backward hook")  # of a first layer: nothing is before it
                self._module(records, labels).sum().backward()
            return self._collected(len(records))
        finally:
            self._forget()

    def _read(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Once for each size of a batch: do records stay apart?"""
        key = (x.shape, y.shape, y.dtype)
        if key in self.read:
            return
        enabled, self.hooks_enabled = self.hooks_enabled, False
        try:
            found = check_apart(self._module, len(x), x, y)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"the torch module fails on records of shape {tuple(x.shape[1:])} ({error}); expected the shape it is "
                "for. A recipe's preparation may add features: preparation=() leaves records as they are"
            ) from None
        finally:
            self.hooks_enabled = enabled
        if found != (len(x),):
            raise InputError(
                f"the torch module's loss gives shape {found} for {len(x)} records; expected one number for each: a "
                "loss with reduction='none', and summed or averaged over a record's own axes"
            )
        self.read.add(key)

    def _collected(self, records: int) -> list[Row]:
        factors: dict[int, Row] = {}
        for layer, (g, a) in self.kept.items():
            factors[id(layer.weight)] = Row(factors=(g, a))
            if layer.bias is not None:
                factors[id(layer.bias)] = Row(formed=g)
        rows = [factors.get(id(p)) or Row(formed=_formed(p, records)) for p in self.parameters_in_order]
        for row in rows:
            if len(row.formed if row.formed is not None else row.factors[0]) != records:  # type: ignore[index]
                raise Refused(
                    "a trained layer is given other rows than records (as after x.view(-1, features)); keep the "
                    "records along the first axis, and other axes after it"
                )
        return rows

    def _forget(self) -> None:
        """Nothing of a batch is left."""
        self.kept.clear()
        for part in self._module.modules():
            part.__dict__.pop("activations", None)
            part.__dict__.pop("max_batch_len", None)
        for p in self.parameters_in_order:
            p.grad, p.grad_sample, p._forward_counter = None, None, 0
            p.__dict__.pop("_current_grad_sample", None)


def _met_once(whole: fx.GraphModule) -> set[nn.Module]:
    """Linear layers that stand in the graph once, and share no parameter."""
    called = [whole.get_submodule(str(n.target)) for n in whole.graph.nodes if n.op == "call_module"]
    uses = [id(p) for layer in called for p in layer.parameters()]
    return {
        layer
        for layer in called
        if type(layer) is nn.Linear
        and all(p.requires_grad for p in layer.parameters())
        and all(uses.count(id(p)) == 1 for p in layer.parameters())
    }


def _formed(parameter: Any, records: int) -> torch.Tensor:
    found = parameter.grad_sample
    if found is None:  # nothing of the loss depends on it
        return torch.zeros((records, *parameter.shape))
    if not isinstance(found, torch.Tensor):
        raise Refused("a layer's gradients came in several parts; use each layer in one place")
    return found


_LINEAR: Any = nn.Linear(1, 1)  # asked for norms: Opacus wants to know which parameters are trained


def lengths(rows: Sequence[Row]) -> torch.Tensor:
    """|gradient| of each record over all parameters, in doubles; NaN for one that is not finite.

    Such a record's row is set to zeros: 0·NaN would reach the rest of its batch.
    """
    length = torch.stack([_squares(row) for row in rows]).sum(dim=0).sqrt()
    finite = torch.isfinite(length)
    if not finite.all():
        for part in (t for row in rows for t in (row.formed, *(row.factors or ())) if t is not None):
            part[~finite] = 0.0
    return torch.where(finite, length, torch.nan)


def _squares(row: Row) -> torch.Tensor:
    """|gradient|² of each record, in doubles."""
    if row.factors is not None:
        g, a = row.factors
        return compute_linear_norm_sample(_LINEAR, [a], g)[_LINEAR.weight].square()
    assert row.formed is not None
    return torch.linalg.vector_norm(row.formed.flatten(1), dim=1, dtype=torch.float64).square()


def weighted(row: Row, factor: torch.Tensor) -> torch.Tensor:
    """Σ factor·gradient, in doubles."""
    if row.factors is not None:
        g, a = row.factors
        return (g * factor[:, None]).T @ a
    assert row.formed is not None
    return (factor @ row.formed.flatten(1).double()).reshape(row.formed.shape[1:])


def tensor_of(a: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(a))
