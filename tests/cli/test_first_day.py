"""What a new user types on the first day, and what is said to it."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import typer

from commands import COMMAND, run_here
from fedsofim.cli import runs
from fedsofim.cli.advice import fitting, options_of
from fedsofim.cli.app import app
from toy import write_blobs

QUICK = ("run", "--dataset", "digits", "--clients", "3", "--partition", "iid", "--recipe", "paper", "--rounds", "3")


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *args: run_here(capsys, monkeypatch, *args)


def csv(path, rows=120, columns="age,dose", label="kind"):
    random = np.random.default_rng(0)
    lines = [f"{columns},{label}"]
    for k in range(rows):
        values = [f"{v:.3f}" for v in random.normal(size=columns.count(",") + 1) + 3 * (k % 2)]
        lines.append(",".join([*values, "ill" if k % 2 else "well"]))
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--split-seed", "-5"), "the split's seed is -5; expected a whole number, at least 0"),
        (("--split-seed", "99999999999"), "the split's seed is 99999999999; expected a whole number below 2**32"),
        (
            ("--seed", "99999999999999999999"),
            "seed is 99999999999999999999; expected a whole number of at most 64 bits",
        ),
        (("--method", "FedSOFIN"), "did you mean 'fedsofim'?"),
    ],
)
def test_wrong_options_are_told_in_a_line(call, more, said):
    done = call(*QUICK, *more)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "option", [("--clients", "3"), ("--alpha", "1"), ("--split-seed", "1"), ("--partition", "iid")]
)
def test_records_at_their_clients_are_not_dealt_again(call, tmp_path, option):
    for name in ("north", "south"):
        csv(tmp_path / f"{name}.csv")
    done = call("run", "--clients-from", tmp_path, "--label", "kind", *option)
    assert done.returncode == 2 and f"{option[0]}: the records are at their clients already" in done.stderr


@pytest.mark.slow
def test_a_methods_name_may_be_written_as_in_the_paper(call):
    done = call(*QUICK, "--method", "FedSOFIM", "--json")
    assert json.loads(done.stdout)["method"] == "fedsofim"


def test_the_default_budget_is_shown():
    program: Any = typer.main.get_command(app)
    command = program.commands["run"]
    assert {p.name: p.default for p in command.params}["epsilon"] == "1"


def test_out_is_looked_at_before_training(call, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("trained first"))
    (tmp_path / "file").write_text("")
    done = call(*QUICK, "--out", tmp_path / "file")
    assert done.returncode == 2 and "is a file; expected a folder" in done.stderr
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "result.json").write_text("{}")
    done = call(*QUICK, "--out", tmp_path / "m")
    assert done.returncode == 2 and "holds result.json already" in done.stderr and "--force" in done.stderr
    assert (tmp_path / "m" / "result.json").read_text() == "{}"


@pytest.mark.slow
def test_what_is_saved_says_everything(call, tmp_path):
    assert call(*QUICK, "--out", tmp_path / "m").returncode == 0
    result = json.loads((tmp_path / "m" / "result.json").read_text())
    assert result["settings"]["rho"] == 0.5 and result["settings"]["lr"] is None
    assert result["steps"]["lr"] > 0
    assert result["labels"] == list(range(10))
    assert list(result["accuracy_by_round"]) == ["1", "2", "3"]
    assert result["versions"]["fedsofim"] and result["versions"]["jax"]
    assert result["versions"]["clipped sums"].startswith(("shipped", "compiled here", "XLA ("))
    assert np.sum(result["confusion"]) == 360
    assert call(*QUICK, "--out", tmp_path / "m").returncode == 2
    assert call(*QUICK, "--out", tmp_path / "m", "--force").returncode == 0


@pytest.mark.slow
def test_the_final_accuracy_is_readable_at_80_columns(call, monkeypatch):
    from fedsofim.cli import tables

    monkeypatch.setattr(tables.out, "_width", 80)
    done = call(*QUICK[:-1], "150", "--epsilon", "no-privacy")
    lines = done.stdout.splitlines()
    assert "…" not in "".join(lines[:8])
    assert any(line.startswith("final accuracy ") and "after round 150" in line for line in lines)
    heads = next(line for line in lines if "round 150" in line)
    assert len(heads) <= 80


def test_tuning_keeps_the_files_rounds(call, tmp_path, monkeypatch):
    from fedsofim.experiments import tuning

    asked = []
    monkeypatch.setattr(tuning, "search_settings", lambda e, search, *rest: asked.append(search.rounds) or [])
    write_blobs(tmp_path / "toy.npz")
    text = "datasets = ['toy.npz']\nepsilons = [1]\n[methods]\nA = { method = 'fedgd' }\n"
    (tmp_path / "with.toml").write_text("rounds = 7\n" + text)
    (tmp_path / "without.toml").write_text(text)
    for file, more in (("with", ()), ("with", ("--rounds", "9")), ("without", ())):
        assert call("tune", tmp_path / f"{file}.toml", "--out", tmp_path / "o.toml", *more).returncode == 0
    assert asked == [7, 9, 50]


def test_advice_names_no_option_that_a_command_lacks(call, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "e.toml").write_text("datasets = ['t.csv']\nepsilons = [1]\n[methods]\nA = { method = 'fedgd' }\n")
    compared = call("compare", tmp_path / "e.toml", "--out", tmp_path / "out")
    assert "label=NAME" in compared.stderr and "--label" not in compared.stderr
    assert "--label NAME" in call("run", "--dataset", tmp_path / "t.csv").stderr


def test_advice_is_fitted_to_the_command_that_runs():
    program = typer.main.get_command(app)
    assert "--label" in options_of(program, ["run", "--dataset", "x"])
    assert "--label" not in options_of(program, ["compare", "x.toml"])
    assert fitting("leave it out with drop=['a'] (--drop a); done", {"--drop"}).count("--drop") == 1


@pytest.mark.parametrize("module", ["flwr", "cryptography"])
def test_a_federation_without_its_extra_is_told_how_to_get_it(call, tmp_path, monkeypatch, module):
    if module == "flwr":
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    for name in [n for n in sys.modules if n.startswith(("cryptography", "fedsofim.deploy.handout"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.startswith("fedsofim.deploy.credentials")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = call("federation", "init", tmp_path / "fed")
    assert done.returncode == 2 and "pip install 'fedsofim[flower]'" in done.stderr


def test_an_interrupt_while_the_program_starts_is_a_line(tmp_path):
    """A stand-in for the slow import waits for the interrupt, so it certainly comes while the program starts."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    heeding = ["env", "--default-signal=INT"]
    with subprocess.Popen([*heeding, *COMMAND, "run"], env=os.environ | {"PYTHONPATH": path}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == "interrupted; no file was left half written\n"


def test_small_clients_are_said(call, tmp_path):
    csv(tmp_path / "t.csv", rows=160)
    done = call("partition", "--dataset", tmp_path / "t.csv", "--label", "kind", "--clients", "5")
    assert done.returncode == 0
    assert "note: t: " in done.stderr and "clients hold fewer than 20 records" in done.stderr
    chosen = call("partition", "--dataset", tmp_path / "t.csv", "--label", "kind", "--clients", "3", "--min-size", "1")
    assert chosen.stderr == ""


def test_dry_run_tells_runs_and_epsilon_and_runs_nothing(call, tmp_path):
    write_blobs(tmp_path / "toy.npz")
    (tmp_path / "e.toml").write_text(
        "datasets = ['toy.npz']\nepsilons = [1, 5]\nseeds = [0, 1]\nrounds = 3\n"
        "partitions = [{ kind = 'iid', clients = 3 }]\n[methods]\nA = { method = 'fedgd', lr = 1 }\n"
    )
    done = call("compare", tmp_path / "e.toml", "--out", tmp_path / "out", "--dry-run")
    assert "4 runs, 0 of them finished" in done.stdout
    assert "2 x A on toy, iid: epsilon 5 at delta 1e-05, 3 rounds, 3 releases" in done.stdout
    assert "known once the first ones are finished" in done.stdout
    assert not (tmp_path / "out").exists()
    assert call("compare", tmp_path / "e.toml", "--out", tmp_path / "out").returncode == 0
    assert (
        "nothing is left to do" in call("compare", tmp_path / "e.toml", "--out", tmp_path / "out", "--dry-run").stdout
    )


def test_two_sources_of_records_are_refused(call):
    done = call("run", "--dataset", "digits", "--clients-from", ".")
    assert done.returncode == 2 and "--dataset and --clients-from are two sources of records" in done.stderr
