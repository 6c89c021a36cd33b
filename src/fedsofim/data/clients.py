"""A real federation's layout: one file (or one folder of images) per client in a directory."""

from collections.abc import Sequence
from pathlib import Path

from fedsofim.data.own_files import KINDS, read_own, readable
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Schema
from fedsofim.data.targets import Label
from fedsofim.errors import InputError
from fedsofim.tasks import Task


def read_clients(
    folder: Path,
    label: Label = None,
    drop: Sequence[str] = (),
    schema: Schema | None = None,
    task: Task | None = None,
    person: str | None = None,
) -> dict[str, dict[str, Rows]]:
    """Each client's rows, by the name of its file, in sorted order."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected one file per client in it")
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and readable(entry))
    if len(entries) < 2:
        raise InputError(
            f"{folder}: {len(entries)} client files; a federation needs two or more, each {', '.join(KINDS)}"
        )
    names = [entry.stem for entry in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{folder}: client '{twice[0]}' has more than one file; give each client one")
    return {entry.stem: read_own(entry, label, drop, schema, task, person) for entry in entries}
