"""The clients of a job as their nodes introduce themselves, checked against each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsofim.deploy.sane import is_name
from fedsofim.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Client:
    """A node as it introduced itself."""

    name: str
    size: int
    shape: tuple[int, ...]
    classes: int
    ledger: str = ""  # its identity


def client_of(hello: Mapping[str, Any]) -> Client:
    """The client in a node's introduction."""
    try:
        shape = tuple(map(int, hello["shape"]))
        name, size, classes = str(hello["node"]), int(hello["size"]), int(hello["classes"])
        ledger = str(hello.get("ledger", ""))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError("a node's introduction cannot be read; do all run the same version?") from error
    if not is_name(name):
        raise InputError(f"a node calls itself {name[:40]!r}; expected a plain name")
    if size < 1 or classes < 1 or not shape or min(shape) < 1:
        raise InputError(f"{name} states size {size}, shape {list(shape)}; expected at least one record")
    return Client(name=name, size=size, shape=shape, classes=classes, ledger=ledger)


def clients_of(hellos: Sequence[Mapping[str, Any]], wanted: int) -> tuple[Client, ...]:
    """The clients of a job for so many, in the order of their names."""
    found = sorted(map(client_of, hellos), key=lambda c: c.name)
    check_names([c.name for c in found])
    if len(found) != wanted:
        raise InputError(f"{len(found)} nodes are here ({', '.join(c.name for c in found)}); the job is for {wanted}")
    for c in found[1:]:
        if (c.shape, c.classes) != (found[0].shape, found[0].classes):
            raise InputError(
                f"{found[0].name} has records of shape {list(found[0].shape)} in {found[0].classes} classes, {c.name} "
                f"of shape {list(c.shape)} in {c.classes}; expected the same everywhere"
            )
    return tuple(found)


def check_names(names: Sequence[str]) -> None:
    """No two nodes may have one name."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two nodes call themselves {name}; give each a name of its own in its policy")
