"""A program with every call opened: what is left are known primitives, loops, choices and releases, and nothing else.

What a stranger wrote is traced, and the trace is run once more, equation by equation, into a new trace. On the way
- calls (jit, checkpoint, functions with derivatives of their own) are replaced by what they run, so that a function
  that is called twice stands there twice;
- every primitive must be known (primitives.py) and act on nothing but its operands: what does not is refused by name;
- what a release is told (its site) is made anew, out of plain numbers, so that nobody else holds it.

So no rule that a stranger wrote (for mapping, differentiating or lowering) is left to run when records are there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive

from fedsofim.core.interpreter import bind, evaluate
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr
from fedsofim.core.keys import is_own_key
from fedsofim.core.parameters import check_parameters, is_program
from fedsofim.core.primitives import PROGRAM_OF, Rule, rule_of
from fedsofim.core.release import dp_release
from fedsofim.core.site import own_site
from fedsofim.errors import Refused

_ENDLESS = (
    "mapped over records it runs until the slowest of them has converged, so one record would decide for the others. "
)
#: What to use in place of an operation that is refused.
INSTEAD = {
    "random_gamma": _ENDLESS + "Draw with jax.random.normal, uniform, bernoulli or categorical",
    "igamma": _ENDLESS + "Use a polynomial or a table of values",
    "igammac": _ENDLESS + "Use a polynomial or a table of values",
    "regularized_incomplete_beta": _ENDLESS + "Use a polynomial or a table of values",
    "reduce": "use jnp.sum, jnp.max and the like, whose meaning is fixed, in place of jax.lax.reduce with a function",
}

HELD = {Rule.SCAN: ("jaxpr",), Rule.WHILE: ("cond_jaxpr", "body_jaxpr"), Rule.COND: ("branches",)}


def opened(fn: Callable, also: frozenset[Primitive] = frozenset()) -> Callable:
    """The same function, whose trace holds no calls and nothing unknown; Refused where that cannot be.

    `also`: operations of the library's own that may stand outside of loops too.

    >>> [e.primitive.name for e in jax.make_jaxpr(opened(jax.jit(jax.checkpoint(jnp.sin))))(1.0).eqns]
    ['sin']
    """

    def run(*args: Any) -> Any:
        closed, out = jax.make_jaxpr(fn, return_shape=True)(*args)
        flat = _run(closed.jaxpr, closed.consts, jax.tree.leaves(args), also)
        return jax.tree.unflatten(jax.tree.structure(out), flat)

    return run


def check_known(jaxpr: Any) -> None:
    """Refused unless a program, which may have been put together by hand, holds known primitives only, at any depth."""
    if not is_program(jaxpr):
        raise Refused(f"a {type(jaxpr).__name__} stands where a program should; use the door as it is given")
    program, consts = open_jaxpr(jaxpr)
    for value in consts:
        check_captured(value)
    for eqn in program.eqns:
        if eqn.primitive is not dp_release:
            _known(eqn)
        for atom in eqn.invars:
            if isinstance(atom, Literal):
                check_captured(atom.val)
        for inner in _programs(eqn):
            check_known(inner)


def check_captured(value: Any) -> None:
    """Refused unless what a finished program captures is a plain number: that is a setting, an array may be records."""
    if isinstance(value, Tracer):
        raise Refused(
            "a value from inside a per-record function was kept and used outside it: that is a raw record; return only "
            "what was computed from door.gradient, door.sum or door.second_moment"
        )
    if not isinstance(getattr(value, "aval", None) or jax.typeof(value), ShapedArray):
        raise Refused("the program captures a reference, through which values can leave; return what it should give")
    if shape := getattr(value, "shape", ()):
        raise Refused(
            f"the program captures an array of shape {tuple(shape)} from outside; it may hold records, and what "
            "is captured cannot be priced. Put public arrays into the server's state (init), and reach records "
            "only through the door"
        )


def _run(jaxpr: Jaxpr, consts: Sequence, args: Sequence, also: frozenset[Primitive] = frozenset()) -> list:
    return evaluate(jaxpr, consts, args, lambda eqn, values: _equation(eqn, values, also))


def _equation(eqn: Any, values: list, also: frozenset[Primitive]) -> list:
    if eqn.primitive in also:
        return eqn.primitive.bind(*values, **eqn.params)
    if eqn.primitive is dp_release:
        return dp_release.bind(*values, site=own_site(eqn.params["site"]))
    rule, params = _known(eqn), eqn.params
    if rule is Rule.CALL:
        program = params[PROGRAM_OF[eqn.primitive.name]]
        if not is_program(program):
            raise Refused(f"'{eqn.primitive.name}' holds a {type(program).__name__} where a program should be")
        return _run(*open_jaxpr(program), values, also)
    for name in HELD.get(rule, ()):
        held = params[name]
        params = params | {name: tuple(map(_opened, held)) if isinstance(held, tuple) else _opened(held)}
    if rule is Rule.PURE:
        for inner in _programs(eqn):
            check_known(inner)
    return bind(eqn, values, params)


def _opened(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A loop's body or a branch, with its calls opened."""
    specs = [_spec(v.aval) for v in closed.jaxpr.invars]
    return jax.make_jaxpr(lambda *args: _run(closed.jaxpr, closed.consts, args))(*specs)


def _spec(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _known(eqn: Any) -> Rule:
    """The rule for an equation's primitive; Refused if there is none, or if it does anything but compute."""
    name = eqn.primitive.name
    rule = rule_of(eqn.primitive)
    if eqn.effects or (rule is None and ("callback" in name or "print" in name)):
        raise Refused(
            f"'{name}' carries values out of the program while it runs: on records or noise that is a leak which no "
            "price covers; remove the print or callback"
        )
    if rule is None:
        raise Refused(
            f"'{name}' is not an operation that the audit knows, so what it does with records cannot be told; "
            + INSTEAD.get(name, "write it with jax.numpy and jax.lax (what is known: fedsofim/core/primitives.py)")
        )
    for atom in (*eqn.invars, *eqn.outvars):
        if jnp.issubdtype(atom.aval.dtype, jax.dtypes.prng_key) and not is_own_key(atom.aval.dtype):
            raise Refused(
                f"'{name}' has keys of another generator than threefry2x32, of which it is known that no two releases "
                "draw the same noise; use jax.random.key, and leave jax_default_prng_impl (JAX_DEFAULT_PRNG_IMPL) alone"
            )
    if rule is not Rule.CALL:  # which is replaced by its program: nothing else of it is left
        check_parameters(name, eqn.params)
    return rule


def _programs(eqn: Any) -> list:
    """The programs that an equation holds, wherever among its parameters."""
    return [j for p in eqn.params.values() for j in jaxprs_in(p)]
