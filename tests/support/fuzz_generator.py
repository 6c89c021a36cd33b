"""Draws client programs: an honest tree, and into some of them leaks are planted.

Whoever chooses is passed in: a seeded generator in the long run, hypothesis in the tests, which then shrinks.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fuzz_grammar import HEAD, RECORD_BODIES, RELEASES, Node, in_record, paths, put
from fuzz_leaks import BINDINGS, EFFECTS, FORGERIES, RAW
from fuzz_vectors import BINARY, HIGHER, UNARY

MOST_RELEASES = 6  # of one client in a round: what the oracle measures quickly
_STEEP = {"while", "bits", "argsort", "int", "barrier", "top_k"}  # not differentiable, or not both ways
_OPEN = ("jit", "remat", "door_scan")  # bodies in which an honest program may release


class Chooser(Protocol):
    def below(self, n: int) -> int:
        """A whole number from 0 to n-1."""
        ...


@dataclass(frozen=True)
class Seeded:
    """Choices from a seed."""

    random: random.Random

    def below(self, n: int) -> int:
        return self.random.randrange(n)


@dataclass(frozen=True)
class Drawn:
    """Choices from hypothesis, 0 being the simplest; `draw` is draw(strategy) -> value."""

    draw: Callable

    def below(self, n: int) -> int:
        from hypothesis import strategies as st

        return self.draw(st.integers(0, n - 1))


@dataclass(frozen=True)
class Place:
    """What may stand here."""

    record: bool = False  # inside a function of one record
    release: bool = True  # may the door be called
    smooth: bool = False  # must it have a derivative
    depth: int = 4


def pick(c: Chooser, options: Sequence) -> Any:
    return options[c.below(len(options))]


def program(c: Chooser, *, planted: int) -> Node:
    """A whole client: an upload with a release in it, a memory, a loss; then as many leaks as asked for."""
    top = Place()
    upload = Node(pick(c, ["add", "mix", "drop"]), (release(c, replace(top, depth=3)), expression(c, top)))
    memory = pick(c, [Node("memory"), expression(c, replace(top, depth=2))])
    loss = HEAD if c.below(3) else expression(c, Place(record=True, release=False, smooth=True, depth=3))
    tree = Node("program", (upload, memory, loss))
    for _ in range(planted):
        tree = plant(c, tree)
    return tree if _executed(tree) <= MOST_RELEASES else program(c, planted=planted)


def _executed(node: Node) -> int:
    """At most how often a tree releases: bodies of loops count by their length, of double calls twice."""
    times = {"twice": 2, "scan_twice": 2, "map": 2, "vmap": 2}.get(node.op)
    if times is None:
        times = node.setting if isinstance(node.setting, int) else 1
    first = times * _executed(node.args[0]) if node.args else 0
    return first + sum(_executed(a) for a in node.args[1:]) + (node.op in RELEASES)


def expression(c: Chooser, at: Place) -> Node:
    """Any vector that may stand at a place."""
    if at.depth <= 0:
        return leaf(c, at)
    inner = replace(at, depth=at.depth - 1)
    kind = c.below(12)
    if kind < 3:
        return leaf(c, at)
    if kind < 5:
        return Node(pick(c, [op for op in UNARY if not (at.smooth and op in _STEEP)]), (expression(c, inner),))
    if kind < 7:
        return Node(pick(c, list(BINARY)), (expression(c, inner), expression(c, inner)))
    if kind < 9:
        return function(c, inner)
    if kind == 9:
        sure = replace(inner, release=False)
        op, branches = pick(c, [("cond", 2), ("switch", 3)])
        return Node(op, (expression(c, inner), *(expression(c, sure) for _ in range(branches))))
    return release(c, inner) if at.release and not at.record else leaf(c, at)


def leaf(c: Chooser, at: Place) -> Node:
    inside, outside = ["x", "x", "y", "v", "params"], ["params", "state", "memory", "v", "size", "round", "rounds"]
    name = pick(c, ["number", *(inside if at.record else outside)])
    return Node(name, (), pick(c, [0.5, 0.0, -2.0, 3.0])) if name == "number" else Node(name)


def function(c: Chooser, inner: Place) -> Node:
    """A transformed function of `v`, called once."""
    names = [op for op in HIGHER if not (inner.smooth and op in (*_STEEP, "grad", "linearize"))]
    op = pick(c, [*names, "door_scan"] if inner.release and not inner.record else names)
    body = replace(
        inner, release=inner.release and op in _OPEN, smooth=inner.smooth or op in ("grad", "linearize", "custom_jvp")
    )
    many = op in ("lax_scan", "reduce", "fori", "while", "door_scan")
    return Node(op, (expression(c, body), expression(c, inner)), 1 + c.below(3) if many else None)


def release(c: Chooser, inner: Place) -> Node:
    """A release of any kind, or a few local steps."""
    below = replace(inner, depth=min(inner.depth, 2))
    op = pick(c, ["gradient", "sum", "second_moment", "door_scan", "sum", "gradient"])
    clip, noise = pick(c, [1.0, 0.5, 2.0]), pick(c, ["1", "1", "2", "0.5", "independent", "tree", "diagonal"])
    if op == "gradient":
        return Node(op, (expression(c, replace(below, release=False)),), (clip, noise))
    if op == "door_scan":
        step = Node(pick(c, ["sub", "mix"]), (Node("v"), release(c, replace(below, depth=below.depth - 1))))
        return Node(op, (step, expression(c, replace(below, depth=1))), 1 + c.below(2)) if inner.depth > 0 else step
    body = expression(c, replace(below, record=True, release=False))
    outside = expression(c, replace(below, release=inner.depth > 1, depth=1))
    return Node(op, (body, outside), (clip, noise, pick(c, ["one", "one", "two"]) if op == "sum" else "one"))


# --- planting ----------------------------------------------------------------------------------------------------


def plant(c: Chooser, tree: Node) -> Node:
    """The tree with one thing in it that an honest program would not have."""
    everywhere = [(path, node) for path, node in paths(tree) if path and node != HEAD]
    doors = [(p, n) for p, n in everywhere if n.op in RELEASES and not in_record(tree, p)]
    inside = [(p, n) for p, n in everywhere if in_record(tree, p) and p[0] != 2] or everywhere
    kind = pick(c, ["raw", "raw", "effect", "vmap", "inside", "release", "release", "release", "twice"])
    if kind in ("release", "twice") and doors:
        path, node = pick(c, doors)
        return put(tree, path, _around_release(c, node) if kind == "release" else _twice(c, node))
    path, node = pick(c, inside if kind == "inside" else everywhere)
    if kind == "effect":
        return put(tree, path, Node(pick(c, list(EFFECTS)), (node,)))
    if kind == "vmap":
        return put(tree, path, _lying_rule(c, node))
    if kind == "inside":
        wraps = [Node(pick(c, list(EFFECTS)), (node,)), _lying_rule(c, node), Node("keep", (node,)), _sourced(c, node)]
        return put(tree, path, pick(c, wraps))
    return put(tree, path, _sourced(c, node))


def _sourced(c: Chooser, node: Node) -> Node:
    """A raw source added to a value, put in its place, or deciding about it."""
    raw = Node(pick(c, list(RAW)))
    ways = [
        raw,
        Node("add", (node, raw)),
        Node("cond", (raw, node, Node("neg", (node,)))),
        Node("index", (node, raw)),
        Node("lax_scan", (Node("add", (Node("v"), raw)), node), 2),
        Node("while", (Node("mix", (Node("v"), raw)), node), 2),
        Node("zero", (node, raw)),
        Node("drop", (node, raw)),
    ]
    return pick(c, ways)


def _lying_rule(c: Chooser, node: Node) -> Node:
    swaps = Node("custom_vmap_swaps", (node, Node(pick(c, ["raw_mean", "raw_first", "x", "key_normal"]))))
    return pick(c, [swaps, Node("custom_vmap_mixes", (node,)), Node("custom_vmap", (node,))])


def _around_release(c: Chooser, node: Node) -> Node:
    """A release with something forged, in a loop that repeats its noise, or with settings nobody should use."""
    wrapped = [
        Node("forge", (node,), pick(c, list(FORGERIES))),
        Node("forge", (node,), pick(c, list(FORGERIES))),
        Node(pick(c, ["lax_scan", "fori", "while", "reduce"]), (Node("sub", (Node("v"), node)), Node("state")), 2),
        Node(pick(c, ["map", "vmap", "custom_jvp", "custom_vjp", "grad"]), (node, Node("params"))),
        Node("cond", (Node("state"), node, Node("params"))),
        Node("door_scan", (Node("first_door", (node,)), Node("params")), 2),
        Node("door_scan", (Node("add", (Node("v"), node)), Node("raw_mean")), 2),
    ]
    if node.op in RECORD_BODIES:
        wrapped.append(Node("bind_sum", node.args, pick(c, BINDINGS)))
        wrapped.append(replace(node, args=(Node("sub", (node.args[0], Node("v"))), Node("raw_mean"))))
    if node.op == "sum":
        noise = pick(c, ["tiny", "tinier", "1", "sampled"])
        kind = pick(c, ["bfloat16", "float16", "one"])
        wrapped += 2 * [replace(node, setting=(pick(c, [1.0, 1e-6, 1e-25]), noise, kind))]
    return pick(c, wrapped)


def _twice(c: Chooser, node: Node) -> Node:
    """One function that releases, called at two points: does each call have noise of its own?"""
    points = Node("params"), Node("mul", (Node("params"), Node("number", (), 3.0)))
    moved = _at_v(node)
    step = Node("add", (Node("v"), moved))
    return pick(
        c,
        [
            Node("twice", (moved, *points), pick(c, ["jit", "remat", "plain"])),
            Node("twice", (Node("door_scan", (step, Node("v")), 1), *points), pick(c, ["jit", "remat", "plain"])),
            Node("scan_twice", (step, *points)),
            Node("sub", (node, node)),
        ],
    )


def _at_v(node: Node) -> Node:
    """The same release, asked at `v`."""
    last = len(node.args) - 1
    return replace(node, args=(*node.args[:last], Node("v")))
