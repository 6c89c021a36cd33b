"""Whom a guarantee protects, in words: said wherever an epsilon is."""

from collections.abc import Iterable
from typing import Any, Literal, get_args

from fedsofim.errors import one_of

Unit = Literal["record", "person", "client"]

UNITS: tuple[str, ...] = get_args(
    Unit
)  # each holds whole ones of those before it, so whoever protects it protects them

PROTECTED: dict[str, str] = {
    "record": "one record",
    "person": "one person with all their records at a client",
    "client": "one client with all it holds",
}


def check_unit(unit: Any) -> None:
    one_of("unit", unit, UNITS)


def weakest(units: Iterable[str]) -> str:
    """Whom an epsilon of several releases protects: the smallest of what each protects.

    >>> weakest(["person", "record", "client"]), weakest(["client", "person"])
    ('record', 'person')
    """
    return min(units, key=UNITS.index, default=UNITS[0])
