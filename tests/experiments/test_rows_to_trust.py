"""Rows that can be trusted: files of one name kept apart, damage told in words, and the code that made a row known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedsofim.errors import InputError
from fedsofim.experiments import runner
from fedsofim.experiments.grid import Entry, Experiment, Partition, points
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.journal import RUNS, read_runs
from fedsofim.experiments.reading import read_datasets
from fedsofim.experiments.report.folder import warnings, write_report
from fedsofim.experiments.report.results import read_results
from fedsofim.experiments.runner import Conduct, run_experiment
from toy import write_blobs


def small(**more) -> Experiment:
    how = {"datasets": ("toy.npz",), "epsilons": (5.0,), "seeds": (0,), "rounds": 3} | more
    return Experiment(name="small", entries=(Entry("DP-FedGD", "fedgd", {"lr": 0.5}),),
                      partitions=(Partition("iid", 3, seed=1),), **how)  # fmt: skip


def two_of_a_name(folder) -> tuple[str, str]:
    """The same file twice, but for the labels of one, which are shuffled."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    write_blobs(folder / "a" / "q.npz")
    with np.load(folder / "a" / "q.npz") as stored:
        arrays = dict(stored)
    arrays["y_train"] = np.random.default_rng(0).permutation(arrays["y_train"])
    np.savez(folder / "b" / "q.npz", **arrays)
    return "a/q.npz", "b/q.npz"


def test_two_files_of_one_stem_are_two_datasets(tmp_path):
    names = two_of_a_name(tmp_path)
    run_experiment(small(datasets=names), tmp_path / "out", tmp_path)
    results = read_results(tmp_path / "out")
    assert [place[0] for place in results.places] == list(names)
    first, second = (results.select(place)[0] for place in results.places)
    assert first.final > 60 > second.final  # the second learned from shuffled labels
    write_report(tmp_path / "out")
    assert (tmp_path / "out" / "tables" / "accuracy-a-q.npz-iid.csv").exists()


def test_a_csv_and_an_npz_of_one_stem_too(tmp_path):
    write_blobs(tmp_path / "q.npz")
    (tmp_path / "q.csv").write_text("a,label\n" + "".join(f"{k % 7},{k % 2}\n" for k in range(60)))
    data = read_datasets(("q.npz", "q.csv"), tmp_path)
    assert [d.name for d in data.values()] == ["q.npz", "q.csv"]
    assert len({p.id for p in points(small(datasets=("q.npz", "q.csv")), data)}) == 2


@pytest.fixture
def finished(tmp_path):
    write_blobs(tmp_path / "toy.npz")
    run_experiment(small(seeds=(0, 1)), tmp_path / "out", tmp_path)
    return tmp_path


def test_a_damaged_line_is_told_with_its_number(finished):
    rows = finished / "out" / RUNS
    first, second = rows.read_bytes().splitlines()
    rows.write_bytes(first[:40] + b"\n" + second + b"\n")
    for read in (read_results, read_runs):
        with pytest.raises(InputError, match=r"runs.jsonl: line 1 is damaged .*delete that line"):
            read(finished / "out")
    rows.write_bytes(second + b"\n")
    assert run_experiment(small(seeds=(0, 1)), finished / "out", finished) == 1  # done again


def test_an_interrupted_grid_says_what_is_missing(finished):
    rows = finished / "out" / RUNS
    rows.write_bytes(rows.read_bytes().splitlines(keepends=True)[0])
    (said,) = warnings(read_results(finished / "out"))
    assert said.startswith("1 runs of the grid are not finished")
    assert "DP-FedGD at ε = 5 on toy, iid (seeds 1)" in said
    write_report(finished / "out")
    page = (finished / "out" / "report.html").read_text()
    assert "Not finished: 1 of 2 runs" in page


def test_a_row_of_a_changed_method_is_run_again_and_that_is_said(finished, monkeypatch):
    said: list[str] = []
    again = Conduct(say=said.append)
    assert run_experiment(small(seeds=(0, 1)), finished / "out", finished, again) == 0 and not said
    monkeypatch.setattr(runner, "code_of", lambda method: {"method": "new", "engine": "new"})
    assert run_experiment(small(seeds=(0, 1)), finished / "out", finished, again) == 2
    assert "2 rows were made by another version of their method and are run again: DP-FedGD at epsilon 5" in said[0]
    assert {row["code"]["method"] for row in read_runs(finished / "out")[2:]} == {"new"}
    assert len(read_results(finished / "out").runs) == 2  # the newest row of a run counts


def test_a_row_of_another_engine_is_kept_and_that_is_said(finished, monkeypatch):
    method = read_runs(finished / "out")[0]["code"]["method"]
    said: list[str] = []
    monkeypatch.setattr(runner, "code_of", lambda _: {"method": method, "engine": "new"})
    assert run_experiment(small(seeds=(0, 1)), finished / "out", finished, Conduct(say=said.append)) == 0
    assert "2 rows were made by another version of the engine and count as finished" in said[0]
    assert run_experiment(small(seeds=(0, 1)), finished / "out", finished, Conduct(again=True)) == 2


def test_rows_from_before_versions_were_written_keep_their_id_and_count(finished):
    rows = finished / "out" / RUNS
    old = [{k: v for k, v in row.items() if k not in ("code", "used", "place", "standardize")}
           for row in read_runs(finished / "out")]  # fmt: skip
    rows.write_text("".join(json.dumps(row) + "\n" for row in old))
    assert run_experiment(small(seeds=(0, 1)), finished / "out", finished) == 0
    write_report(finished / "out")


def test_other_records_under_the_same_name_are_said(finished):
    with np.load(finished / "toy.npz") as stored:
        np.savez(finished / "toy.npz", **{k: v + 1 if k.startswith("x") else v for k, v in stored.items()})
    said: list[str] = []
    run_experiment(small(seeds=(0, 1)), finished / "out", finished, Conduct(say=said.append))
    assert "2 rows do not belong to these records" in said[-1]


def test_ids_are_those_of_before():
    """What an experiment could not say before must not change what it is recognised by."""
    point = points(small(), {"toy.npz": _toy()})[0]
    assert point.id == replace(point, place="anything").id
    assert point.id != replace(point, standardize=runner_standardize()).id


def _toy():
    from toy import make_toy

    return make_toy().dataset


def runner_standardize():
    from fedsofim.experiments.grid import Standardize

    return Standardize()


def test_no_privacy_beside_budgets_can_be_reported(tmp_path):
    write_blobs(tmp_path / "toy.npz")
    (tmp_path / "e.toml").write_text("""
datasets = ["toy.npz"]
epsilons = [5, "no-privacy"]
seeds = [0]
rounds = 3
partitions = [{ kind = "iid", clients = [2, 3], seed = 1 }]
[methods]
DP-FedGD = { method = "FedGD", lr = 0.5 }
swept = { method = "fedsofim", lr = 0.5, sweep = { rho = [1, 10] } }
""")
    experiment = read_experiment(tmp_path / "e.toml")
    assert [e.method for e in experiment.entries] == ["fedgd", "fedsofim", "fedsofim"]
    run_experiment(experiment, tmp_path / "out", tmp_path)
    write_report(tmp_path / "out")
    results = read_results(tmp_path / "out")
    assert results.epsilons == [5.0, np.inf]
    assert [place[1] for place in results.places] == ["iid, 2 clients, seed 1", "iid, 3 clients, seed 1"]
    only_rho = replace(results, runs=tuple(r for r in results.runs if "rho" in r.method))
    from fedsofim.experiments.report import pictures

    for draw in (pictures.rho_curve, pictures.bars, pictures.privacy_utility, pictures.convergence):
        draw(only_rho, results.places[0], tmp_path / "a.png")
