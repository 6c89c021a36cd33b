"""A smaller program with the same fate: children in place of their parents, leaves in place of trees."""

from collections.abc import Callable, Iterator

from fuzz_grammar import HEAD, Node, paths, put, size

_LEAVES = (Node("v"), Node("params"), Node("x"))


def shrunk(tree: Node, same: Callable[[Node], bool], tries: int = 200) -> Node:
    """The smallest tree found, in so many tries, of which `same` still holds."""
    while tries > 0:
        for smaller in _smaller(tree):
            tries -= 1
            if same(smaller):
                tree = smaller
                break
            if tries <= 0:
                break
        else:
            return tree
    return tree


def _smaller(tree: Node) -> Iterator[Node]:
    """Trees with one node replaced by something smaller, the largest cuts first."""
    places = sorted(paths(tree), key=lambda place: -size(place[1]))
    if tree.args[2] != HEAD:
        yield put(tree, (2,), HEAD)
    for path, node in places:
        if not path or node == HEAD:
            continue
        options = [*node.args, *_LEAVES] if node.args else []
        yield from (put(tree, path, option) for option in options)
