"""Runs an audited program's jaxpr equation by equation, with every release answered by a constant.

Nothing is compiled: scans are unrolled and branches taken in Python, so that thousands of different programs run in
milliseconds each. What went into each release is set down beside the constant that the program is given instead. So
what the program computes is a function of public inputs alone unless it leaks, and what it would have released can be
computed afterwards (fuzz_releases.py), however the program is adaptive.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedsofim.core.records import Records
from fedsofim.core.release import Operands, dp_release, operands
from fedsofim.core.site import Site

CALLS = {"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
EFFECTS = {"debug_print", "debug_callback"}


class CannotRun(Exception):
    """The oracle has no way to run this program; never counted as clean."""


class Taken(NamedTuple):
    """What one release was given. `own`: its records are the program's, untouched."""

    site: Site
    op: Operands
    own: bool


@dataclass
class Execution:
    """One run. `real`: compute the releases too, by the engine; `quiet`: leave out what is only shown to people."""

    records: Records  # the program's own
    real: bool = False
    quiet: bool = False
    taken: list[Taken] = field(default_factory=list)
    released: list[list[Any]] = field(default_factory=list)

    def jaxpr(self, jaxpr: Jaxpr, consts: Sequence, args: Sequence) -> list:
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom):
            return atom.val if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self.equation(eqn, [read(a) for a in eqn.invars]), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, eqn, values: list) -> list:
        name = eqn.primitive.name
        if eqn.primitive is dp_release:
            return self.release(eqn, values)
        if name in CALLS:
            return self.jaxpr(*_opened(_held(eqn, len(values))), values)
        if name == "scan":
            return self.scan(eqn.params, values)
        if name == "while":
            return self.loop(eqn, values)
        if name == "cond" and not (_known(values[0]) is None and _releases_inside(eqn)):
            return self.branch(eqn, values)
        if name in EFFECTS and self.quiet:
            return []
        return _bound(eqn, values)

    def release(self, eqn, values: list) -> list:
        op = operands(values)
        own = all(a is b for a, b in zip(op.records, self.records, strict=True))
        self.taken.append(Taken(eqn.params["site"], op, own))
        if self.real:
            self.released.append(_bound(eqn, values))
        return [answer(len(self.taken), v.aval) for v in eqn.outvars]

    def scan(self, p: dict, values: list) -> list:
        start = p["num_consts"] + p["num_carry"]
        consts, carry, xs = values[: p["num_consts"]], values[p["num_consts"] : start], values[start:]
        steps = range(p["length"])
        ys: list[list] = []
        for i in reversed(steps) if p["reverse"] else steps:
            rows = [jax.lax.index_in_dim(x, i, 0, keepdims=False) for x in xs]
            out = self.jaxpr(*_opened(p["jaxpr"]), [*consts, *carry, *rows])
            carry, y = out[: p["num_carry"]], out[p["num_carry"] :]
            ys.append(y)
        ordered = ys[::-1] if p["reverse"] else ys
        return [*carry, *(jnp.stack(column) for column in zip(*ordered, strict=True))]

    def branch(self, eqn, values: list) -> list:
        """The branch that is chosen; under a vmap whose rows choose differently all of them, and then a choice."""
        branches = eqn.params["branches"]
        choice = _known(values[0])
        if choice is not None:
            return self.jaxpr(*_opened(branches[min(max(int(choice), 0), len(branches) - 1)]), values[1:])
        results = [self.jaxpr(*_opened(b), values[1:]) for b in branches]
        index = jnp.clip(values[0], 0, len(branches) - 1)
        return [_chosen(index, list(column)) for column in zip(*results, strict=True)]

    def loop(self, eqn, values: list) -> list:
        p = eqn.params
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        carry = values[nc + nb :]
        for _ in range(100):
            (more,) = self.jaxpr(*_opened(p["cond_jaxpr"]), [*values[:nc], *carry])
            if (known := _known(more)) is None:
                return _bound(eqn, values)  # rows of a vmap stop at different steps
            if not bool(known):
                return list(carry)
            carry = self.jaxpr(*_opened(p["body_jaxpr"]), [*values[nc : nc + nb], *carry])
        raise CannotRun("a while-loop of more than 100 steps")


def interpreted(jaxpr: Jaxpr, consts: Sequence, *args: Any) -> list:
    """What jax.core.eval_jaxpr gives, without compiling the loops and branches in it."""
    return Execution(Records(None, None, None, None)).jaxpr(jaxpr, consts, args)  # type: ignore[arg-type]


def _chosen(index: jax.Array, options: list) -> jax.Array:
    out = options[0]
    for i, option in enumerate(options[1:], 1):
        out = jnp.where(index == i, option, out)
    return out


def answer(count: int, aval: ShapedArray) -> jax.Array:
    """What the program is told in place of its count-th release: the same in every run."""
    values = 2.0 * np.random.default_rng(count).normal(size=aval.shape)
    return jnp.asarray(values.astype(np.float32)).astype(aval.dtype)


def _opened(jaxpr: Any) -> tuple[Jaxpr, Sequence]:
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())


def _held(eqn, arguments: int) -> Any:
    """The program that a call holds."""
    held = [p for p in eqn.params.values() if isinstance(p, ClosedJaxpr | Jaxpr)]
    if len(held) != 1 or len(_opened(held[0])[0].invars) != arguments:
        raise CannotRun(f"'{eqn.primitive.name}' holds no single program")
    return held[0]


def _bound(eqn, values: list) -> list:
    if eqn.primitive is not dp_release and _releases_inside(eqn):
        raise CannotRun(f"a release inside '{eqn.primitive.name}'")
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def _releases_inside(eqn) -> bool:
    items = [i for p in eqn.params.values() for i in (p if isinstance(p, tuple | list) else [p])]
    inner = [e for i in items if isinstance(i, ClosedJaxpr | Jaxpr) for e in _opened(i)[0].eqns]
    return any(e.primitive is dp_release or _releases_inside(e) for e in inner)


def _known(value: Any) -> Any:
    """A number, unless it differs between the rows of a vmap."""
    try:
        return np.asarray(value)
    except jax.errors.TracerArrayConversionError:
        return None
