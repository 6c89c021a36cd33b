"""The walk over a client's opened program: what depends on records and on the noise key, what is released how often.

Two taints, "records" and "key", are followed from the program's private inputs through every equation; only
`dp_release` washes them off. primitives.py has the rules: what a pure primitive gives depends on all of its operands.

A release must be the engine's own: its records, client, round and stds are the program's inputs, untouched, and its
key is derived from the program's key the way the door derives it. A key is known by its path: ("fold", n) for the
door's n-th call, ("each",) for one step of a loop. The paths of a program's releases look like

    fold s₁, each, fold s₂, each, …, fold n        n the release's own number, s₁, s₂, … numbers of scans,

no two releases have one number, and no scan has the number of a release. So no path is the beginning of another, and
at each key either numbers are folded in or steps are split off, never both (JAX's split and fold_in can give equal
keys): equal keys would need equal paths, and there are none.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Jaxpr, Literal

from fedsofim.core.apart import check_apart
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr, releases_in
from fedsofim.core.opening import check_captured, check_known
from fedsofim.core.primitives import Rule, rule_of
from fedsofim.core.release import dp_release, operands
from fedsofim.core.site import Site, per_record
from fedsofim.errors import Refused

RECORDS, KEY = "records", "key"
REMEDY = {
    RECORDS: "return only what was computed from door.gradient, door.sum or door.second_moment",
    KEY: "noise that is known can be subtracted: return nothing computed from the door's key",
}
_EACH = ("each",)


class Value(NamedTuple):
    """What the walk knows of a value: what it depends on, and where it comes from if it was not touched since."""

    taint: frozenset[str] = frozenset()
    origin: Any = None  # (input's name, leaf), ("number", n), ("key", path) or ("keys", path)
    loops: frozenset[int] = frozenset()  # of a key: the scans each of whose steps has another


_PUBLIC = Value()


@dataclass
class Walk:
    """One pass over a program; `loops` is the stack of (scan, length) around the current equation."""

    releases: list[tuple[Site, int]] = field(default_factory=list)
    scans: set[int] = field(default_factory=set)  # numbers that the door's scans folded into keys
    fresh: Any = field(default_factory=itertools.count)
    recording: bool = True
    declared: tuple[Any, ...] = ()  # arrays that the model says are public: these very ones may be captured

    def inputs(self, given: Iterable[tuple[str, Any]]) -> list[Value]:
        """The values of a program's inputs, by name; the key and the records are private."""
        values = []
        for name, tree in given:
            for i, _ in enumerate(jax.tree.leaves(tree)):
                values.append(_input(name, i))
        return values

    def jaxpr(self, jaxpr: Jaxpr, consts: Sequence, args: Sequence[Value], loops: tuple) -> list[Value]:
        for const in consts:
            if not any(const is public for public in self.declared):
                check_captured(const)
        env: dict[Any, Value] = dict.fromkeys(jaxpr.constvars, _PUBLIC)
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom) -> Value:
            return _literal(atom) if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            outs = self.equation(eqn, [read(v) for v in eqn.invars], loops)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        if eqn.primitive is dp_release:
            return self.release(eqn, args, loops)
        rule = rule_of(eqn.primitive)
        if rule is None or rule is Rule.CALL or eqn.effects:
            raise Refused(f"'{eqn.primitive.name}' is left in the opened program; the audit has no rule for it")
        special = {Rule.SCAN: self.scan, Rule.WHILE: self.loop, Rule.COND: self.branch}
        if rule in special:
            return special[rule](eqn, args, loops)
        if any(releases_in(j) for p in eqn.params.values() for j in jaxprs_in(p)):
            raise Refused(f"a release stands inside '{eqn.primitive.name}', whose cost is not known; use door.scan")
        taint = _union(a.taint for a in args)
        if rule is Rule.FOLD or rule is Rule.SPLIT:
            return [Value(taint, _derived(rule, args, eqn.params), args[0].loops)]
        return [Value(taint)] * len(eqn.outvars)

    # --- releases -------------------------------------------------------------------------------------------

    def release(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        site, op = eqn.params["site"], operands(args)
        _check_own(site, op)
        self.check_query(site, op.consts)
        path = self.check_key(site, op.key, loops)
        if self.recording:
            if any(site.number == known.number for known, _ in self.releases):
                raise Refused(
                    f"two releases ('{site.label}') would draw the same noise (a jitted function that calls the door "
                    "was called twice, or a key was copied); call the door anew"
                )
            self.scans |= {number for step, *rest in path[:-1] for number in rest}
            times = 1
            for _, length in loops:
                times *= length
            if times < 1:
                raise Refused(f"the release '{site.label}' stands in a loop of no steps; take it out")
            self.releases.append((site, times))
        return [_PUBLIC] * len(eqn.outvars)

    def check_query(self, site: Site, consts: Sequence[Value]) -> None:
        """The per-record function meets one record, public values and nothing else, and only computes."""
        for vector in per_record(site.query):
            if releases_in(vector.jaxpr):
                raise Refused(f"the per-record function of '{site.label}' itself opens the door; release it before")
            check_known(vector.jaxpr)
            check_apart(site.label, vector.jaxpr)
        for const in consts:
            if const.taint:
                raise Refused(
                    f"the per-record function of '{site.label}' uses a value that depends on the "
                    f"{_words(const.taint)}: a record would then count in other records' vectors, beyond the clip. "
                    "Release that value first"
                )

    def check_key(self, site: Site, key: Value, loops: tuple) -> tuple:
        """The path of a release's key, which must be the door's, with a step for every loop around the release."""
        kind, path = key.origin if isinstance(key.origin, tuple) else ("", ())
        if kind == "key" and any(scan not in key.loops for scan, _ in loops):
            raise Refused(f"the noise of '{site.label}' would repeat in every step of a loop; use door.scan")
        if kind != "key" or not path or path[-1] != ("fold", site.number) or not _alternates(path):
            raise Refused(
                f"the noise of '{site.label}' is not drawn by the door's own key for this call; call the door, and "
                "leave its keys alone"
            )
        return path

    def check_numbers(self) -> None:
        """At the end: no scan has the number of a release, so that no key is used both ways."""
        if clash := self.scans & {site.number for site, _ in self.releases}:
            raise Refused(f"the door's call {min(clash)} is both a release and a scan; use the door as it is given")

    # --- loops and choices ----------------------------------------------------------------------------------

    def scan(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        p = eqn.params
        start = p["num_consts"] + p["num_carry"]
        scan_id = next(self.fresh)
        inner_loops = (*loops, (scan_id, p["length"]))
        xs = [_element(a, scan_id) for a in args[start:]]
        carry = [a.taint for a in args[p["num_consts"] : start]]
        while True:
            values = [Value(t) for t in carry]
            outs = self.trial(p["jaxpr"], [*args[: p["num_consts"]], *values, *xs], inner_loops)
            grown = [t | o.taint for t, o in zip(carry, outs, strict=False)]
            if grown == carry:
                break
            carry = grown
        outs = self.jaxpr(*open_jaxpr(p["jaxpr"]), [*args[: p["num_consts"]], *values, *xs], inner_loops)
        return [*values, *(Value(o.taint) for o in outs[p["num_carry"] :])]  # of no steps, what went in comes out

    def loop(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        p = eqn.params
        if releases_in(p["body_jaxpr"]) or releases_in(p["cond_jaxpr"]):
            raise Refused("a release stands inside a while-loop, so how often it happens is not fixed; use door.scan")
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        carry = [a.taint for a in args[nc + nb :]]
        while True:
            values = [Value(t) for t in carry]
            outs = self.trial(p["body_jaxpr"], [*args[nc : nc + nb], *values], loops)
            grown = [t | o.taint for t, o in zip(carry, outs, strict=True)]
            if grown == carry:
                break
            carry = grown
        (stop,) = self.trial(p["cond_jaxpr"], [*args[:nc], *values], loops)
        _clean_choice("while-loop", stop.taint)
        return values

    def branch(self, eqn, args: list[Value], loops: tuple) -> list[Value]:
        branches = eqn.params["branches"]
        if any(releases_in(b) for b in branches):
            raise Refused("a release stands inside a branch; release before the branch and choose after it (jnp.where)")
        _clean_choice("branch", args[0].taint)
        results = [self.jaxpr(*open_jaxpr(b), args[1:], loops) for b in branches]
        return [Value(_union(v.taint for v in vs)) for vs in zip(*results, strict=True)]

    def trial(self, jaxpr, args: list[Value], loops: tuple) -> list[Value]:
        """Walk without recording: for fixpoints, where a body is visited more than once."""
        before, self.recording = self.recording, False
        try:
            return self.jaxpr(*open_jaxpr(jaxpr), args, loops)
        finally:
            self.recording = before


# --- where values come from ---------------------------------------------------------------------------------


def _input(name: str, leaf: int) -> Value:
    if name == "key":
        return Value(frozenset({KEY}), ("key", ()))
    return Value(frozenset({RECORDS} if name == "records" else ()), (name, leaf))


def _literal(atom: Any) -> Value:
    check_captured(atom.val)
    whole = np.issubdtype(atom.aval.dtype, np.integer)
    return Value(origin=("number", int(atom.val))) if whole else _PUBLIC


def _derived(rule: Rule, args: list[Value], params: dict) -> Any:
    """The origin of a key that was folded or split, if both the key and the number are the door's."""
    kind, path = args[0].origin if isinstance(args[0].origin, tuple) else ("", ())
    if kind != "key":
        return None
    if rule is Rule.SPLIT:
        return ("keys", path) if len(params["shape"]) == 1 else None
    number = args[1].origin
    return ("key", (*path, ("fold", number[1]))) if number and number[0] == "number" else None


def _element(value: Value, scan_id: int) -> Value:
    """What one step of a scan sees of what is scanned over."""
    if isinstance(value.origin, tuple) and value.origin[0] == "keys":
        return Value(value.taint, ("key", (*value.origin[1], _EACH)), value.loops | {scan_id})
    return Value(value.taint)


def _alternates(path: tuple) -> bool:
    """fold, each, fold, each, …, fold."""
    return len(path) % 2 == 1 and all((step == _EACH) == (i % 2 == 1) for i, step in enumerate(path))


def _check_own(site: Site, op: Any) -> None:
    """Records, client, round and stds of a release are the program's inputs, as they came in."""
    given = {"round": [op.round], "index": [op.index], "stds": [op.stds], "records": list(op.records)}
    for name, values in given.items():
        if any(v.origin != (name, i) for i, v in enumerate(values)):
            raise Refused(
                f"the release '{site.label}' has other {name} than the program was given; use the door as it is given, "
                "and call it outside of loops that carry it along"
            )


def _clean_choice(what: str, taint: frozenset[str]) -> None:
    if taint:
        raise Refused(
            f"a {what} is decided by a value that depends on the {_words(taint)}, so what happens tells about it; "
            "decide by released values"
        )


def _union(sets) -> frozenset:
    return frozenset().union(*sets)


def _words(taint: frozenset[str]) -> str:
    return " and the noise ".join(sorted(taint, reverse=True)) if taint != {KEY} else "noise key"
