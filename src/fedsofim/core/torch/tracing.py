"""A torch module as a graph of torch's own layers and functions: what is left of it once its author's Python has run.

A module is code, and code may do anything with a record: keep it, print it, do otherwise the second time. So it is
traced once, with symbols in place of records (torch.fx), and what runs on records afterwards is the graph: layers of
torch.nn, functions and methods that torch lets itself be traced by, arithmetic on sizes. Whatever else stands in it is
refused by name. That the graph keeps records apart is checked in record_axis.py.
"""

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx, nn  # pyright: ignore[reportMissingImports]
from torch.fx.immutable_collections import immutable_dict, immutable_list  # pyright: ignore[reportMissingImports]

from fedsofim.errors import InputError, Refused

_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)  # fmt: skip
_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "T", "mT", "values", "indices"}
_NOT_ARITHMETIC = {"attrgetter", "itemgetter", "methodcaller", "call", "setitem", "delitem"}


class WithLoss(nn.Module):
    """A module and its loss: one number for each record."""

    def __init__(self, module: nn.Module, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, x: Any, y: Any) -> Any:
        return self.loss(self.module(x), y)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_layer(m)


def is_layer(m: nn.Module) -> bool:
    """Is this one of torch.nn's own layers, itself and unchanged? A function of its own (its forward, how it is copied)
    would be a stranger's."""
    own = getattr(nn, type(m).__name__, None) is type(m) and all(
        _plain(v) for k, v in vars(m).items() if k not in _KEPT
    )
    own = own and all(type(t) in (torch.Tensor, nn.Parameter) for t in (*m.parameters(False), *m.buffers(False)))
    return own and not isinstance(m, nn.Sequential | nn.ModuleList | nn.ModuleDict)


#: What every module has, checked elsewhere (parameters, hooks), or Opacus leaves behind
_KEPT = frozenset(vars(nn.Module()))


_PLAIN = (int, float, bool, str, fx.Node, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _plain(value: Any) -> bool:
    """A number, text, or a list of them, of Python's or torch's own types: using it runs nothing of a stranger."""
    if type(value) in (tuple, list, torch.Size, immutable_list):
        return all(map(_plain, value))
    if type(value) in (dict, immutable_dict):
        return all(type(k) is str and _plain(v) for k, v in value.items())
    if type(value) is slice:
        return _plain((value.start, value.stop, value.step))
    return value is None or value is ... or type(value) in _PLAIN


def traced(module: nn.Module) -> fx.GraphModule:
    """The module as a graph; InputError where torch.fx cannot read it, Refused for what may not stand in it."""
    tracer = _Tracer()
    try:
        graph = tracer.trace(module)
        for node in graph.nodes:
            if not _plain(node.args) or not _plain(node.kwargs):  # torch.fx writes them into source, by their repr
                raise Refused(f"'{node.target}' is given something other than tensors and plain numbers")
        found = fx.GraphModule(tracer.root, graph)
    except InputError:
        raise
    except Exception as error:  # whatever a stranger's module raises
        raise InputError(
            f"the module {type(module).__name__} cannot be read as a graph ({type(error).__name__}: {error}); expected "
            "a forward without branches on values, of layers and functions of torch"
        ) from None
    for name, part in found.named_modules():
        if part is not found and (hooked := [h for h in _HOOKS if getattr(part, h, None)]):
            raise Refused(f"the layer {name} has hooks ({hooked[0]}), which would see records; remove them")
    for node in found.graph.nodes:
        _check_node(found, node)
    return found


def _check_node(root: fx.GraphModule, node: fx.Node) -> None:
    right = True
    if node.op == "call_module":
        right = is_layer(root.get_submodule(str(node.target)))
    elif node.op == "call_method":
        right = str(node.target) in _methods()
    elif node.op == "call_function":
        right = node.target in _functions()
        if node.target is getattr:
            right = node.args[1] in _ATTRIBUTES
    elif node.op == "get_attr":
        right = type(attribute(root, str(node.target))) in (torch.Tensor, nn.Parameter)
    if not right:
        raise Refused(f"'{node.target}' stands in the module and is not torch's own; what runs on records must be")


def attribute(root: Any, path: str) -> Any:
    """What a graph's get_attr gives."""
    for part in path.split("."):
        root = getattr(root, part)
    return root


@cache
def _functions() -> frozenset[Any]:
    known = {f for functions in torch.overrides.get_overridable_functions().values() for f in functions}
    arithmetic = {f for name, f in vars(operator).items() if callable(f) and name not in _NOT_ARITHMETIC}
    made = {torch.arange, torch.zeros, torch.ones, torch.full, torch.eye, torch.linspace}
    return frozenset(known | arithmetic | made | {f for f in vars(math).values() if callable(f)} | {getattr})


@cache
def _methods() -> frozenset[str]:
    return frozenset(f.__name__ for f in torch.overrides.get_overridable_functions()[torch.Tensor])
