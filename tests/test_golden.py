"""Files as they were written once (tests/golden): today's readers find in them what was found then.

A change of a format that is no new version is seen here, from both sides: a reader that needs what a stored file has
not, and a writer that leaves out, or writes in another form, what a stored file of its own version has.
"""

import io
import json
import math
import shutil
import sqlite3
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golden
from fedsofim import InputError, formats
from fedsofim.deploy import certificate
from golden import FOLDER, NAMES, facts_of

STORED = sorted(path.name for path in FOLDER.iterdir())
READ = sorted(f"{NAMES[kind]}-{version}" for kind in formats.ALL for version in kind.reads)
NOW = [f"{NAMES[kind]}-{kind.writes}" for kind in formats.ALL]


def same(a: Any, b: Any) -> bool:
    """Equal, but for last digits: other processors and versions of XLA add up otherwise."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return math.isclose(a, b, rel_tol=1e-5) if isinstance(a, float) else a == b


def test_every_version_that_is_read_is_stored_and_no_other():
    assert STORED == READ, "python scripts/golden.py"


@pytest.mark.parametrize("name", STORED)
def test_a_stored_file_says_what_it_said(name: str, tmp_path: Path):
    if name.startswith("certificate"):
        pytest.importorskip("cryptography")  # its signature
    shutil.copytree(FOLDER / name, tmp_path / name)  # a ledger is opened to be written to
    then = json.loads((FOLDER / name / "facts.json").read_text())
    assert same(facts_of(tmp_path / name), then), name


def test_other_facts_are_not_the_same():
    assert not same({"a": [1.0, 2.0]}, {"a": [1.0, 2.001]})
    assert not same([1], [1, 2]) and not same({"a": 1}, {"b": 1}) and not same("x", "y") and not same({}, [])


def test_a_stored_certificate_follows_from_the_stored_ledger(tmp_path: Path):
    pytest.importorskip("cryptography")
    shutil.copy(FOLDER / "ledger-2" / "ledger.db", tmp_path)
    document = certificate.read(FOLDER / "certificate-1" / "certificate.json")
    assert certificate.verify(document, [tmp_path / "ledger.db"]) == []
    assert certificate.unseen(document, [tmp_path / "ledger.db"]) == ["n1", "n2"]


def test_a_stored_ledger_in_an_older_copy_is_refused_by_the_stored_witness(tmp_path: Path):
    shutil.copytree(FOLDER / "ledger-2", tmp_path / "ledger-2")
    with closing(sqlite3.connect(tmp_path / "ledger-2" / "ledger.db")) as db, db:
        db.execute("DELETE FROM chain WHERE number = 4")
    with pytest.raises(InputError, match="older copy"):
        facts_of(tmp_path / "ledger-2")


# --- the writer ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every format as this program writes it."""
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("written")
    golden.write_all(folder / "work", folder / "made")
    return folder / "made"


@pytest.mark.slow
@pytest.mark.parametrize("name", NOW)
def test_what_is_written_now_has_all_that_a_stored_file_of_its_version_has(name: str, written: Path):
    """More it may have: an older reader leaves that aside."""
    now, then = forms_in(written / name), forms_in(FOLDER / name)
    other = {place: (form, now.get(place)) for place, form in then.items() if form != now.get(place)}
    assert not other, f"{name}: raise its version in formats.py, or write what was written: {other}"


def test_a_key_that_is_gone_or_of_another_kind_is_noticed():
    then, now = dict(forms({"a": [{"b": 1}], "c": "x"}, "")), dict(forms({"a": [{"b": "1"}]}, ""))
    assert {place for place in then if then[place] != now.get(place)} == {"/a/*/b", "/c"}


def forms_in(folder: Path) -> dict[str, str]:
    """Where there is what kind of value, in all files of a folder."""
    found: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name != "facts.json":
            found |= dict(forms(contents(path), path.name))
    return found


def contents(path: Path) -> Any:
    """A file as plain data."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())
    if path.suffix == ".npz":
        return arrays_in(path.read_bytes())
    if path.suffix == ".db":
        return tables_in(path)
    if path.suffix == ".safetensors":
        import safetensors.numpy

        return safetensors.numpy.load_file(path)
    return path.read_text()


def arrays_in(content: bytes) -> dict[str, Any]:
    """With a checkpoint's own description, and the job in it, as what they are."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        found: dict[str, Any] = dict(stored)
    if "meta" in found:
        found["meta"] = json.loads(str(found["meta"]))
        found["meta"]["job"] = json.loads(found["meta"]["job"])
    return found


def tables_in(path: Path) -> dict[str, Any]:
    """The columns of every table, and its rows' values of each."""
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: {c[1]: c[2] for c in db.execute(f"PRAGMA table_info({name})")} for name in names}
    return {f"{table} {column} {kind}": "" for table, of in columns.items() for column, kind in of.items()}


def forms(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """The kind of every value in plain data, by its place; all elements of a list have one place."""
    if isinstance(value, Mapping):
        yield at, "table"
        for key, inner in value.items():
            yield from forms(inner, f"{at}/{key}")
    elif isinstance(value, list):
        yield at, "list"
        for inner in value:
            yield from forms(inner, f"{at}/*")
    elif isinstance(value, np.ndarray):
        yield at, f"array of {value.dtype.kind}, {value.ndim} dimensions"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield at, "number"
    elif value is not None:  # what is left open once may be filled another time
        yield at, type(value).__name__
