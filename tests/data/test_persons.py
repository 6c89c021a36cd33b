"""Whose each record is, said by a column of a plain table, or by the schema's column of kind person."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsofim as fs
from commands import run_here
from fedsofim.errors import InputError

SCHEMA = {"columns": {"a": {"kind": "number"}, "who": {"kind": "person"}, "label": {"kind": "label"}}}
NOBODY = {"columns": {**SCHEMA["columns"], "who": {"kind": "drop"}}}


def visits(path: Path, persons: int = 30, each: int = 4, who: str = "who") -> Path:
    """A table of a few visits of each person, with text for their names."""
    random = np.random.default_rng(0)
    whose = [i for i in range(persons) for _ in range(each)]
    rows = [f"{random.normal() + 2 * (i % 2):.4f},{random.normal():.4f},p{i},{i % 2}" for i in whose]
    path.write_text("\n".join([f"a,b,{who},label", *rows]) + "\n")
    return path


def test_a_plain_tables_column_says_whose_a_record_is_and_is_no_feature(tmp_path: Path):
    data = fs.load(visits(tmp_path / "v.csv"), person="who")
    assert data.columns == ("a", "b") and data.person is not None
    assert data.schema is not None and data.schema.person is not None and data.schema.person.name == "who"
    assert set(np.unique(data.person, return_counts=True)[1]) == {4}  # nobody is torn into train and test
    dealt = fs.split(data, clients=3, iid=True, min_size=1)
    assert not set.intersection(*(set(data.person[rows]) for rows in dealt.parts))
    assert sum(dealt.protecting("person", 4).units) == 24


def test_the_same_from_a_frame_and_from_clients_files(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(visits(tmp_path / "v.csv"))
    of_file, of_frame = fs.load(tmp_path / "v.csv", person="who"), fs.Dataset.from_frame(frame, person="who")
    assert of_file.person is not None and of_frame.person is not None
    assert np.array_equal(of_file.person, of_frame.person)
    (tmp_path / "sites").mkdir()
    for site in ("a", "b"):
        visits(tmp_path / "sites" / f"{site}.csv")
    data = fs.load(clients_from=tmp_path / "sites", person="who")
    assert fs.by_owner(data).protecting("person", 4).units == (24, 24)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"person": "patient"}, "no column 'patient', which was to say whose each record is"),
        ({"person": "label"}, "is a label or dropped too"),
        ({"person": "who", "drop": ["who"]}, "is a label or dropped too"),
        ({"person": "a", "schema": SCHEMA}, "the schema says that column 'who' is the person"),
        ({"person": "a", "schema": NOBODY}, "no column of kind person"),
    ],
)
def test_what_makes_no_sense_is_said(how: dict[str, Any], words: str, tmp_path: Path):
    with pytest.raises(InputError, match=words):
        fs.load(visits(tmp_path / "v.csv"), **how)


def test_only_tables_have_columns(tmp_path: Path):
    np.savez(tmp_path / "d.npz", x_train=np.zeros((4, 1)), y_train=[0, 1, 0, 1])
    with pytest.raises(InputError, match="a column of persons is a table's"):
        fs.load(tmp_path / "d.npz", person="who")
    with pytest.raises(InputError, match="person go with your own files"):
        fs.load("fashion", person="who")


def test_an_empty_name_ties_nobody_together(tmp_path: Path):
    path = visits(tmp_path / "v.csv")
    path.write_text(path.read_text() + "1.0,2.0,,1\n")
    with pytest.raises(InputError, match="names no person"):
        fs.load(path, person="who")


@pytest.mark.slow
def test_the_commands_take_the_column(tmp_path: Path, capsys: Any, monkeypatch: Any):
    table = str(visits(tmp_path / "v.csv"))
    deal = ("--dataset", table, "--person-column", "who", "--clients", "3", "--partition", "iid", "--json")
    assert json.loads(run_here(capsys, monkeypatch, "partition", *deal).stdout)["clients"] == 3
    whom = ("--unit", "person", "--records-per-person", "4", "--recipe", "paper", "--rounds", "2")
    found = json.loads(run_here(capsys, monkeypatch, "run", *deal, *whom).stdout)
    assert found["protects"] == "one person with all their records at a client"
    assert found["epsilon"] == pytest.approx(1.0)
