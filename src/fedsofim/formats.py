"""Every file that another version of the program may have to read: its format's version, and which versions are read.

docs/stability.md says what that promises, and which files have no version. One is raised when an older reader would
misread a newer file, and an older version is read for as long as it stands in `reads`; everything else is refused in a
sentence, never guessed at. Where a file states no version it is of version `unstated`: files that people write need not
state one, and some were written before theirs had one. tests/golden/ holds a file of every version that is read.

>>> check_format(EXPERIMENT, {}, "mine.toml")
1
>>> check_format(EXPERIMENT, {"format": 7}, "mine.toml")
Traceback (most recent call last):
fedsofim.errors.InputError: mine.toml: is an experiment of format 7; this version of fedsofim reads format 1. Use the \
version of fedsofim that wrote it
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsofim.errors import InputError, is_whole, shown


@dataclass(frozen=True)
class Format:
    """`writes`: the version of new files. `reads`: those understood. `unstated`: that of files that say none."""

    name: str
    writes: int
    reads: tuple[int, ...]
    unstated: int | None = None
    key: str = "format"
    otherwise: str = "Use the version of fedsofim that wrote it"


_KEPT = "Nothing is released. Use the version of fedsofim that wrote it"
LEDGER = Format("a ledger", 2, (2,), otherwise=_KEPT)
WITNESS = Format("a ledger's witness", 1, (1,), unstated=1, otherwise=_KEPT)
POLICY = Format("a policy", 1, (1,), unstated=1)
CERTIFICATE = Format("a certificate", 2, (1, 2), key="certificate")  # 1 signed neither clients nor rounds charged
MODEL = Format(  # 1 named the seed of its noise
    "a model", 2, (1, 2), otherwise="Use the version of fedsofim that wrote it, or train again"
)
SCHEMA = Format(
    "a schema", 1, (1,), unstated=1, otherwise="Use the version that wrote it, or draft it anew with fedsofim schema"
)
EXPERIMENT = Format("an experiment", 1, (1,), unstated=1)  # and the settings that fedsofim tune found for one
RUNS = Format(  # 1 had counts by class, and bare digests, of everybody's records
    "a folder of runs", 2, (1, 2), unstated=1, otherwise="Use the version of fedsofim that wrote it, or another folder"
)
CHECKPOINT = Format("a job's checkpoint", 2, (1, 2), unstated=1)  # 1 stated no version
OPEN_SUM = Format(
    "an open sum", 1, (1,), unstated=1, otherwise="Finish its job with the version of fedsofim that began it"
)
ALL = (LEDGER, WITNESS, POLICY, CERTIFICATE, MODEL, SCHEMA, EXPERIMENT, RUNS, CHECKPOINT, OPEN_SUM)


def check_format(kind: Format, document: Mapping[str, Any], where: object) -> int:
    """The version that a document states, or an error in words if it is not one that is read."""
    found = document.get(kind.key, kind.unstated)
    if found is None:
        raise InputError(f"{where}: not {kind.name}: it does not state its {kind.key}")
    if not is_whole(found) or found not in kind.reads:
        reads = f"this version of fedsofim reads format {' and '.join(map(str, kind.reads))}"
        raise InputError(f"{where}: is {kind.name} of format {shown(found)}; {reads}. {kind.otherwise}")
    return found
