"""Reads a client's program: what it releases, how often, and that nothing else leaves.

The program is traced once to a jaxpr. A walk over it follows two taints, "records" and "key", from the door's
private fields to the outputs; only `dp_release` washes them off. The same walk counts releases (a scan of length
K multiplies by K) and gives every value a structural name, so that two releases drawing equal noise are seen.

It catches mistakes, not malice: a program that hides data in Python state, or forges the door, is outside it.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedsofim.errors import Refused
from fedsofim.mechanisms import Independent, Mischarged
from fedsofim.models import Model
from fedsofim.privacy import Charge
from fedsofim.records import Records
from fedsofim.release import Facts, Private, Site, auditing, dp_release, operands

RECORDS, KEY = "records", "key"
_REMEDY = {
    RECORDS: "return only what was computed from door.gradient, door.sum or door.second_moment",
    KEY: "noise that is known can be subtracted: return nothing computed from the door's key",
}


#: Primitives that just run the program they hold; any other that holds one is not looked into.
CALLS = {
    "jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call",
    "custom_vmap_call",
}  # fmt: skip


class Inputs(NamedTuple):
    """What a client's program takes, in order. Private: key and records."""

    params: Any
    state: Any  # the server's, all of it public
    memory: Any  # what this client kept from its last round
    key: Any
    index: Any
    size: Any
    round: Any
    noise_std: Any
    stds: Any
    records: Records


@dataclass(frozen=True, eq=False)
class Program:
    """A client's program as audited: the jaxpr that was priced is the one that runs."""

    jaxpr: ClosedJaxpr
    outputs: Any  # structure of (upload, memory)
    charges: tuple[Charge, ...]
    sites: tuple[Site, ...]

    def __call__(self, inputs: Inputs) -> tuple[Any, Any]:
        flat = eval_jaxpr(self.jaxpr.jaxpr, self.jaxpr.consts, *jax.tree.leaves(inputs))
        return jax.tree.unflatten(self.outputs, flat)


def audit(client: Callable, model: Model, inputs: Inputs, facts: Facts, rounds: int, offset: int = 0) -> Program:
    """Trace client(door, params, state, memory) -> (upload, memory), price it for `rounds` runs, or refuse it.

    `inputs` are shapes only: no record is needed to price a program. `offset` tells the sites of several programs
    of one run apart.
    """

    def program(i: Inputs):
        door = Private(
            i.records, model, i.key, i.index, i.stds, [], i.size, i.round, facts._replace(noise_std=i.noise_std)
        )
        return client(door, i.params, i.state, i.memory)

    try:
        with auditing():
            closed, out = jax.make_jaxpr(program, return_shape=True)(inputs)
    except jax.errors.ConcretizationTypeError as error:
        raise Refused(
            "the program branches in Python on a value known only at run time; if it came from records that is a "
            "leak, and if it was released use jnp.where"
        ) from error
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(out)[0]]
    walk = _Walk()
    values = walk.jaxpr(closed.jaxpr, closed.consts, walk.inputs(inputs), ())
    for path, value in zip(paths, values, strict=True):
        for taint in (RECORDS, KEY):
            if taint in value.taint:
                raise Refused(f"{_output(path)} depends on the {taint} other than through a release; {_REMEDY[taint]}")
    charges = tuple(_charge(site, times, rounds, offset) for site, times in walk.releases)
    return Program(closed, jax.tree.structure(out), charges, tuple(site for site, _ in walk.releases))


def _charge(site: Site, times: int, rounds: int, offset: int) -> Charge:
    if site.sample < 1 and not isinstance(site.noise, Independent):
        raise Refused(
            f"the release '{site.label}' samples records under noise laid out over the rounds; no accountant here "
            "prices that. Sample with independent noise, or read all records"
        )
    weight = times * site.noise.cost(rounds)
    charged = times * site.noise.charged(rounds) if isinstance(site.noise, Mischarged) else None
    return Charge(
        offset + site.number,
        site.label,
        site.clip,
        site.query.ratio,
        times * rounds,
        weight,
        site.sample,
        site.share,
        charged,
    )


def _output(path: str) -> str:
    """'[0]['w']' of (upload, memory) in words."""
    place, rest = ("upload", path[3:]) if path.startswith("[0]") else ("client memory", path[3:])
    return f"the {place}{' ' + rest if rest else ''}"


# --- the walk -----------------------------------------------------------------------------------------------


class _Value(NamedTuple):
    taint: frozenset[str]
    name: int  # equal names mean equal values
    loops: frozenset[int]  # scans whose iterations see different values of this


_CLEAN: frozenset = frozenset()


@dataclass
class _Walk:
    """One pass over a program; `loops` is the stack of (scan, length) around the current equation."""

    releases: list[tuple[Site, int]] = field(default_factory=list)
    keys_used: dict[int, str] = field(default_factory=dict)
    names: dict[Any, int] = field(default_factory=dict)
    fresh: Any = field(default_factory=itertools.count)
    recording: bool = True

    def inputs(self, inputs: Inputs) -> list[_Value]:
        private = {"key": KEY, "records": RECORDS}
        values = []
        for name, leaf in zip(Inputs._fields, inputs, strict=True):
            taint = frozenset({private[name]} if name in private else ())
            values += [self.new(taint) for _ in jax.tree.leaves(leaf)]
        return values

    def new(self, taint: frozenset[str], loops: frozenset[int] = _CLEAN) -> _Value:
        return _Value(taint, self.name(("new", next(self.fresh))), loops)

    def name(self, structure: Any) -> int:
        return self.names.setdefault(structure, len(self.names))

    def jaxpr(self, jaxpr: Jaxpr, consts: Sequence, args: Sequence[_Value], loops: tuple) -> list[_Value]:
        env: dict[Any, _Value] = {}

        def read(atom) -> _Value:
            if isinstance(atom, Literal):
                if getattr(atom.val, "shape", ()):
                    return self.const(atom.val)
                return _Value(_CLEAN, self.name(("literal", str(atom.aval), _scalar(atom))), _CLEAN)
            return env[atom]

        env.update(zip(jaxpr.constvars, [self.const(c) for c in consts], strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            outs = self.equation(eqn, [read(v) for v in eqn.invars], loops)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def const(self, value: Any) -> _Value:
        """A captured scalar is a setting; a captured array, or a record kept from inside a sum, is not."""
        if isinstance(value, Tracer):
            try:
                jnp.isnan(value)  # fails unless the value belongs to a trace that still runs (a sweep's setting)
            except jax.errors.UnexpectedTracerError as error:
                raise Refused(
                    "a value from inside a per-record function was kept and used outside it: that is a raw record; "
                    f"{_REMEDY[RECORDS]}"
                ) from error
        shape = getattr(value, "shape", ())
        if shape:
            raise Refused(
                f"the program captures an array of shape {tuple(shape)} from outside; it may hold records, and what "
                "is captured cannot be priced. Put public arrays into the server's state (init), and reach records "
                "only through the door"
            )
        return self.new(_CLEAN)

    def equation(self, eqn, args: list[_Value], loops: tuple) -> list[_Value]:
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
        return [_Value(taint, self.name((structure, i)), seen) for i in range(len(eqn.outvars))]

    def release(self, eqn, args: list[_Value], loops: tuple) -> list[_Value]:
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

    def scan(self, eqn, args: list[_Value], loops: tuple) -> list[_Value]:
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

    def loop(self, eqn, args: list[_Value], loops: tuple) -> list[_Value]:
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

    def branch(self, eqn, args: list[_Value], loops: tuple) -> list[_Value]:
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

    def trial(self, jaxpr, args: list[_Value], loops: tuple) -> list[_Value]:
        """Walk without recording: for fixpoints, where a body is visited more than once."""
        before, self.recording = self.recording, False
        try:
            return self.jaxpr(*open_jaxpr(jaxpr), args, loops)
        finally:
            self.recording = before


# --- small helpers on jaxprs --------------------------------------------------------------------------------


def open_jaxpr(jaxpr) -> tuple[Jaxpr, Sequence]:
    """A jaxpr and its constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())


def jaxprs_in(param: Any) -> list:
    """The programs that one of an equation's parameters holds."""
    items = param if isinstance(param, tuple | list) else [param]
    return [j for j in items if isinstance(j, ClosedJaxpr | Jaxpr)]


def releases_in(jaxpr) -> bool:
    """Does a program, or one inside it, release anything?"""
    return any(
        eqn.primitive is dp_release or any(releases_in(j) for p in eqn.params.values() for j in jaxprs_in(p))
        for eqn in open_jaxpr(jaxpr)[0].eqns
    )


def _union(sets) -> frozenset:
    return frozenset().union(*sets)


def _words(taint: frozenset[str]) -> str:
    return " and the noise ".join(sorted(taint, reverse=True)) if taint != {KEY} else "noise key"


def _scalar(atom: Any) -> str:
    """Its value as the program has it: two spellings of one float32 are one number."""
    return str(np.asarray(atom.val).astype(atom.aval.dtype).tolist())
