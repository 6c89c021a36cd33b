"""Reading a torch module: `torch.export` on a made-up record, its graph as plain data. Importing this needs torch.

The module's own Python runs here and in torch_check.py only, in a thread of its own, on made-up input. What is kept of
the graph are names of ATen operations, plain numbers and arrays; anything else is refused.
"""

import io
import itertools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import fx, nn  # pyright: ignore[reportMissingImports]
from torch.export.graph_signature import (  # pyright: ignore[reportMissingImports]
    InputKind,
    OutputKind,
)

from fedsofim.errors import InputError, Refused
from fedsofim.models.adapters.torch_programs import ASSERT, PICK, Program, Ref, Shaped, Step, known, taken_places

_TYPES: dict[Any, Any] = {
    torch.float32: jnp.float32, torch.int64: jnp.int32, torch.int32: jnp.int32, torch.uint8: jnp.uint8,
    torch.bool: jnp.bool_,
}  # fmt: skip
#: Arguments that say where and how numbers lie in memory, and nothing about them.
_MEMORY = {"layout", "device", "pin_memory", "memory_format"}
_PLAIN = (bool, int, float, str, type(None), torch.dtype)
_WHOLE = 2**31


class Numbers(NamedTuple):
    """A module's own numbers as arrays.

    Attributes:
        trained: Parameters that are trained, by their first name.
        fixed: All other parameters and the buffers, by every name.
        first: The first name of each name of a trained parameter; a tied one has several.
    """

    trained: dict[str, jax.Array]
    fixed: dict[str, Any]
    first: dict[str, str]


def apart(work: Callable[[], Any]) -> Any:
    """Run a module's Python in a thread of its own: no trace of JAX is under way there."""

    def quietly() -> Any:
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # fused operations, which say the same in other words
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                return work()
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)

    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), ThreadPoolExecutor(1) as thread:
        warnings.simplefilter("ignore")
        try:
            return thread.submit(quietly).result()
        except InputError:
            raise
        except Exception as error:  # whatever a module of somebody's own raises
            raise InputError(f"the torch module failed while it was read ({first_line(error)})") from None


def numbers_of(module: nn.Module) -> Numbers:
    """Read a module's parameters and buffers, once."""
    check_plain(module)
    seen: dict[int, str] = {}
    trained, fixed, first = {}, {}, {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        array = array_of(f"the parameter {name}", parameter)
        if not parameter.requires_grad:
            fixed[name] = array
            continue
        if not np.isfinite(array).all():
            raise InputError(f"the parameter {name} of the torch module is not finite everywhere; expected numbers")
        first[name] = seen.setdefault(id(parameter), name)
        if first[name] == name:
            trained[name] = jnp.asarray(array)
    for name, buffer in module.named_buffers(remove_duplicate=False):
        fixed[name] = buffer  # read where it is used: most modules have some that are not
    return Numbers(dict(sorted(trained.items())), fixed, first)


def check_plain(module: nn.Module) -> None:
    """Refuse names and tensors of types of their own, which could bring Python that runs later."""
    for kind, named in (("parameter", module.named_parameters), ("buffer", module.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            if type(name) is not str:
                raise Refused(f"a {kind} of the torch module is named by a {type(name).__name__}; expected text")
            _check_tensor(f"the {kind} {name}", tensor)


def _check_tensor(what: str, tensor: Any) -> None:
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        raise Refused(f"{what} is a {type(tensor).__name__}; expected a plain torch.Tensor or nn.Parameter")


def array_of(what: str, tensor: Any) -> np.ndarray:
    """Read a tensor of torch's own kind as an array of a type that is translated."""
    _check_tensor(what, tensor)
    if tensor.layout is not torch.strided or tensor.dtype not in _TYPES:
        raise Refused(f"{what} holds {tensor.dtype} ({tensor.layout}); expected float32, int64, int32, uint8 or bool")
    array = np.array(torch.Tensor.numpy(torch.Tensor.detach(tensor).cpu()))
    if array.dtype == np.int64:
        if array.size and np.abs(array).max() >= _WHOLE:
            raise Refused(f"{what} holds whole numbers beyond 32 bits")
        array = array.astype(np.int32)
    if np.isnan(array).any():
        raise InputError(f"{what} of the torch module holds NaN; expected numbers")
    return array


def exported(module: nn.Module, given: Sequence[Any]) -> Any:
    """Export a module in core ATen operations; InputError where torch cannot."""
    try:
        found = torch.export.export(module, tuple(given), strict=False)
        _check_gradients_flow(found)
        return found.run_decompositions()
    except InputError:
        raise
    except Exception as error:  # whatever a module of somebody's own raises
        raise InputError(
            f"torch.export cannot read the module {type(module).__name__} for a record of shape "
            f"{tuple(given[0].shape[1:])} ({first_line(error)}). Expected a forward that takes a batch of records of "
            "float32 (x.long() makes tokens of them) and does not branch on their values. A recipe's preparation may "
            "add features: preparation=() leaves records as they are"
        ) from None


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _check_gradients_flow(found: Any) -> None:
    """Parts of a module may be run without gradients, which the decomposed graph no longer says."""
    for graph in (m.graph for m in found.graph_module.modules() if isinstance(m, fx.GraphModule)):
        for node in graph.nodes:
            if "set_grad_enabled" in str(node.target):
                raise Refused(
                    "the torch module turns gradients on or off in its forward (torch.no_grad), which is not "
                    "translated; use detach() on the result, or freeze the parameters (requires_grad_(False))"
                )


def program_of(found: Any, numbers: Numbers) -> Program:
    """Translate an exported program into plain data; Refused for what has no translation."""
    reader = _Reader(found, numbers)
    for node in found.graph.nodes:
        reader.read(node)
    return reader.program()


class _Reader:
    def __init__(self, found: Any, numbers: Numbers) -> None:
        self.numbers, self.constants_of = numbers, found.constants
        self.specs = {spec.arg.name: spec for spec in found.graph_signature.input_specs}
        for spec in found.graph_signature.output_specs:
            if spec.kind is not OutputKind.USER_OUTPUT:
                raise Refused(
                    f"the torch module changes {spec.target} while it runs ({spec.kind.name.lower()}); a record would "
                    "then count in the next one's result. Expected a forward that changes nothing"
                )
        self.fresh = itertools.count()
        self.places: dict[str, int] = {}
        self.given: list[int] = []
        self.parameters: dict[int, str] = {}
        self.constants: dict[int, Any] = {}
        self.steps: list[Step] = []
        self.result: tuple[int, Shaped] | None = None

    def program(self) -> Program:
        assert self.result is not None
        used = taken_places(self.steps) | {self.result[0]}
        constants = {
            place: jnp.asarray(array_of(name, tensor) if isinstance(tensor, torch.Tensor) else tensor)
            for place, (name, tensor) in self.constants.items()
            if place in used
        }
        parameters = {place: name for place, name in self.parameters.items() if place in used}
        return Program(tuple(self.given), parameters, constants, tuple(self.steps), *self.result)

    def read(self, node: fx.Node) -> None:
        place = self.places[node.name] = next(self.fresh)
        if node.op == "placeholder":
            self._input(node, place)
        elif node.op == "output":
            self._output(node)
        elif node.op == "call_function":
            self._call(node, place)
        else:  # graphs that a branch or a loop holds; whatever uses them is refused by its own name
            del self.places[node.name]

    def _input(self, node: fx.Node, place: int) -> None:
        spec = self.specs[node.name]
        if spec.kind is InputKind.USER_INPUT:
            self.given.append(place)
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.target in self.numbers.first:
            self.parameters[place] = self.numbers.first[spec.target]
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.target in self.numbers.fixed:
            self.constants[place] = f"the buffer {spec.target}", self.numbers.fixed[spec.target]
        elif spec.kind is InputKind.CONSTANT_TENSOR and spec.target in self.constants_of:
            self.constants[place] = f"the constant {spec.target}", self.constants_of[spec.target]
        else:
            raise Refused(
                f"the torch module holds {spec.target} ({spec.kind.name.lower()}), which is not a parameter, a buffer "
                "or a tensor of its own"
            )

    def _output(self, node: fx.Node) -> None:
        found = node.args[0]
        if not isinstance(found, tuple | list) or len(found) != 1 or not isinstance(found[0], fx.Node):
            raise InputError("the torch module gives several results, or none; expected one tensor")
        self.result = self.places[found[0].name], self._shaped(found[0], found[0].meta["val"])

    def _call(self, node: fx.Node, place: int) -> None:
        if node.target is operator.getitem:
            of, index = node.args
            self.steps.append(Step(PICK, {"of": self._value(of), "index": self._value(index)}, place, None))
            return
        name = _aten_name(node.target)
        if name == "_assert_tensor_metadata.default":  # a fact about shapes and types, which are fixed
            return
        short = ASSERT if name.startswith(f"{ASSERT}.") else name
        if not known(short):
            raise Refused(f"'{node.target}' stands in the torch module and has no translation{_hint(str(node.target))}")
        arguments = self._arguments(node)
        if short == ASSERT:
            arguments = {"self": arguments["self"]}
        out = None if short == ASSERT else self._outs(node)
        self.steps.append(Step(short, arguments, place, out))

    def _arguments(self, node: fx.Node) -> dict[str, Any]:
        """By name, with defaults, as the operation's schema has them."""
        schema: Any = node.target._schema  # type: ignore[union-attr]
        given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        given |= dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        if set(given) != {a.name for a in schema.arguments}:
            raise Refused(f"'{node.target}' is not given the arguments of its schema")
        return {name: self._value(value) for name, value in given.items() if name not in _MEMORY}

    def _value(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            if value.name not in self.places:
                raise Refused(f"the exported torch module uses '{value.target}' ({value.op}), which is not translated")
            return Ref(self.places[value.name])
        if isinstance(value, list | tuple):
            return [self._value(v) for v in value]
        if type(value) in _PLAIN:
            return value
        raise Refused(f"an operation of the torch module is given a {type(value).__name__}; expected plain numbers")

    def _outs(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, tuple | list):
            return tuple(None if v is None else self._shaped(node, v) for v in value)
        return self._shaped(node, value)

    def _shaped(self, node: fx.Node, value: Any) -> Shaped:
        if not isinstance(value, torch.Tensor) or any(type(n) is not int for n in value.shape):
            raise Refused(f"the size of what '{node.target}' gives depends on the record's values; use torch.where")
        if value.dtype not in _TYPES:
            raise Refused(
                f"'{node.target}' computes in {value.dtype}, which is not translated; expected float32, int64, "
                "int32, uint8 or bool"
            )
        return jax.ShapeDtypeStruct(tuple(value.shape), _TYPES[value.dtype])


def _aten_name(target: Any) -> str:
    """The name of one of torch's own ATen operations, as "add.Tensor"; Refused for anything else."""
    if type(target) is not torch._ops.OpOverload or target.namespace != "aten":
        raise Refused(
            f"'{getattr(target, '__name__', target)}' stands in the torch module and is not an operation of torch's "
            f"own (ATen){_hint(str(target))}"
        )
    packet, _, overload = str(target).removeprefix("aten.").rpartition(".")
    if getattr(getattr(torch.ops.aten, packet, None), overload, None) is not target:
        raise Refused(f"'{target}' stands in the torch module and is not the operation of that name")
    return f"{packet}.{overload}"


_RANDOM = "; it draws random numbers, for which a record's gradient has no place"
_BY_VALUES = "; what is computed would depend on the record's values: use torch.where"
_HINTS: Mapping[str, tuple[str, ...]] = {
    _RANDOM: ("rand", "bernoulli", "dropout", "native_dropout", "multinomial", "normal"),
    _BY_VALUES: ("cond", "while_loop", "map", "scan", "item", "local_scalar", "nonzero", "masked", "sym_", "unique"),
}


def _hint(name: str) -> str:
    short = name.removeprefix("aten.").lstrip("_")
    return next((hint for hint, starts in _HINTS.items() if short.startswith(starts)), "")


def made_up(shape: tuple[int, ...], count: int = 1, seed: int = 0) -> torch.Tensor:
    """Make records up."""
    numbers = np.random.default_rng(seed).normal(size=(count, *shape))
    return torch.from_numpy(numbers.astype(np.float32))
