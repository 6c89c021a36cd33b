"""`run`, `predict`, `compare` and `report` on numbers, as a user types them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from answers import arrays
from commands import run_here

GRID = """
name = "numbers"
datasets = ["diabetes.csv"]
label = "target"
task = "numbers"
target_range = [0, 400]
epsilons = [1, 5]
seeds = [0, 1]
rounds = 4
recipe = "paper"
[methods]
DP-FedGD = { method = "fedgd", lr = 0.0001 }
DP-FedSOFIM = { method = "fedsofim", lr = 0.0001 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Diabetes as a table with a public group, and an experiment on it."""
    out = tmp_path_factory.mktemp("numbers")
    x, y, names = arrays("numbers")
    with (out / "diabetes.csv").open("w") as file:
        csv.writer(file).writerows([[*names, "target"], *np.column_stack([x, y]).tolist()])
    (out / "grid.toml").write_text(GRID)
    columns = "".join(f"[columns.{n}]\nkind = 'number'\nrange = [-1, 400]\n" for n in names if n != "sex")
    group = "[columns.sex]\nkind = 'category'\ncategories = ['1.0', '2.0']\ngroup = true\n"
    (out / "schema.toml").write_text(f"{columns}{group}[columns.target]\nkind = 'label'\nrange = [0, 400]\n")
    return out


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *args: run_here(capsys, monkeypatch, *args)


def test_a_number_is_learned_told_in_its_units_and_predicted(call, folder):
    table = folder / "diabetes.csv"
    done = call("run", "--dataset", table, "--schema", folder / "schema.toml", "--clients", 3, "--epsilon", 5,
                "--method", "fedgd", "--recipe", "paper", "--rounds", 3, "--set", "lr=0.001",
                "--out", folder / "m")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "final RMSE" in done.stdout and "their mean alone: 77.09" in done.stdout
    assert "R² " in done.stdout and "(in brackets: of a constant answer)" in done.stdout
    assert "by sex: 1.0 " in done.stdout
    result = json.loads((folder / "m" / "result.json").read_text())
    assert result["task"] == {"kind": "numbers", "range": [0, 400]} and list(result["rmse_by_round"]) == ["1", "2", "3"]
    assert (folder / "m" / "curve.png").stat().st_size > 1000
    done = call("predict", folder / "m", table, "--out", folder / "p.csv")
    assert done.returncode == 0 and "the table has the truth too: RMSE" in done.stdout, done.stderr
    said = [float(row["predicted"]) for row in csv.DictReader((folder / "p.csv").read_text().splitlines())]
    assert len(said) == 442 and 0 <= min(said) <= max(said) <= 400


def test_a_grid_of_numbers_is_compared_by_its_error(call, folder):
    assert call("compare", folder / "grid.toml", "--out", folder / "out").returncode == 0
    row = json.loads((folder / "out" / "runs.jsonl").read_text().splitlines()[0])
    assert row["metric"] == "rmse" and len(row["rmse"]) == 4 and row["predictions"] is None
    assert set(row["metrics"]["measures"]) == {"rmse", "mae", "r2"}
    assert call("report", folder / "out").returncode == 0
    tables = {p.stem for p in (folder / "out" / "tables").glob("*.md")}
    assert {"rmse-diabetes-iid", "measures-diabetes-iid", "differences-diabetes-iid"} <= tables
    assert not any(name.startswith(("mcnemar", "recall", "partition", "accuracy")) for name in tables)
    text = (folder / "out" / "tables" / "measures-diabetes-iid.md").read_text()
    assert "constant answer | 77.09" in text and "RMSE, less is better" in text
    page = (folder / "out" / "report.html").read_text()
    assert "mean alone has an RMSE of 77.09" in page and "reaches an RMSE of" in page
    assert (
        (folder / "out" / "rows.csv")
        .read_text()
        .startswith("dataset,partition,method,epsilon,epsilon_spent,seed,round,rm")
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--task", "numbers"), "numbers need a public range"),
        (("--task", "numbers", "--target-range", "0-400"), "expected LOW,HIGH"),
        (("--task", "numbers", "--target-range", "0,400", "--alpha", 1), "Dirichlet's proportions are over classes"),
        (("--target-range", "0,400", "--partition", "dirichlet"), "Dirichlet's proportions are over classes"),
        (("--task", "regression"), "there is no task 'regression'"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(call, folder, options, said):
    done = call("run", "--dataset", folder / "diabetes.csv", "--label", "target", *options)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_a_known_dataset_has_its_own_task(call):
    done = call("run", "--dataset", "digits", "--task", "two-classes")
    assert done.returncode == 2 and "digits has its own labels and test set; task go with your own files" in done.stderr


def test_the_limit_and_the_theory_are_about_the_head(call, folder):
    own = ("--dataset", folder / "diabetes.csv", "--label", "target", "--target-range", "0,400", "--clients", 3)
    assert "the limit is about classes and the softmax head; the task here is numbers" in call("limit", *own).stderr
