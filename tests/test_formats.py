"""Files that outlive the program: each has a version, an unknown one is refused in words, the one before is read."""

import json
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
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.formats import Format
from fedsofim.trained import load_model
from ledgers import made
from nodes import policy_toml

PAGE = (Path(__file__).parents[1] / "docs" / "stability.md").read_text()

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


READERS: dict[Format, Callable[[Path, int | None], object]] = {
    formats.EXPERIMENT: experiment,
    formats.SCHEMA: schema,
    formats.POLICY: policy,
    formats.CERTIFICATE: certificate,
    formats.LEDGER: ledger,
}
ELSEWHERE = {formats.MODEL, formats.CHECKPOINT}  # below, since they are made of arrays
PEOPLE = (formats.EXPERIMENT, formats.SCHEMA, formats.POLICY)


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


@pytest.mark.parametrize("kind", PEOPLE, ids=lambda kind: kind.name)
def test_files_that_people_write_need_not_state_one(kind: Format, tmp_path: Path):
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


# --- the page -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", formats.ALL, ids=lambda kind: kind.name)
def test_the_page_states_the_versions(kind: Format):
    name = kind.name.removeprefix("an ").removeprefix("a ")
    assert f"| {name} | {kind.writes} | {', '.join(map(str, kind.reads))} |" in PAGE
