"""`--epsilons` and `--budgets`: a budget for each client, on the command line and in experiments."""

import json
from pathlib import Path

import pytest

from commands import run_here
from fedsofim.cli.budget_options import ClientBudgetOptions, read_budgets
from fedsofim.core.budget import Budget
from fedsofim.core.budgets import Budgets
from fedsofim.errors import InputError
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.rehearsal import rehearse
from fedsofim.experiments.report.accuracy import footnotes, spent_cell
from fedsofim.experiments.report.results import read_results
from fedsofim.experiments.runner import Conduct, run_experiment
from toy import write_blobs


def test_a_file_of_budgets(tmp_path: Path):
    path = tmp_path / "b.csv"
    path.write_text("client,epsilon,delta\n1,2,1e-6\n0,0.5,1e-5\n")
    assert read_budgets(path, 2) == Budgets([Budget(0.5, 1e-5), Budget(2, 1e-6)])
    options = ClientBudgetOptions(budgets=path)
    assert options.budget_for(2) == read_budgets(path, 2)
    assert ClientBudgetOptions(epsilon="3").budget_for(2) == Budget(3.0)
    with pytest.raises(InputError, match="give one of them"):
        ClientBudgetOptions(budgets=path, epsilons="1,2").budget_for(2)


@pytest.mark.parametrize("text, said", [
    ("client,epsilon\n0,1\n", "expected client, epsilon, delta"),
    ("client,epsilon,delta\n0,1,1e-5\n", "the run has 2"),
    ("client,epsilon,delta\n0,1,1e-5\n0,1,1e-5\n", "line 3: client 0 has a budget already"),
    ("client,epsilon,delta\n0,-1,1e-5\n1,1,1e-5\n", "line 2: epsilon is -1"),
    ("client,epsilon,delta\na,1,1e-5\n1,1,1e-5\n", "line 2: expected a client's number"),
    ("client,epsilon,delta\n0,no-privacy,1e-5\n1,1,1e-5\n", "client 0 is NO_PRIVACY"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, said: str):
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_budgets(tmp_path / "b.csv", 2)


def test_prices_name_every_client(capsys, monkeypatch):
    done = run_here(
        capsys, monkeypatch, "privacy", "--epsilons", "0.5,rest", "--epsilon", "2", "--clients", "3", "--json"
    )
    told = json.loads(done.stdout)
    assert [c["epsilon"] for c in told["each_client"]] == pytest.approx([0.5, 2, 2])
    done = run_here(capsys, monkeypatch, "privacy", "--epsilons", "0.5,2x2", "--clients", "3")
    assert "1 to 2" in done.stdout and "the largest of any is 2" in done.stdout
    assert "epsilon =" not in done.stdout and "sigma_g" not in done.stdout


@pytest.mark.slow
def test_in_an_experiment(tmp_path: Path):
    write_blobs(tmp_path / "toy.npz")
    (tmp_path / "e.toml").write_text(
        'datasets = ["toy.npz"]\nepsilons = [5]\nseeds = [0]\nrounds = 2\npartitions = [{kind = "iid", clients = 3}]\n'
        '[methods.all]\nmethod = "fedgd"\n'
        '[methods."one strict"]\nmethod = "fedgd"\nweights = "quiet"\nepsilons = "0.5,rest"\n'
    )
    experiment = read_experiment(tmp_path / "e.toml")
    said = rehearse(experiment, tmp_path / "out", tmp_path, Conduct())
    assert "each client its own: epsilon 0.5 (1 client), 5 (2 clients) at delta 1e-05" in said[2]
    assert run_experiment(experiment, tmp_path / "out", tmp_path) == 2
    results = read_results(tmp_path / "out")
    assert [spent_cell([r]).text for r in results.runs] == ["5", "0.5 to 5"]
    assert [r.privacy["weights"] for r in results.runs] == ["uniform", "quiet"]
    assert "each client has a budget of its own" in " ".join(footnotes(results))
