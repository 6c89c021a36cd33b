"""Whom a guarantee protects, in words: said wherever an epsilon is."""

from typing import Any, Literal, get_args

from fedsofim.errors import one_of

Unit = Literal["record", "person", "client"]

PROTECTED: dict[str, str] = {
    "record": "one record",
    "person": "one person with all their records at a client",
    "client": "one client with all it holds",
}


def check_unit(unit: Any) -> None:
    one_of("unit", unit, get_args(Unit))
