"""The clients of a job as their nodes introduce themselves, checked against each other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsofim.core.budget import epsilon_stated
from fedsofim.data.columns import feature_names
from fedsofim.data.meaning import differences, digest_of
from fedsofim.data.schema import Schema, schema_of
from fedsofim.deploy.sane import is_name
from fedsofim.errors import InputError
from fedsofim.protection import PROTECTED, UNITS


@dataclass(frozen=True, kw_only=True)
class Client:
    """A node as it introduced itself."""

    name: str
    size: int
    shape: tuple[int, ...]
    classes: int
    ledger: str = ""  # its identity
    mask_key: str = ""  # digest of its public mask key
    schema: str = ""  # of its table, as JSON; empty where it has none
    held_out: int = 0  # records that no round sees
    allows: tuple[float, float] | None = None  # (epsilon, delta) that its policy still allows (allowances.py)
    unit: str = "record"  # whom it protects; sizes count these

    @property
    def counted(self) -> int:
        """How many records its right answers are counted on."""
        return self.held_out or self.size

    @property
    def described(self) -> Schema | None:
        """What its columns mean."""
        return schema_of(json.loads(self.schema), f"the schema of {self.name}") if self.schema else None

    @property
    def digest(self) -> str:
        """Of that meaning."""
        return digest_of(self.described)


def client_of(hello: Mapping[str, Any]) -> Client:
    """The client in a node's introduction."""
    try:
        shape = tuple(map(int, hello["shape"]))
        name, size, classes = str(hello["node"]), int(hello["size"]), int(hello["classes"])
        ledger, held_out = str(hello.get("ledger", "")), int(hello.get("held_out", 0))
        unit, mask_key = str(hello.get("unit", "record")), str(hello.get("mask_key", ""))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError("a node's introduction cannot be read; do all run the same version?") from error
    if not is_name(name):
        raise InputError(f"a node calls itself {name[:40]!r}; expected a plain name")
    if unit not in UNITS:
        raise InputError(f"{name} protects {unit[:40]!r}; expected one of {', '.join(UNITS)}")
    if size < 1 or held_out < 0 or classes < 1 or not shape or min(shape) < 1:
        raise InputError(f"{name} states size {size}, shape {list(shape)}; expected at least one record")
    schema = hello.get("schema")
    client = Client(
        name=name,
        size=size,
        shape=shape,
        classes=classes,
        ledger=ledger,
        mask_key=mask_key[:64],
        schema="" if schema is None else json.dumps(schema),
        held_out=held_out,
        unit=unit,
        allows=_allows(name, hello),
    )
    try:
        _check_schema(client)
    except (TypeError, AttributeError, KeyError, OverflowError) as error:  # a stranger's schema may be anything
        raise InputError(f"the schema of {name} cannot be read; do all run the same version?") from error
    return client


def _allows(name: str, hello: Mapping[str, Any]) -> tuple[float, float] | None:
    given = hello.get("allows")
    if given is None:
        return None
    try:
        epsilon, delta = epsilon_stated(given["epsilon"]), float(given["delta"])
        sane = epsilon >= 0 and 0 < delta < 1  # also refuses NaN
    except (KeyError, TypeError, ValueError, OverflowError):
        sane, epsilon, delta = False, 0.0, 0.0
    if not sane:
        raise InputError(f"{name} says that its policy allows {str(given)[:80]}; expected an epsilon and a delta")
    return epsilon, delta


def _check_schema(client: Client) -> None:
    """Does a node's schema say what the node says of its records?"""
    if (schema := client.described) is None:
        return
    classes = () if schema.label is None else schema.label.classes
    if (client.shape, client.classes) != ((len(feature_names(schema)),), len(classes)):
        raise InputError(f"{client.name} states shape {list(client.shape)} in {client.classes} classes; its schema has "
                         f"{len(feature_names(schema))} features in {len(classes)}")  # fmt: skip


def clients_of(hellos: Sequence[Mapping[str, Any]], wanted: int) -> tuple[Client, ...]:
    """The clients of a job for so many, in the order of their names."""
    found = sorted(map(client_of, hellos), key=lambda c: c.name)
    check_names([c.name for c in found])
    if len(found) != wanted:
        raise InputError(f"{len(found)} nodes are here ({', '.join(c.name for c in found)}); the job is for {wanted}")
    check_same_schema(found)
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


def check_same_unit(clients: Sequence[Client], unit: str) -> None:
    """Every node protects whom the job does; else who does not, before anything is asked."""
    if other := [f"{c.name} protects {PROTECTED[c.unit]}" for c in clients if c.unit != unit]:
        raise InputError(
            f"the job protects {PROTECTED[unit]}, and {'; '.join(other)}: order --unit as the nodes' policies say, or "
            "ask their operators"
        )


def check_same_schema(clients: Sequence[Client], own: Schema | None = None) -> None:
    """All tables mean the same, and what the coordinator's `own` schema says, where there is one; else who differs."""
    first, whose = (clients[0].described, f"the schema of {clients[0].name}") if own is None else (own, "yours")
    wrong = {c.name: _against(first, c.described) for c in clients}
    if said := [f"{name}: {why}" for name, why in wrong.items() if why]:
        raise InputError(f"the nodes' tables do not mean the same as {whose} ({'. '.join(said)}); give every site the "
                         "same schema file")  # fmt: skip


def _against(wanted: Schema | None, found: Schema | None) -> str:
    if wanted is None or found is None:
        return "" if wanted is found else ("it has no schema" if found is None else "it has a schema")
    return differences(wanted, found)
