"""A node's records, from the file people have: a table (.csv, .tsv, .parquet) by its public schema, or arrays (.npz).

What is wrong with a file is for its operator's eyes only, and never told to a server. Not even the node's log quotes a
cell: a problem's text says which file, its `details` say everything at once, with row and column, and `fedsofim node
check` shows those.
"""

import hashlib
import warnings
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsofim.core.phase import Phase
from fedsofim.data.cells import TABLES
from fedsofim.data.columns import feature_names
from fedsofim.data.npz import read_arrays
from fedsofim.data.schema import Schema
from fedsofim.data.tables import is_table, read_table
from fedsofim.data.unit_rows import counts, laid_by_unit, whose_records
from fedsofim.deploy.policy import Policy
from fedsofim.errors import DataWarning, InputError


class DataProblem(InputError):
    """Something about the records themselves: never told to the server. `details` and `remarks` may quote cells."""

    def __init__(self, text: str, details: str = "", remarks: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.details, self.remarks = details or text, remarks


class Seen(NamedTuple):
    """Records that a phase is about; `whose`: of each its unit's number, where several are one (core/unit.py)."""

    x: np.ndarray
    y: np.ndarray
    whose: np.ndarray | None = None

    @property
    def units(self) -> int:
        """How many units there are: what is public of a node's records."""
        return len(self.y) if self.whose is None else counts([self.whose])[0]

    def laid(self, x: np.ndarray, places: int) -> tuple[np.ndarray, np.ndarray]:
        """Features made of these records, and labels, by unit."""
        if self.whose is None:
            return x, self.y
        return laid_by_unit(x, self.y, [np.arange(len(self.y))], [self.whose], places)[:2]


class Data(NamedTuple):
    """Records as programs take them; `remarks` are what their operator should know of how they were read: they quote
    cells, so `fedsofim node check` alone shows them."""

    x: np.ndarray
    y: np.ndarray
    fingerprint: str  # of all of them, held-out ones too
    remarks: tuple[str, ...] = ()
    held_out: Seen | None = None  # what no round sees: for counting right answers
    person: np.ndarray | None = None  # whose each record is, where the file says so
    whose: np.ndarray | None = None  # the unit's number of each, where several records are one

    def seen_in(self, phase: Phase) -> Seen:
        """What a phase is about."""
        held = self.held_out if phase is Phase.EVALUATION else None
        return Seen(self.x, self.y, self.whose) if held is None else held

    @property
    def units(self) -> int:
        return self.seen_in(Phase.ROUND).units


def read_data(policy: Policy) -> Data:
    """The node's records, checked, with those it holds out. What is wrong with either file is told together."""
    files = {"data": policy.data} | ({} if policy.test is None else {"test": policy.test})
    read, problems = [], []
    for key, path in files.items():
        try:
            read.append(_read(policy, path, key))
        except DataProblem as problem:
            problems.append(problem)
    if problems:
        remarks = tuple(remark for part in (*read, *problems) for remark in part.remarks)
        raise DataProblem("; ".join(map(str, problems)), "\n".join(problem.details for problem in problems), remarks)
    return _with_held_out(policy, *read)


def _with_held_out(policy: Policy, found: Data, held: Data | None = None) -> Data:
    if held is None:
        return found
    if held.x.shape[1] != found.x.shape[1]:
        raise DataProblem(f"{policy.test}: {held.x.shape[1]} features; expected {found.x.shape[1]}, as in the data")
    both = hashlib.sha256((found.fingerprint + held.fingerprint).encode()).hexdigest()
    apart = Seen(held.x, held.y, held.whose)
    return found._replace(fingerprint=both, remarks=found.remarks + held.remarks, held_out=apart)


def _read(policy: Policy, path: Path, key: str) -> Data:
    """A file's records, with the units that the policy protects."""
    found = _records(policy, path, key)
    if policy.unit == "record":
        return found
    if policy.unit == "person" and found.person is None:
        raise DataProblem(
            f"{path}: the policy protects persons, and nothing says whose each record is; name the column in the "
            'schema (kind = "person"), or give the .npz file an array person'
        )
    try:
        (whose,) = whose_records(policy.unit, found.person, [np.arange(len(found.y))], path.name)
    except InputError as error:
        raise DataProblem(
            f"{path}: the persons cannot be told apart; `fedsofim node check` says why", str(error)
        ) from None
    both = hashlib.sha256(found.fingerprint.encode() + whose.tobytes()).hexdigest()
    return found._replace(whose=whose, fingerprint=both)


def _records(policy: Policy, path: Path, key: str) -> Data:
    if not path.is_file():
        raise DataProblem(f"{path}: there is no such file; put the records there, or change {key} in the policy")
    try:
        if is_table(path):
            return _of_table(path, policy.schema, _signature(path))
        if path.suffix.lower() == ".npz":
            return _of_arrays(path, policy)
    except DataProblem:
        raise
    except (InputError, OSError) as error:
        raise _unusable(path, error) from None
    raise DataProblem(f"{path}: cannot read files of kind '{path.suffix}'; expected .npz, {', '.join(TABLES)}")


@lru_cache(maxsize=4)  # a node's process answers many requests about one file; its signature says whether it changed
def _of_table(path: Path, schema: Schema | None, signature: tuple[int, ...]) -> Data:
    if schema is None:
        raise DataProblem(
            f"{path}: a table needs its public schema; draft one with: fedsofim schema {path.name} > schema.toml, "
            'complete it, and say schema = "schema.toml" in [node] of the policy'
        )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DataWarning)
        try:
            rows = read_table(path, schema=schema)
        except InputError as error:
            raise _unusable(path, error, _remarks(said)) from None
    remarks = _remarks(said)
    return _data(rows.x, rows.y.astype(np.int32), remarks)._replace(person=rows.person)


def _remarks(said: list[warnings.WarningMessage]) -> tuple[str, ...]:
    return tuple(w.message.details for w in said if isinstance(w.message, DataWarning))


def _unusable(path: Path, error: Exception, remarks: tuple[str, ...] = ()) -> DataProblem:
    return DataProblem(f"{path}: the table cannot be used; `fedsofim node check` says why", str(error), remarks)


def _of_arrays(path: Path, policy: Policy) -> Data:
    try:
        found = read_arrays(path)
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is counted below
            x, y = np.asarray(found["x"], np.float32), np.asarray(found["y"])
    except (InputError, KeyError, ValueError):  # whose texts may quote a record
        raise DataProblem(f"{path}: expected a readable .npz file with arrays of numbers x and y") from None
    if x.ndim != 2 or y.shape != (len(x),) or len(x) == 0 or not np.issubdtype(y.dtype, np.integer):
        form = f"x is {x.shape}, y is {y.dtype}{y.shape}"
        raise DataProblem(f"{path}: {form}; expected x (records x features) and one whole label for each record")
    if policy.schema is not None and x.shape[1] != (wide := len(feature_names(policy.schema))):
        raise DataProblem(f"{path}: x has {x.shape[1]} features; expected the {wide} that the schema makes")
    if odd := int(np.sum(~np.isfinite(x))):
        raise DataProblem(
            f"{path}: {odd} features are not finite numbers of 32 bits; expected finite ones, so remove or fill them"
        )
    if outside := int(np.sum((y < 0) | (y >= policy.classes))):
        raise DataProblem(f"{path}: {outside} labels lie outside 0..{policy.classes - 1}")
    person = found.get("person")
    if person is not None and person.shape != y.shape:
        raise DataProblem(f"{path}: person has shape {person.shape}; expected one for each of {len(y)} records")
    return _data(x, y.astype(np.int32))._replace(person=person)


def _data(x: np.ndarray, y: np.ndarray, remarks: tuple[str, ...] = ()) -> Data:
    x = np.ascontiguousarray(x)
    return Data(x, y, hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest(), remarks)


def _signature(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
