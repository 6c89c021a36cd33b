"""Client programs as small trees that can be printed, measured, and cut down.

Every node evaluates to a float32 vector of length 3, so that any node can stand wherever another stands: that is what
makes generating, planting leaks and shrinking simple. `fuzz_build.py` turns a tree into a client's program.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

#: Nodes whose first argument is the body of a function of `v`; the others are what it is given.
BODIES = {
    "jit", "remat", "custom_jvp", "custom_vjp", "grad", "linearize", "lax_scan", "reduce", "fori", "while", "map",
    "vmap", "door_scan", "twice", "scan_twice",
}  # fmt: skip

#: Nodes whose first argument is a function of one record (x, y), which may use `v` of the client's program.
RECORD_BODIES = {"sum", "second_moment", "bind_sum"}

#: Nodes that release.
RELEASES = {"gradient", *RECORD_BODIES}


@dataclass(frozen=True)
class Node:
    """One operation on vectors; `setting` is a number or a word that it is fixed by."""

    op: str
    args: tuple["Node", ...] = ()
    setting: Any = None

    def __str__(self) -> str:
        if self.op == "program":
            upload, memory, loss = self.args
            body = f"client(door, params, state, memory): upload = {upload}; memory = {memory}"
            return body if loss == HEAD else f"{body}; loss(v=params, x, y) = {loss}"
        parts = [str(a) for a in self.args]
        if self.op in BODIES:
            parts[0] = f"λv: {parts[0]}"
        if self.op in RECORD_BODIES:
            parts[0] = f"λx,y: {parts[0]}"
        if self.setting is not None:
            parts.append(str(self.setting))
        return f"{self.op}({', '.join(parts)})" if parts else self.op


HEAD = Node("softmax_head")


def size(node: Node) -> int:
    """How many nodes a tree has."""
    return 1 + sum(size(a) for a in node.args)


def paths(node: Node, here: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Node]]:
    """Every node with the way to it, from the root down."""
    yield here, node
    for i, argument in enumerate(node.args):
        yield from paths(argument, (*here, i))


def put(node: Node, path: tuple[int, ...], new: Node) -> Node:
    """The tree with another node at a place."""
    if not path:
        return new
    first, *rest = path
    args = tuple(put(a, tuple(rest), new) if i == first else a for i, a in enumerate(node.args))
    return replace(node, args=args)


def around(node: Node, path: tuple[int, ...]) -> list[Node]:
    """The nodes that a place stands in, from the outside in, each only if the place is in a body of it."""
    found = []
    for step in path:
        body = step == 0 and node.op in BODIES | RECORD_BODIES
        if body or (step > 0 and node.op in ("cond", "switch")):
            found.append(node)
        node = node.args[step]
    return found


def in_record(node: Node, path: tuple[int, ...]) -> bool:
    """Is a place inside a function of one record?"""
    return any(n.op in RECORD_BODIES for n in around(node, path)) or (len(path) > 0 and path[0] == 2)
