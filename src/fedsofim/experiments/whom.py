"""Whom a run of a grid protects, who takes part in it, and which records it reads: what is beside the learning."""

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from fedsofim.data.partition import Split
from fedsofim.errors import InputError, shown
from fedsofim.protection import Unit, check_unit

KEYS = ("unit", "records_per_person", "participants", "batch_rate", "client_rate")
RATES = ("batch_rate", "client_rate")


@dataclass(frozen=True)
class Whom:
    """As `fedsofim run` takes them (docs/protection.md)."""

    unit: str = "record"
    records_per_person: int | None = None
    participants: int | None = None
    batch_rate: float = 1.0
    client_rate: float = 1.0

    def __post_init__(self) -> None:
        check_unit(self.unit)

    @property
    def label(self) -> str:
        """What tells it from others in tables; empty where nothing is chosen.

        >>> Whom("person", 10).label, Whom(batch_rate=0.1).label, Whom().label
        ('person of 10', 'batch 0.1', '')
        """
        of = "" if self.records_per_person is None else f" of {self.records_per_person}"
        parts = {
            f"{self.unit}{of}": self.unit != "record",
            f"{self.participants} a round": self.participants is not None,
            f"batch {self.batch_rate:g}": self.batch_rate != 1,
            f"clients by {self.client_rate:g}": self.client_rate != 1,
        }
        return ", ".join(words for words, said in parts.items() if said)

    def plain(self) -> dict[str, Any]:
        """For a run's id: what was added later counts only where it is used."""
        return {k: v for k, v in asdict(self).items() if k != "client_rate" or v != 1}

    def protecting(self, dealt: Split) -> Split:
        """The split with this unit."""
        return dealt.protecting(cast(Unit, self.unit), self.records_per_person)


EVERY_RECORD = Whom()


def whoms_of(table: Mapping[str, Any]) -> tuple[Whom, ...]:
    """Those that a file's keys describe; a list makes one of each of its values. Records that are protected by
    themselves are not counted by person: swept units share one `records_per_person`.

    >>> [w.label for w in whoms_of({"unit": ["record", "person"], "records_per_person": [2, 5]})]
    ['', 'person of 2', 'person of 5']
    """
    given = {key: table[key] for key in KEYS if key in table}
    values = [value if isinstance(value, list) else [value] for value in given.values()]
    chosen = [dict(zip(given, each, strict=True)) for each in itertools.product(*values)]
    if "unit" in given and given["unit"] != "record":
        chosen = [{**c, "records_per_person": None} if c["unit"] == "record" else c for c in chosen]
    return tuple(dict.fromkeys(Whom(**c) for c in map(_typed, chosen)))


def _typed(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """TOML writes 1 where 1.0 is meant, and says of all clients or all records nothing, or "all"."""
    found: dict[str, Any] = {
        k: None if v == "all" and k in ("participants", "records_per_person") else v for k, v in chosen.items()
    }
    for key in ("unit", "participants", "records_per_person"):
        if isinstance(found.get(key), list | dict):
            raise InputError(f"{key} holds {shown(found[key])}; expected one value, or a list of them")
    for key in RATES:
        rate = found.get(key, 1.0)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise InputError(f"{key} is {shown(rate)}; expected a probability")
    return {k: float(v) if k in RATES else v for k, v in found.items()}


def labelled(label: str, whom: Whom) -> str:
    """A line's name in tables, with whom it is about.

    >>> labelled("a", Whom()), labelled("a", Whom("client"))
    ('a', 'a, client')
    """
    return f"{label}, {whom.label}" if whom.label else label
