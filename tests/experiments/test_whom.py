"""Experiments that choose whom a run protects, who takes part in it and which records it reads."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedsofim.errors import InputError
from fedsofim.experiments.grid import points
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.reading import digest, read_datasets
from fedsofim.experiments.runner import run_experiment
from fedsofim.experiments.tuning import Search, search_settings

HEAD = 'datasets = ["v.csv"]\nepsilons = [1]\nseeds = [0]\nrounds = 2\npartitions = [{ kind = "iid", clients = 3 }]\n'
GD = "[methods.A]\nmethod = 'fedgd'\n"
PERSONS = 'person_column = "who"\nunit = ["record", "person"]\nrecords_per_person = [2, 4]\n'


def written(folder: Path, more: str) -> Path:
    """An experiment on a table of four visits of each person."""
    random, path = np.random.default_rng(0), folder / "x.toml"
    rows = [f"{random.normal() + 2 * (i // 4 % 2):.3f},p{i // 4},{i // 4 % 2}" for i in range(240)]
    (folder / "v.csv").write_text("\n".join(["a,who,label", *rows]) + "\n")
    path.write_text(HEAD + more + GD)
    return path


def test_lists_make_one_run_of_each_and_rows_tell_them_apart(tmp_path: Path):
    found = read_experiment(written(tmp_path, PERSONS + 'participants = ["all", 2]\nbatch_rate = [1, 0.5]\n'))
    data = read_datasets(found.datasets, tmp_path, found.reading)
    todo = points(found, data)
    assert len(todo) == len({p.id for p in todo}) == len({p.label for p in todo}) == 3 * 2 * 2
    assert {"A", "A, person of 4", "A, person of 2, 2 a round, batch 0.5"} <= {p.label for p in todo}
    assert todo[-1].deal(data["v.csv"]).units == todo[-1].deal(data["v.csv"]).protecting("person", 4).units


def test_what_protects_records_has_the_id_it_always_had(tmp_path: Path):
    plain, said = (
        points(e, read_datasets(e.datasets, tmp_path, e.reading))[0].id
        for e in (read_experiment(written(tmp_path, 'drop = ["who"]\n' + more)) for more in ("", 'unit = "record"\n'))
    )
    assert plain == said


def test_the_same_records_of_other_persons_are_another_experiment(tmp_path: Path):
    found = read_experiment(written(tmp_path, PERSONS))
    before = digest(read_datasets(found.datasets, tmp_path, found.reading)["v.csv"])
    table = tmp_path / "v.csv"
    table.write_text(table.read_text().replace("p3,", "p4,"))
    assert digest(read_datasets(found.datasets, tmp_path, found.reading)["v.csv"]) != before


@pytest.mark.slow
def test_a_row_says_whom_it_protects_at_which_price(tmp_path: Path):
    path = written(tmp_path, PERSONS.replace("[2, 4]", "4"))
    assert run_experiment(read_experiment(path), tmp_path / "out", tmp_path) == 2
    rows = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    assert [row["privacy"]["protects"][:10] for row in rows] == ["one record", "one person"]
    assert [row["label"] for row in rows] == ["A", "A, person of 4"]
    assert all(row["privacy"]["epsilon"] == pytest.approx(1.0) for row in rows)


@pytest.mark.parametrize(
    ("more", "words"), [('unit = "household"\n', "unit"), ('batch_rate = "some"\n', "batch_rate is 'some'")]
)
def test_what_makes_no_sense_is_said(tmp_path: Path, more: str, words: str):
    with pytest.raises(InputError, match=words):
        read_experiment(written(tmp_path, more))


def test_a_search_refuses_what_it_does_not_do(tmp_path: Path):
    found = read_experiment(written(tmp_path, PERSONS))
    with pytest.raises(InputError, match="each protected by itself"):
        search_settings(found, Search(), tmp_path / "t.toml", tmp_path, {})
