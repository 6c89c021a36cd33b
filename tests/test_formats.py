"""Files that another version may meet: each has a version, an unknown one is refused in words.

What older ones hold is still found in them: test_golden.py.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedsofim import InputError, formats
from fedsofim.data.schema import read_schema
from fedsofim.deploy.account import Account
from fedsofim.deploy.certificate import read as read_certificate
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.clients import Client
from fedsofim.deploy.order import Order
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.server import start_job
from fedsofim.deploy.unmasking import found_again
from fedsofim.deploy.witness import place_of
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.report.results import read_results
from fedsofim.formats import Format
from fedsofim.trained import load_model
from ledgers import made
from nodes import policy_toml

GOLDEN = Path(__file__).parent / "golden"

EXPERIMENT = 'datasets = ["digits"]\nepsilons = [1]\n[methods]\na = { method = "fedgd" }\n'
SCHEMA = '[columns.age]\nkind = "number"\nrange = [0, 120]\n[columns.ill]\nkind = "label"\n'
CERTIFICATE = {"job": "j", "accounting": "", "clients": {}}


def stated(version: int | None) -> str:
    return "" if version is None else f"format = {version}\n"


def experiment(folder: Path, version: int | None) -> object:
    (folder / "e.toml").write_text(stated(version) + EXPERIMENT)
    return read_experiment(folder / "e.toml")


def schema(folder: Path, version: int | None) -> object:
    (folder / "s.toml").write_text(stated(version) + SCHEMA)
    return read_schema(folder / "s.toml")


def policy(folder: Path, version: int | None) -> object:
    (folder / "p.toml").write_text(stated(version) + policy_toml())
    return read_policy(folder / "p.toml")


def certificate(folder: Path, version: int | None) -> object:
    (folder / "c.json").write_text(json.dumps(CERTIFICATE | ({} if version is None else {"certificate": version})))
    return read_certificate(folder / "c.json")


def ledger(folder: Path, version: int | None) -> object:
    path = made(folder / "ledger.db")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value=? WHERE key='format'", (str(version),))
    db.close()
    return Account(path).entries()


def witness(folder: Path, version: int | None) -> object:
    path = made(folder / "ledger.db")
    place = place_of(Account(path).identity())
    found = json.loads(place.read_text())
    del found["format"]
    place.write_text(json.dumps(found | ({} if version is None else {"format": version})))
    return Account(path).standing()


def runs(folder: Path, version: int | None) -> object:
    """A stored folder of runs of which the last row is another version's."""
    shutil.copytree(GOLDEN / "runs-1", folder, dirs_exist_ok=True)
    rows = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    del rows[-1]["format"]
    rows[-1] |= {} if version is None else {"format": version}
    (folder / "runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_results(folder)


def open_sum(folder: Path, version: int | None) -> object:
    arrays = from_bytes((GOLDEN / "open_sum-1" / "open-sum.npz").read_bytes())
    del arrays["format"]
    content = to_bytes(arrays | ({} if version is None else {"format": np.asarray(version)}))
    found = found_again(restore(GOLDEN / "open_sum-1" / "checkpoint.npz"), content)
    assert found is not None
    return found


READERS: dict[Format, Callable[[Path, int | None], object]] = {
    formats.EXPERIMENT: experiment,
    formats.SCHEMA: schema,
    formats.POLICY: policy,
    formats.CERTIFICATE: certificate,
    formats.LEDGER: ledger,
    formats.WITNESS: witness,
    formats.RUNS: runs,
    formats.OPEN_SUM: open_sum,
}
ELSEWHERE = {formats.MODEL, formats.CHECKPOINT}  # below, since they are made of arrays
UNSTATED = tuple(kind for kind in READERS if kind.unstated is not None)  # people's, and those older than their version


def test_every_format_is_looked_at_here():
    assert set(formats.ALL) == set(READERS) | ELSEWHERE


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_the_versions_that_are_read_are_read(kind: Format, tmp_path: Path):
    for version in kind.reads:
        READERS[kind](tmp_path, version)


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("version", [0, 99])
def test_an_unknown_version_is_refused_in_words(kind: Format, version: int, tmp_path: Path):
    with pytest.raises(InputError, match=rf"is {kind.name} of format {version}; this version of fedsofim reads format"):
        READERS[kind](tmp_path, version)


@pytest.mark.parametrize("kind", UNSTATED, ids=lambda kind: kind.name)
def test_files_that_people_write_or_that_are_older_than_their_version_need_not_state_one(kind: Format, tmp_path: Path):
    READERS[kind](tmp_path, None)


def test_a_file_that_must_state_its_version_and_does_not_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="not a certificate: it does not state its certificate"):
        certificate(tmp_path, None)


@pytest.mark.parametrize("version", ["1", 1.5, True, None, [1]])
def test_a_version_that_is_no_whole_number_is_none(version):
    with pytest.raises(InputError, match=r"of format|does not state"):
        formats.check_format(formats.MODEL, {"format": version}, "x")


def test_a_model_of_another_version_is_refused(tmp_path: Path):
    (tmp_path / "model.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(InputError, match="is a model of format 99; this version of fedsofim reads format 1"):
        load_model(tmp_path)


# --- a job's checkpoint -------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[int | None], Path]:
    """A job's checkpoint that states a version, or none, as the first ones did."""
    clients = tuple(Client(name=f"n{i}", size=20, shape=(3,), classes=3) for i in range(2))
    now = start_job(Order(method="fedgd", epsilon=1.0, rounds=2, clients=2, recipe="paper"), clients)
    path = tmp_path / "checkpoint.npz"
    save(now, path)

    def of(version: int | None) -> Path:
        arrays = from_bytes(path.read_bytes())
        meta = json.loads(str(arrays["meta"]))
        assert meta.pop("format") == formats.CHECKPOINT.writes
        meta |= {} if version is None else {"format": version}
        path.write_bytes(to_bytes(arrays | {"meta": np.asarray(json.dumps(meta))}))
        return path

    return of


@pytest.mark.parametrize("version", [None, 2])
def test_a_job_goes_on_from_a_checkpoint_of_this_version_and_of_the_one_before(checkpoint, version):
    assert restore(checkpoint(version)).round == 0


def test_a_checkpoint_of_an_unknown_version_is_refused(checkpoint):
    with pytest.raises(InputError, match="is a job's checkpoint of format 99; this version of fedsofim reads format 1"):
        restore(checkpoint(99))


# --- others -------------------------------------------------------------------------------------------------


def test_a_list_of_runs_of_another_version_is_refused(tmp_path: Path):
    shutil.copytree(GOLDEN / "runs-1", tmp_path, dirs_exist_ok=True)
    grid = json.loads((tmp_path / "grid.json").read_text()) | {"format": 99}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    with pytest.raises(InputError, match="is a folder of runs of format 99"):
        read_results(tmp_path)


def test_settings_that_another_version_found_are_refused(tmp_path: Path):
    shutil.copytree(GOLDEN / "experiment-1", tmp_path, dirs_exist_ok=True)
    tuned = (tmp_path / "tuned.toml").read_text()
    (tmp_path / "tuned.toml").write_text(tuned.replace("format = 1", "format = 99"))
    with pytest.raises(InputError, match=r"tuned.toml: is an experiment of format 99"):
        read_experiment(tmp_path / "experiment.toml")


def test_a_witness_of_another_version_still_remembers_where_its_ledger_was(tmp_path: Path):
    """A ledger that is gone is never made anew, even where a newer version of the program remembers it."""
    with pytest.raises(InputError, match="Nothing is released"):
        witness(tmp_path, 99)
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(InputError, match="there was a ledger here"):
        Account(tmp_path / "ledger.db").create()


@pytest.mark.parametrize("content", ["", "[]", "{}", "7", '{"format": 1}', '{"format": 1, "where": 3}'])
def test_a_witness_that_cannot_be_read_says_what_to_do(content: str, tmp_path: Path):
    path = made(tmp_path / "ledger.db")
    place_of(Account(path).identity()).write_text(content)
    with pytest.raises(InputError, match=r"nothing is released. Restore its newest copy.* fedsofim ledger adopt"):
        Account(path).standing()


def test_every_format_is_among_all():
    assert set(formats.ALL) == {kind for kind in vars(formats).values() if isinstance(kind, Format)}
