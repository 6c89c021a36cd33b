"""What is checked of a torch module before a record is there: its layers by name, and its translation by numbers.

Importing this needs torch.
"""

import copy
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase  # pyright: ignore[reportMissingImports]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportMissingImports]

from fedsofim.errors import InputError, Refused
from fedsofim.models.adapters import BATCH_STATISTICS, DROPOUT
from fedsofim.models.adapters.torch_export import first_line
from fedsofim.models.adapters.torch_programs import Program

_RECORDS = 3
_RANDOM = ("rand", "bernoulli", "native_dropout", "rrelu_with_noise")
_CLOSE = 2e-3  # of the largest number of an array: float32 through many layers
_HOW = "call eval() on the module"


def check_layers(module: nn.Module) -> None:
    """Refuse, by name, layers that mix records or draw random numbers in the mode that they were given in."""
    for name, part in module.named_modules():
        where, kind = name or "the module", f"nn.{type(part).__name__}"
        drawn = part.p if isinstance(part, _DropoutNd) else _inner_dropout(part)
        if part.training and drawn > 0:
            raise Refused(DROPOUT.format(where=where, what=kind, how=f"{_HOW}, or set its probability to 0"))
        if isinstance(part, _NormBase) and _mixes(part):
            how = f"{_HOW} to use stored statistics, or freeze it with requires_grad_(False)"
            raise Refused(BATCH_STATISTICS.format(where=where, what=kind, how=how))


def _inner_dropout(part: nn.Module) -> float:
    return part.dropout if isinstance(part, nn.RNNBase | nn.MultiheadAttention) else 0.0


def _mixes(part: _NormBase) -> bool:
    """Does it use, as it was given, other statistics than the stored ones? A frozen layer uses these in any mode."""
    if part.running_mean is None:
        return isinstance(part, _BatchNorm)
    frozen = [not p.requires_grad for p in part.parameters(recurse=False)]
    return part.training and not (frozen and all(frozen))


def check_not_random(module: nn.Module, modes: dict[str, bool], given: torch.Tensor) -> None:
    """Refuse functions such as F.dropout that draw random numbers in the mode that the module was given in.

    A module that torch cannot export in that mode passes: it is exported, and used, in evaluation mode.
    """
    if not any(modes.values()):
        return
    as_given = copy.deepcopy(module)
    for name, part in as_given.named_modules():
        part.training = modes.get(name, False) and not isinstance(part, _NormBase)
    try:
        graph = torch.export.export(as_given, (given,), strict=False).run_decompositions().graph
    except Exception:  # whatever a module of somebody's own raises
        return
    for node in graph.nodes:
        short = str(node.target).removeprefix("aten.").lstrip("_")
        if node.op == "call_function" and short.startswith(_RANDOM) and _draws(node):
            raise Refused(DROPOUT.format(where="the module", what=f"'{node.target}'", how=_HOW))


def _draws(node: Any) -> bool:
    """Does a call draw: not a dropout of probability 0, nor slopes that are fixed?"""
    name, arguments = str(node.target), node.args
    if "native_dropout" in name:
        return bool(arguments[1]) and arguments[2] is not False
    return "rrelu" not in name or bool(arguments[4:5] and arguments[4])


# --- numbers ------------------------------------------------------------------------------------------------


def check_translation(module: nn.Module, program: Program, start: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Refuse unless torch, given a batch, and the translation, given each record of it, agree in values and gradients.

    So a module whose result for one record depends on others of its batch is refused too.
    """
    each = jax.vmap(lambda params, x: program(params, x[None])[0], (None, 0))

    def weighed(params: Any, x: Any, weights: Any) -> tuple[Any, Any]:
        found = each(params, x)
        return jnp.sum(jnp.where(jnp.isfinite(found), found, 0.0) * weights), found

    quickly: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    alone = jax.jit(jax.grad(weighed, has_aux=True), compiler_options=quickly)  # it runs three times
    tried, problem = 0, ""
    whole = copy.deepcopy(module)
    names = {n: p for n, p in whole.named_parameters() if n in start}
    for x in _batches(shape):
        try:
            found = whole(torch.from_numpy(x))
            _check_one_each(found, program)
        except InputError:
            raise
        except Exception as error:  # whatever a module of somebody's own raises; tokens may not be negative
            problem = first_line(error)
            continue
        tried += 1
        weights = np.random.default_rng(1).normal(size=found.shape).astype(np.float32)
        slopes, ours = alone(start, x, weights)
        _compare("the result", found.detach().numpy(), ours)
        _compare_gradients(found, weights, names, slopes)
    if not tried:
        raise InputError(f"the torch module fails on batches of records of shape {shape} ({problem})")


def _check_one_each(found: Any, program: Program) -> None:
    if not isinstance(found, torch.Tensor) or tuple(found.shape) != (_RECORDS, *program.out.shape[1:]):
        raise InputError(
            f"the torch module gives shape {tuple(getattr(found, 'shape', ()))} for {_RECORDS} records; expected one "
            "row for each record, along the first axis"
        )


def _batches(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Made-up records: of all signs, positive ones, and whole ones that may be tokens."""
    rng = np.random.default_rng(0)
    size = (_RECORDS, *shape)
    yield rng.normal(size=size).astype(np.float32)
    yield rng.uniform(size=size).astype(np.float32)
    yield rng.integers(0, 2, size=size).astype(np.float32)


def _compare(what: str, theirs: np.ndarray, ours: Any, scale: float = 0.0) -> None:
    ours = np.asarray(ours)
    finite = np.isfinite(theirs)
    same = theirs.shape == ours.shape and np.array_equal(finite, np.isfinite(ours))
    largest = max(float(np.abs(theirs[finite]).max(initial=0.0)), scale, 1e-6)
    if not same or np.abs(theirs[finite] - ours[finite]).max(initial=0.0) > _CLOSE * largest:
        raise Refused(
            f"{what} of the torch module on a batch of made-up records differs from its translation on each record by "
            "itself: either records of a batch count in each other's results, or the module computes or differentiates "
            "in a way that is not translated (an autograd function of its own, numbers that change between calls)"
        )


def _compare_gradients(found: torch.Tensor, weights: np.ndarray, names: dict[str, Any], ours: dict[str, Any]) -> None:
    finite = torch.where(torch.isfinite(found), found, torch.zeros_like(found))
    total = (finite * torch.from_numpy(weights)).sum()
    theirs: Any = [None] * len(names)
    if total.requires_grad:
        theirs = torch.autograd.grad(total, list(names.values()), allow_unused=True)
    arrays = {
        name: np.zeros(p.shape, np.float32) if g is None else g.detach().numpy()
        for (name, p), g in zip(names.items(), theirs, strict=True)
    }
    largest = max((float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in arrays.values()), default=0.0)
    for name, array in arrays.items():
        # a gradient that is 0 but for roundings is compared on the scale of the others
        _compare(f"the gradient in {name}", array, ours[name], scale=0.05 * largest)


def check_loss(loss: nn.Module, program: Program, z: np.ndarray, y: np.ndarray) -> None:
    """Refuse unless the loss of a batch is its records' losses: one each, or their mean or sum."""
    outputs = torch.from_numpy(z).requires_grad_(True)
    found = loss(outputs, torch.from_numpy(y))
    label = y.astype(np.int32) if y.dtype == np.int64 else y
    each, slopes = jax.vmap(jax.value_and_grad(lambda z, y: program({}, z[None], y[None]).reshape(())))(z, label)
    each, slopes, share = np.asarray(each), np.asarray(slopes), 1.0
    if tuple(found.shape) == ():
        mean = abs(float(found) - each.mean()) <= abs(float(found) - each.sum())
        share = 1 / _RECORDS if mean else 1.0
        _compare("the loss", found.detach().numpy(), each.sum() * share)
    elif found.shape[0] != _RECORDS or found.numel() != _RECORDS:
        raise InputError(
            f"the torch loss gives shape {tuple(found.shape)} for {_RECORDS} records; expected one number for each: "
            "reduction='none', and summed or averaged over a record's own axes"
        )
    else:
        _compare("the loss", found.detach().numpy().reshape(-1), each)
    (theirs,) = torch.autograd.grad(found.sum(), [outputs])
    _compare("the loss's gradient", theirs.numpy(), slopes * share)
