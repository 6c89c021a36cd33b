"""A torch graph as plain data, and how it runs in JAX. Nothing here imports torch: torch_export.py reads the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsofim.errors import InputError, Refused
from fedsofim.models.adapters import torch_layers, torch_shapes
from fedsofim.models.adapters.torch_operations import OPERATIONS, Shaped, true

TABLE = {**OPERATIONS} if torch_layers and torch_shapes else {}  # both have added theirs
PICK = "getitem"
ASSERT = "_assert_async"


class Ref(NamedTuple):
    """The result of a step, or an input, by its place."""

    place: int


class Step(NamedTuple):
    """One operation: its name as "add.Tensor", its arguments by name, its place, and what torch says it gives."""

    name: str
    arguments: dict[str, Any]
    place: int
    out: Any


@dataclass(frozen=True, eq=False)
class Program:
    """A function of parameters, constants and one record.

    Attributes:
        given: Places of the record (and, of a loss, of the label behind it).
        parameters: Places of parameters that are trained, by name.
        constants: Arrays by place; they are public.
        steps: The operations, in order.
        result: The place of the result.
        out: Its shape and type, for one record with a leading axis of 1.
    """

    given: tuple[int, ...]
    parameters: Mapping[int, str]
    constants: Mapping[int, jax.Array]
    steps: tuple[Step, ...]
    result: int
    out: Shaped

    def __call__(self, params: Mapping[str, Any], *given: Any) -> Any:
        """Run it on arrays of one record, with a leading axis of 1 each."""
        values: dict[int, Any] = dict(zip(self.given, given, strict=True)) | dict(self.constants)
        values |= {place: params[name] for place, name in self.parameters.items()}
        fails = []
        for step in self.steps:
            arguments = {name: _filled(value, values) for name, value in step.arguments.items()}
            if step.name == ASSERT:
                fails.append(~jnp.all(true(arguments["self"])))
            elif step.name == PICK:
                values[step.place] = _picked(step, arguments)
            else:
                values[step.place] = _applied(step, arguments)
        found = values[self.result]
        for fail in fails:  # where an assertion of the module fails, its result is NaN, and the record contributes zero
            found = jnp.where(fail, jnp.full((), jnp.nan, found.dtype), found)
        return found


def known(name: str) -> bool:
    """Is an operation in the table?"""
    return name in TABLE or name in (PICK, ASSERT)


def _filled(value: Any, values: Mapping[int, Any]) -> Any:
    if type(value) is Ref:
        return values[value.place]
    return [_filled(v, values) for v in value] if type(value) is list else value


def _picked(step: Step, arguments: Mapping[str, Any]) -> Any:
    found = arguments["of"][arguments["index"]]
    if found is None:
        raise Refused(
            f"the torch module uses result {arguments['index']} of an operation of which only the first is translated "
            "(such as the places of a maximum in a pool)"
        )
    return found


def _applied(step: Step, arguments: dict[str, Any]) -> Any:
    try:
        found = TABLE[step.name](step.out, **arguments)
    except InputError:
        raise
    except (TypeError, ValueError, NotImplementedError, IndexError, OverflowError) as error:
        raise Refused(
            f"'aten.{step.name}' is used in a way that is not translated ({type(error).__name__}: {error})"
        ) from error
    outs, results = (step.out, found) if isinstance(step.out, tuple) else ((step.out,), (found,))
    if len(outs) < len(results) or any(not _alike(o, r) for o, r in zip(outs, results, strict=False)):
        raise Refused(f"'aten.{step.name}' gives another shape or type here than in torch; please report this module")
    return found


def _alike(out: Shaped | None, found: Any) -> bool:
    return found is None or out is None or (tuple(found.shape) == out.shape and found.dtype == out.dtype)


def last_operation(program: Program) -> str:
    """The operation that gives the result, behind what only places numbers anew."""
    made, place = {step.place: step for step in program.steps}, program.result
    while (step := made.get(place)) is not None and step.name.split(".")[0] in _PLACING:
        source = step.arguments["self"]
        place = source.place if type(source) is Ref else -1
    return "" if step is None else step.name


_PLACING = {"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "clone", "permute", "expand", "select", "slice"}


def taken_places(steps: Sequence[Step]) -> set[int]:
    """Places that some step reads."""
    found: set[int] = set()

    def visit(value: Any) -> None:
        if type(value) is Ref:
            found.add(value.place)
        elif type(value) is list:
            for part in value:
                visit(part)

    for step in steps:
        for value in step.arguments.values():
            visit(value)
    return found
