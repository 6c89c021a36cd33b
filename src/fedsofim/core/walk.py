"""The walk over a client's program: two taints, "records" and "key", followed from the door's private fields.

Only `dp_release` washes them off. The same walk counts releases (a scan of length K multiplies by K) and gives every
value a structural name, so that two releases drawing equal noise are seen.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Jaxpr, Literal

from fedsofim.core.jaxprs import CALLS, jaxprs_in, open_jaxpr, releases_in
from fedsofim.core.release import Site, dp_release, operands
from fedsofim.errors import Refused

RECORDS, KEY = "records", "key"
REMEDY = {
    RECORDS: "return only what was computed from door.gradient, door.sum or door.second_moment",
    KEY: "noise that is known can be subtracted: return nothing computed from the door's key",
}


class Value(NamedTuple):
    taint: frozenset[str]
    name: int  # equal names mean equal values
    loops: frozenset[int]  # scans whose iterations see different values of this


_CLEAN: frozenset = frozenset()


@dataclass
class Walk:
    """One pass over a program; `loops` is the stack of (scan, length) around the current equation."""

    releases: list[tuple[Site, int]] = field(default_factory=list)
    keys_used: dict[int, str] = field(default_factory=dict)
    names: dict[Any, int] = field(default_factory=dict)
    fresh: Any = field(default_factory=itertools.count)
    recording: bool = True

    def inputs(self, given: Iterable[tuple[str, Any]]) -> list[Value]:
        """The values of a program's inputs, by name; the key and the records are private."""
        private = {"key": KEY, "records": RECORDS}
        values = []
        for name, tree in given:
            taint = frozenset({private[name]} if name in private else ())
            values += [self.new(taint) for _ in jax.tree.leaves(tree)]
        return values

    def new(self, taint: frozenset[str], loops: frozenset[int] = _CLEAN) -> Value:
        return Value(taint, self.name(("new", next(self.fresh))), loops)

    def name(self, structure: Any) -> int:
        return self.names.setdefault(structure, len(self.names))

    def jaxpr(self, jaxpr: Jaxpr, consts: Sequence, args: Sequence[Value], loops: tuple) -> list[Value]:
        env: dict[Any, Value] = {}

        def read(atom) -> Value:
            if isinstance(atom, Literal):
                if getattr(atom.val, "shape", ()):
                    return self.const(atom.val)
                return Value(_CLEAN, self.name(("literal", str(atom.aval), _scalar(atom))), _CLEAN)
            return env[atom]

        env.update(zip(jaxpr.constvars, [self.const(c) for c in consts], strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            outs = self.equation(eqn, [read(v) for v in eqn.invars], loops)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def const(self, value: Any) -> Value:
        """A captured scalar is a setting; a captured array, or a record kept from inside a sum, is not."""
        if isinstance(value, Tracer):
            try:
                jnp.isnan(value)  # fails unless the value belongs to a trace that still runs (a sweep's setting)
            except jax.errors.UnexpectedTracerError as error:
                raise Refused(
                    "a value from inside a per-record function was kept and used outside it: that is a raw record; "
                    f"{REMEDY[RECORDS]}"
                ) from error
        shape = getattr(value, "shape", ())
        if shape:
            raise Refused(
                f"the program captures an array of shape {tuple(shape)} from outside; it may hold records, and what "
                "is captured cannot be priced. Put public arrays into the server's state (init), and reach records "
                "only through the door"
            )
        return self.new(_CLEAN)

    def equation(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        if eqn.primitive is dp_release:
            return self.release(eqn, args, loops)
        rules = {"scan": self.scan, "while": self.loop, "cond": self.branch}
        if eqn.primitive.name in rules:
            return rules[eqn.primitive.name](eqn, args, loops)
        inner = [j for p in eqn.params.values() for j in jaxprs_in(p)]
        if eqn.primitive.name in CALLS and len(inner) == 1 and len(open_jaxpr(inner[0])[0].invars) == len(args):
            return self.jaxpr(*open_jaxpr(inner[0]), args, loops)
        if any(releases_in(j) for j in inner):
            raise Refused(f"a release stands inside '{eqn.primitive.name}', whose cost is not known; use door.scan")
        taint, seen = _union(a.taint for a in args), _union(a.loops for a in args)
        if taint and (eqn.effects or "callback" in eqn.primitive.name):
            raise Refused(
                f"'{eqn.primitive.name}' carries a value that depends on the {_words(taint)} out of the program; "
                "remove the print or callback"
            )
        structure = (eqn.primitive.name, str(eqn.params), tuple(a.name for a in args))
        return [Value(taint, self.name((structure, i)), seen) for i in range(len(eqn.outvars))]

    def release(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        site, op = eqn.params["site"], operands(args)
        if any(releases_in(j) for j in jaxprs_in(getattr(site.query, "jaxpr", None))):
            raise Refused(f"the per-record function of '{site.label}' itself opens the door; release it before")
        for const in op.consts:
            if const.taint:
                raise Refused(
                    f"the per-record function of '{site.label}' uses a value that depends on the "
                    f"{_words(const.taint)}: a record would then count in other records' vectors, beyond the clip. "
                    "Release that value first"
                )
        missing = [scan for scan, _ in loops if scan not in op.key.loops]
        if missing or KEY not in op.key.taint:
            raise Refused(f"the noise of '{site.label}' would repeat in every step of a loop; use door.scan")
        if self.recording:
            if op.key.name in self.keys_used:
                raise Refused(
                    f"the releases '{self.keys_used[op.key.name]}' and '{site.label}' would draw the same noise "
                    "(a jitted function that calls the door was called twice, or a key was copied); call the door anew"
                )
            self.keys_used[op.key.name] = site.label
            times = 1
            for _, length in loops:
                times *= length
            self.releases.append((site, times))
        return [self.new(_CLEAN, _union(a.loops for a in args)) for _ in eqn.outvars]

    def scan(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        p = eqn.params
        start = p["num_consts"] + p["num_carry"]
        scan_id = next(self.fresh)
        inner_loops = (*loops, (scan_id, p["length"]))
        xs = [self.new(a.taint, a.loops | {scan_id}) for a in args[start:]]
        carry = [a.taint for a in args[p["num_consts"] : start]]
        while True:
            values = [self.new(t) for t in carry]
            outs = self.trial(p["jaxpr"], [*args[: p["num_consts"]], *values, *xs], inner_loops)
            grown = [t | o.taint for t, o in zip(carry, outs, strict=False)]
            if grown == carry:
                break
            carry = grown
        outs = self.jaxpr(*open_jaxpr(p["jaxpr"]), [*args[: p["num_consts"]], *values, *xs], inner_loops)
        return [self.new(o.taint, o.loops - {scan_id}) for o in outs]

    def loop(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        p = eqn.params
        if releases_in(p["body_jaxpr"]) or releases_in(p["cond_jaxpr"]):
            raise Refused("a release stands inside a while-loop, so how often it happens is not fixed; use door.scan")
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        carry = [a.taint for a in args[nc + nb :]]
        while True:
            values = [self.new(t) for t in carry]
            outs = self.trial(p["body_jaxpr"], [*args[nc : nc + nb], *values], loops)
            grown = [t | o.taint for t, o in zip(carry, outs, strict=True)]
            if grown == carry:
                break
            carry = grown
        (stop,) = self.trial(p["cond_jaxpr"], [*args[:nc], *values], loops)
        self.clean_choice("while-loop", stop.taint)
        return values

    def branch(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        branches = eqn.params["branches"]
        if any(releases_in(b) for b in branches):
            raise Refused("a release stands inside a branch; release before the branch and choose after it (jnp.where)")
        self.clean_choice("branch", args[0].taint)
        results = [self.jaxpr(*open_jaxpr(b), args[1:], loops) for b in branches]
        return [self.new(_union(v.taint for v in vs), _union(v.loops for v in vs)) for vs in zip(*results, strict=True)]

    def clean_choice(self, what: str, taint: frozenset[str]) -> None:
        if taint:
            raise Refused(
                f"a {what} is decided by a value that depends on the {_words(taint)}, so what happens tells about "
                "it; decide by released values"
            )

    def trial(self, jaxpr, args: list[Value], loops: tuple) -> list[Value]:
        """Walk without recording: for fixpoints, where a body is visited more than once."""
        before, self.recording = self.recording, False
        try:
            return self.jaxpr(*open_jaxpr(jaxpr), args, loops)
        finally:
            self.recording = before


def _union(sets) -> frozenset:
    return frozenset().union(*sets)


def _words(taint: frozenset[str]) -> str:
    return " and the noise ".join(sorted(taint, reverse=True)) if taint != {KEY} else "noise key"


def _scalar(atom: Any) -> str:
    """Its value as the program has it: two spellings of one float32 are one number."""
    return str(np.asarray(atom.val).astype(atom.aval.dtype).tolist())
