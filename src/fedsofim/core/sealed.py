"""Run what a method's or a model's function computes, never the function itself.

A method's `server`, `init` and `memory`, and a model's `init` and `logits`, are somebody's Python. A sealed function
traces it from shapes, on a thread of its own (isolation.py), and keeps the program that comes out. Only that program
runs where records are: it holds JAX's known operations and nothing that calls back into Python (opening.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedsofim.core.containers import check_containers
from fedsofim.core.isolation import call_apart, equal_apart, hash_apart, settings
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr
from fedsofim.core.opening import opened
from fedsofim.errors import InputError, Refused, raised
from fedsofim.native.momentum import momentum_p

if TYPE_CHECKING:
    from fedsofim.core.method import Method
    from fedsofim.core.models import Model


@dataclass(frozen=True, eq=False)
class Sealed:
    """A function that is traced once for each kind of arguments and never called with values.

    Arrays among the arguments are inputs of the traced program. Everything else (numbers, text, None) is part of it,
    and must be hashable. Equal functions share their programs.

    Attributes:
        function: The function that was sealed.
    """

    function: Callable[..., Any]

    def __repr__(self) -> str:
        """Nothing of the function, whose `__repr__` may be somebody's."""
        return "<Sealed>"

    def __hash__(self) -> int:
        """The function's own, asked for apart."""
        return hash((Sealed, hash_apart(self.function)))

    def __eq__(self, other: Any) -> bool:
        """Are the functions equal? Asked apart."""
        return type(other) is Sealed and equal_apart(self.function, other.function)

    def __call__(self, *args: Any) -> Any:
        """Return what the function's program gives for these arguments."""
        leaves, tree = jax.tree.flatten(args)
        arrays = [_on_device(leaf) for leaf in leaves if _is_array(leaf)]
        kinds = tuple(_kind(leaf) for leaf in leaves)
        program = _program(self, tree, kinds, settings())
        return jax.tree.unflatten(program.outputs, eval_jaxpr(program.closed.jaxpr, program.closed.consts, *arrays))


@dataclass(frozen=True, eq=False)
class _Program:
    """What a function computes for one kind of arguments."""

    closed: ClosedJaxpr
    outputs: Any  # structure of what it returns


@dataclass(frozen=True)
class _Array:
    """An argument that the program takes when it runs."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool

    def spec(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type)


@dataclass(frozen=True)
class _Constant:
    """An argument that is part of the program. Its type counts: 1, 1.0 and True are equal, and not the same."""

    kind: type
    value: Any


def seal(function: Callable[..., Any]) -> Sealed:
    """Seal a function; one that is sealed already is returned as it is."""
    found: Any = function
    return found if type(found) is Sealed else Sealed(found)


def unsealed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind a sealed one, to compare or to trace it; never call it where records are."""
    found: Any = function
    return found.function if type(found) is Sealed else found


def sealed_method(method: "Method") -> "Method":
    """Seal what runs at the server and what makes the first state; the client's program is traced by the audit."""
    setup = method.setup and method.setup._replace(server=seal(method.setup.server))
    return method._replace(server=seal(method.server), init=seal(method.init), memory=seal(method.memory), setup=setup)


def sealed_model(model: "Model") -> "Model":
    """Seal how parameters start and what is predicted; the loss is traced by the audit."""
    return model._replace(init=seal(model.init), logits=seal(model.logits))


#: Operations of the library's own that a server's program may hold beside those that the audit knows.
OWN = frozenset({momentum_p})


@lru_cache(maxsize=512)
def _program(sealed: Sealed, tree: Any, kinds: tuple, under: tuple) -> _Program:
    return call_apart(_traced, sealed.function, tree, kinds)


def _traced(function: Callable[..., Any], tree: Any, kinds: tuple) -> _Program:
    def of_arrays(*arrays: Any) -> Any:
        inputs = iter(arrays)
        leaves = [next(inputs) if isinstance(kind, _Array) else kind.value for kind in kinds]
        return function(*jax.tree.unflatten(tree, leaves))

    specs = [kind.spec() for kind in kinds if isinstance(kind, _Array)]
    try:
        closed, shapes = jax.make_jaxpr(opened(of_arrays, OWN), return_shape=True)(*specs)
    except jax.errors.UnexpectedTracerError as error:
        raise Refused(_ESCAPED) from error
    except InputError:
        raise
    except Exception as error:  # whatever the method's or the model's own code raises
        raise InputError(f"the function {_name(function)} cannot be traced: {raised(error)}") from error
    check_values(closed)
    check_containers(f"the function {_name(function)}", jax.tree.structure(shapes))
    return _Program(closed, jax.tree.structure(shapes))


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


_ESCAPED = (
    "a value from inside another function was kept and used in this one; if that was a client's program it may be a "
    "raw record. Pass it on through the upload, the state or the client's memory"
)


def check_values(jaxpr: Any) -> None:
    """Refuse a program that holds another program's value, or 64-bit numbers where JAX computes in 32 bits."""
    program, consts = open_jaxpr(jaxpr)
    for value in (*consts, *(a.val for eqn in program.eqns for a in eqn.invars if isinstance(a, Literal))):
        if isinstance(value, Tracer):
            raise Refused(_ESCAPED)
    check_width(jaxpr)


def check_width(jaxpr: ClosedJaxpr | Jaxpr) -> None:
    """Refuse 64-bit numbers in a program that was traced where JAX computes in 32 bits.

    Only a function that changes JAX's settings for itself (`jax.enable_x64`) makes such a program. It would be compiled
    under the settings of its caller, where these numbers do not exist.
    """
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return
    program, _ = open_jaxpr(jaxpr)
    for eqn in program.eqns:
        for atom in (*eqn.invars, *eqn.outvars):
            dtype: Any = getattr(atom.aval, "dtype", None)
            if dtype is None:  # a token, a reference: refused elsewhere
                continue
            if not jnp.issubdtype(dtype, jax.dtypes.prng_key) and dtype.itemsize > _WIDEST.get(dtype.kind, 4):
                raise Refused(
                    f"the program computes in {dtype} while JAX computes in 32 bits; leave jax.enable_x64 out of it, "
                    "or switch it on for the whole process: jax.config.update('jax_enable_x64', True)"
                )
        for inner in (j for p in eqn.params.values() for j in jaxprs_in(p)):
            check_width(inner)


_WIDEST = {"c": 8}  # bytes of a complex number; of every other kind 4


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _on_device(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf)


def _kind(leaf: Any) -> _Array | _Constant:
    if _is_array(leaf):
        aval: Any = jax.typeof(leaf)
        return _Array(tuple(aval.shape), aval.dtype, bool(getattr(aval, "weak_type", False)))
    try:
        hash(leaf)
    except TypeError:
        raise InputError(
            f"a {type(leaf).__name__} stands among a method's numbers; expected arrays and numbers"
        ) from None
    return _Constant(type(leaf), leaf)
