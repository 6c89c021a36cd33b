"""The commands as a user types them."""

import json
import os
import pty
import signal
import subprocess

import numpy as np
import pytest

import fedsofim as fs
from commands import COMMAND, run, run_here


@pytest.mark.slow
@pytest.mark.parametrize("epsilon, sigma_g", [(0.5, "526.21"), (1, "279.17"), (5, "66.741"), (10, "37.408")])
def test_privacy_gives_the_papers_multiplier(call, epsilon, sigma_g):
    done = call("privacy", "--epsilon", epsilon, "--delta", "1e-5", "--rounds", 70, "--clients", 20, "--json")
    answer = json.loads(done.stdout)
    assert f"{answer['sigma_g']:.{len(sigma_g.split('.')[1])}f}" == sigma_g
    assert answer["epsilon"] == pytest.approx(epsilon)
    assert answer["releases"] == 70


@pytest.mark.slow
def test_privacy_both_ways(call):
    there = json.loads(call("privacy", "--epsilon", 3, "--json").stdout)
    back = json.loads(call("privacy", "--sigma-g", there["sigma_g"], "--json").stdout)
    assert back["epsilon"] == pytest.approx(3, rel=1e-9)


@pytest.mark.slow
def test_run_prints_one_json_object(tmp_path):
    done = run(
        "run",
        "--dataset",
        "digits",
        "--clients",
        4,
        "--partition",
        "iid",
        "--rounds",
        20,
        "--epsilon",
        5,
        "--set",
        "lr=0.5",
        "--json",
        "--out",
        tmp_path / "out",
    )
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    keys = {
        "method",
        "dataset",
        "epsilon",
        "delta",
        "mu",
        "sigma_g",
        "noise_std",
        "rounds",
        "releases",
        "accuracy",
        "final_accuracy",
        "seconds",
    }
    assert keys <= answer.keys()
    assert list(answer["accuracy"]) == ["10", "20"]
    assert answer["accuracy"]["20"] == answer["final_accuracy"]
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "result.json",
        "model.json",
        "model.safetensors",
        "curve.png",
    }


@pytest.mark.slow
def test_run_on_a_file_of_ones_own(call, tmp_path):
    random = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = random.normal(size=(120, 3)) + 3 * y[:, None]
    np.savez(tmp_path / "mine.npz", x_train=x[:90], y_train=y[:90], x_test=x[90:], y_test=y[90:])
    done = call(
        "run",
        "--dataset",
        tmp_path / "mine.npz",
        "--clients",
        3,
        "--partition",
        "iid",
        "--rounds",
        10,
        "--epsilon",
        20,
        "--method",
        "fedgd",
        "--json",
    )
    assert json.loads(done.stdout)["final_accuracy"] > 80


def table(path, rows, seed):
    random = np.random.default_rng(seed)
    lines = ["age,dose,outcome"]
    for i in range(rows):
        a, b = random.normal(size=2) + (3 if i % 2 else 0)
        lines.append(f"{a:.4f},{b:.4f},{'ill' if i % 2 else 'well'}")
    path.write_text("\n".join(lines))


@pytest.mark.slow
def test_run_on_a_federation_of_tables(call, tmp_path):
    for name, rows in (("north", 80), ("south", 50), ("west", 200)):
        table(tmp_path / f"{name}.csv", rows, seed=rows)
    done = call(
        "run",
        "--clients-from",
        tmp_path,
        "--label",
        "outcome",
        "--rounds",
        10,
        "--epsilon",
        20,
        "--json",
        "--method",
        "fedgd",
        "--standardize",
        "private",
        "--share",
        0.1,
    )
    answer = json.loads(done.stdout)
    assert answer["clients"] == 3
    assert answer["final_accuracy"] > 80
    assert answer["ledger"][0]["what"] == "feature moments"


@pytest.mark.slow
def test_models_are_listed_with_what_may_be_set(call):
    listed = {m["name"]: m for m in json.loads(call("models", "--json").stdout)}
    assert {"linear", "mlp", "cnn"} <= set(listed)
    assert listed["mlp"]["parameters"] == {"hidden": [64, 64], "activation": "tanh"}
    assert listed["linear"]["formed"] == "its gradient is a closed form"
    assert "parameters: hidden=64,64, activation=tanh" in call("models").stdout


@pytest.mark.slow
def test_methods_lists_all_nine(call):
    listed = json.loads(call("methods", "--json").stdout)
    names = {"fedgd", "fedavg", "fedfc", "scaffold", "fedadam", "fedyogi", "ftrl", "adafedprox", "fedsofim"}
    assert {m["name"] for m in listed} >= names
    assert all(m["ledger"] and m["about"] for m in listed)
    assert "fedsofim" in call("methods").stdout


@pytest.mark.slow
def test_partition_counts(call, tmp_path):
    done = call("partition", "--dataset", "digits", "--clients", 3, "--out", tmp_path / "p.csv", "--json")
    answer = json.loads(done.stdout)
    assert np.sum(answer["counts"]) == 1437
    rows = (tmp_path / "p.csv").read_text().splitlines()
    assert rows[0].startswith("client,class0") and len(rows) == 4


@pytest.mark.parametrize(
    "args, message",
    [
        (("run", "--method", "fedsofin"), "did you mean 'fedsofim'?"),
        (("run", "--dataset", "fashon"), "did you mean 'fashion'?"),
        (("run", "--set", "lrr=1", "--dataset", "digits"), "did you mean 'lr'?"),
        (("run", "--set", "lr"), "expected name=value"),
        (("run", "--set", "lr=fast"), "expected float"),
        (("run", "--set", "direction=sideways"), "there is no value of direction"),
        (("run", "--set", "preset=nope"), "preset"),
        (("run", "--partition", "random"), "there is no partition"),
        (("run", "--epsilon", "0"), "epsilon is 0.0; expected"),
        (("run", "--epsilon", "one"), "epsilon is 'one'; expected a number above 0, or no-privacy"),
        (("run", "--epsilon", "inf"), "written no-privacy"),
        (("run", "--method", "./nowhere.py"), "nowhere.py: no such file"),
        (("run", "--dataset", "digits", "--model", "softmax"), "there is no model 'softmax'"),
        (("run", "--delta", "1"), "delta is 1.0; expected"),
        (("run", "--dataset", "digits", "--rounds", "0"), "rounds is 0; expected a whole number, at least 1"),
        (("run", "--dataset", "digits", "--trust", "blind"), "there is no trust"),
        (("run", "--dataset", "digits", "--clients", "5000"), "use fewer clients"),
        (("run", "--dataset", "/nowhere/x.npz"), "x.npz"),
        (("run", "--dataset", "digits", "--standardize", "public"), "--stats FILE"),
        (("run", "--dataset", "digits", "--standardize", "x"), "there is no standardize"),
        (("run", "--dataset", "cifar10"), "fedsofim features cifar10"),
        (("privacy",), "--epsilon"),
        (("privacy", "--epsilon", "1", "--sigma-g", "1"), "either"),
        (("privacy", "--epsilon", "nan"), "epsilon is nan"),
        (("privacy", "--epsilon", "0"), "epsilon is 0.0"),
        (("privacy", "--epsilon", "1", "--clients", "0"), "at least 1"),
        (("frobnicate",), "No such command"),
    ],
)
def test_bad_input_is_one_clear_line(args, message, capsys, monkeypatch):
    done = run_here(capsys, monkeypatch, *args)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_wrong_name_is_one_line_in_a_process_too():
    done = run("run", "--method", "fedsofin")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "did you mean 'fedsofim'?" in done.stderr


def test_version_is_the_package_s(capsys, monkeypatch):
    assert run_here(capsys, monkeypatch, "--version").stdout == f"fedsofim {fs.__version__}\n"


def test_no_privacy_has_one_spelling(capsys, monkeypatch):
    answer = json.loads(run_here(capsys, monkeypatch, "privacy", "--epsilon", "no-privacy", "--json").stdout)
    assert answer["epsilon"] == "no-privacy"
    assert answer["sigma_g"] == 0.0
    assert "no-privacy" in run_here(capsys, monkeypatch, "privacy", "--epsilon", "no-privacy").stdout
    refused = run_here(capsys, monkeypatch, "privacy", "--epsilon", "inf").stderr
    assert "written no-privacy" in refused


@pytest.mark.slow
def test_an_interrupt_in_the_middle_of_a_run_leaves_no_broken_file(tmp_path):
    """Waits for the progress bar to show rounds that are done, so it is certainly in the middle."""
    watched, terminal = pty.openpty()
    args = ["run", "--dataset", "digits", "--rounds", "10000000", "--epsilon", "1", "--out", str(tmp_path / "o")]
    heeding = ["env", "--default-signal=INT"]  # a shell's background jobs, and all they start, ignore interrupts
    with subprocess.Popen([*heeding, *COMMAND, *args], stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        try:
            while b"0/10000000" not in shown.replace(b" 0/10000000", b""):
                shown += os.read(watched, 4096)
            process.send_signal(signal.SIGINT)
            while more := _read(watched):
                shown += more
        finally:
            process.kill()
            os.close(watched)
    assert process.returncode == 130, shown
    assert b"Traceback" not in shown
    assert not (tmp_path / "o").exists() or not list((tmp_path / "o").iterdir())


def _read(terminal: int) -> bytes:
    """What was written to a terminal; nothing once its last writer is gone."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
