"""The deployment commands: a mistake is one line that says what to do."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.cli import deployment
from fedsofim.deploy.checkpoint import CHECKPOINT, save
from fedsofim.deploy.order import Conduct, Order
from fedsofim.deploy.policy import read_policy
from nodes import X, Y, make_nodes, policy_toml, start

# --- node ---------------------------------------------------------------------------------------------------


@pytest.fixture
def no_process(monkeypatch):
    """Whatever would be started is an error of the test."""
    for name in ("os.execve", "os.execv", "subprocess.Popen.__init__"):
        monkeypatch.setattr(name, lambda *a, **k: pytest.fail(f"started {a}"))


def test_a_node_says_at_once_what_is_wrong_with_its_policy_or_records(mistake, policy: Path, no_process):
    start = ("node", "--superlink", "127.0.0.1:1", "--insecure", "--policy")
    assert "no such policy file" in mistake(*start, policy.parent / "none.toml")
    policy.write_text(policy_toml(epsilon=-1))
    assert "epsilon" in mistake(*start, policy)
    policy.write_text(policy_toml())
    (policy.parent / "records.npz").unlink()
    assert "records.npz" in mistake(*start, policy)


@pytest.mark.parametrize(
    "security",
    [[], ["--root-certificates", "ca.crt"], ["--key", "node.key"], ["--insecure", "--key", "node.key"],
     ["--insecure", "--root-certificates", "ca.crt", "--key", "node.key"]],
    ids=str,
)  # fmt: skip
def test_a_node_is_secure_or_says_that_it_is_not(mistake, policy: Path, security: list[str], no_process):
    message = mistake("node", "--policy", policy, "--superlink", "127.0.0.1:1", *security)
    assert "--insecure" in message
    assert "--root-certificates" in message


def test_a_node_needs_its_key(mistake, policy: Path, tmp_path: Path, no_process):
    (tmp_path / "ca.crt").write_text("x")
    files = ("--root-certificates", tmp_path / "ca.crt", "--key", tmp_path / "node.key")
    assert "node.key: no such file" in mistake("node", "--policy", policy, "--superlink", "127.0.0.1:1", *files)


# --- serve --------------------------------------------------------------------------------------------------


def test_test_data_is_found_from_the_servers_own_folder_and_read_before_a_job_begins(
    call, mistake, tmp_path: Path, monkeypatch
):
    asked: list[Conduct] = []
    monkeypatch.setattr(deployment, "follow", lambda server, order, conduct: asked.append(conduct))
    monkeypatch.setattr(deployment, "check_order", lambda order: None)
    monkeypatch.chdir(tmp_path)
    np.savez("test.npz", x_train=X, y_train=Y, x_test=X, y_test=Y)
    assert call("serve", "server", "--test", "test.npz")[0] == 0
    assert asked[0].test == str(tmp_path / "test.npz")
    assert "none.npz" in mistake("serve", "server", "--test", "none.npz")
    assert len(asked) == 1


@pytest.mark.parametrize(
    "options, said",
    [
        (["--method", "fedgo"], "fedgd"),
        (["--set", "lr"], "lr"),
        (["--set", "lrr=1"], "lrr"),
        (["--set", "lr=fast"], "fast"),
        (["--epsilon", "-1"], "epsilon"),
        (["--epsilon", "inf"], "written no-privacy"),
        (["--epsilon", "much"], "expected a number above 0, or no-privacy"),
        (["--method", "./mine.py"], "nodes run only what is installed there"),
        pytest.param(["--epsilon", "nan"], "epsilon"),
        pytest.param(["--epsilon", "-inf"], "epsilon"),
        (["--delta", "2"], "delta"),
        (["--rounds", "0"], "rounds"),
        (["--clip", "0"], "clip"),
        (["--clients", "0"], "clients"),
        (["--weights", "siez"], "size"),
        (["--trust", "lokal"], "local"),
        (["--standardize-share", "2"], "share"),
        (["--recipe", "atuo"], "did you mean 'auto'"),
        (["--recipe", "auto", "--rounds", "0"], "rounds"),
    ],
    ids=str,
)
def test_a_senseless_order_is_an_error_before_any_node_is_asked(mistake, tmp_path, options, said, no_process):
    assert said in mistake("serve", tmp_path, "--job", tmp_path / "job", *options)
    assert not (tmp_path / "job").exists()


def test_serve_needs_a_server_folder(mistake, tmp_path: Path, no_process):
    assert "not a server folder" in mistake("serve", tmp_path, "--job", tmp_path / "job")


def test_serve_resumes_only_what_there_is(mistake, tmp_path: Path, no_process):
    assert "no checkpoint" in mistake("serve", tmp_path, "--job", tmp_path / "job", "--resume")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / CHECKPOINT).write_bytes(b"nonsense")
    assert CHECKPOINT in mistake("serve", tmp_path, "--job", tmp_path / "job", "--resume")


def conduct_in(server: Path, **changed: Any) -> Conduct:
    """Of the job `job` in a server's folder, which keeps what nodes signed."""
    return Conduct(folder=str(server / "job"), statements=str(server / "statements"), **changed)


def test_serve_resumes_the_jobs_own_order(call, tmp_path: Path, monkeypatch):
    nodes = make_nodes(tmp_path / "nodes")
    order = Order(
        recipe="paper", method="fedadam", settings=(("lr", "0.5"),), epsilon=0.75, rounds=2, seed=4, weights="size"
    )
    save(start(nodes, order), tmp_path / "job" / CHECKPOINT)
    asked: list[tuple[Path, Order, Conduct]] = []
    monkeypatch.setattr("fedsofim.cli.deployment.follow", lambda *a: asked.append(a))
    call("serve", tmp_path, "--job", tmp_path / "job", "--resume", "--method", "fedgd", "--epsilon", "9")
    assert asked == [(tmp_path, order, conduct_in(tmp_path, resume=True))]


def test_serve_orders_what_was_asked_for(call, tmp_path: Path, monkeypatch):
    asked: list[tuple[Path, Order, Conduct]] = []
    monkeypatch.setattr("fedsofim.cli.deployment.follow", lambda *a: asked.append(a))
    job = ("--job", tmp_path / "job", "--test", "digits", "--patience", "5")
    call("serve", tmp_path, *job, "--method", "fedadam", "--set", "tau=0.1", "--set", "lr=0.5", "--epsilon", "2")
    call("serve", tmp_path, *job, "--epsilon", "no-privacy", "--standardize-share", "0.1", "--weights", "size")
    call("serve", tmp_path, *job, "--recipe", "auto", "--rounds", "9", "--clip", "2.5")
    conduct = conduct_in(tmp_path, test="digits", patience=5.0)
    settings = (("lr", "0.5"), ("tau", "0.1"))
    assert asked == [
        (tmp_path, Order(method="fedadam", settings=settings, epsilon=2.0), conduct),
        (tmp_path, Order(epsilon="no-privacy", standardize=0.1, weights="size"), conduct),
        (tmp_path, Order(recipe="auto", rounds=9, clip=2.5), conduct),
    ]


# --- federation ---------------------------------------------------------------------------------------------


def test_init_writes_a_folder_for_each(call, mistake, tmp_path: Path):
    pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")
    folder = tmp_path / "f"
    code, out, _ = call("federation", "init", folder, "--nodes", 2, "--classes", 3, "--epsilon", 4)
    assert code == 0
    assert "README.txt" in out
    assert sorted(p.name for p in (folder / "nodes").iterdir()) == ["node-1", "node-2"]
    assert "--insecure" not in (folder / "nodes" / "node-1" / "start.sh").read_text()
    assert "not empty" in mistake("federation", "init", folder)
    assert "nodes is 0" in mistake("federation", "init", tmp_path / "g", "--nodes", 0)
    assert "written no-privacy" in mistake("federation", "init", tmp_path / "g", "--epsilon", "inf")
    assert not (tmp_path / "g").exists()


def test_init_for_a_rehearsal(call, tmp_path: Path):
    pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")
    code, _, err = call("federation", "init", tmp_path / "f", "--epsilon", "no-privacy", "--insecure")
    assert code == 0, err
    policy = read_policy(tmp_path / "f" / "nodes" / "node-1" / "policy.toml")
    assert (policy.epsilon, policy.smallest_multiplier) == (math.inf, 0)


def test_without_flower_it_says_what_to_install(mistake, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *a, **k: None)
    assert "pip install 'fedsofim[flower]'" in mistake("federation", "init", tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_federation_of_a_draft_says_what_was_read_off_records(call, tmp_path: Path):
    pytest.importorskip("flwr")
    rows = "".join(f"{20 + k % 60},{'fm'[k % 2]},{'ab'[k % 3 == 0]}\n" for k in range(90))
    (tmp_path / "t.csv").write_text(f"age,sex,ill\n{rows}")
    done = call("schema", tmp_path / "t.csv", "--label", "ill")
    assert done.returncode == 0 and "from_records" in done.stdout
    (tmp_path / "draft.toml").write_text(done.stdout)
    code, _, err = call("federation", "init", tmp_path / "f", "--schema", tmp_path / "draft.toml")
    assert code == 0 and "range of 'age', categories of 'sex', classes of 'ill' were read off somebody's records" in err
    public = "".join(line for line in done.stdout.splitlines(True) if not line.startswith("from_records"))
    (tmp_path / "public.toml").write_text(public)
    assert call("federation", "init", tmp_path / "g", "--schema", tmp_path / "public.toml")[2] == ""


@pytest.mark.parametrize("command", ["node", "serve", "federation", "certificate", "ledger"])
def test_commands_have_help(call, command: str):
    code, out, err = call(command, "--help")
    assert code == 0
    assert "Usage" in out + err


@pytest.mark.parametrize("arguments", [["certificate", "veryfi"], ["node"], ["serve"], ["serve", "x", "--round", "3"]])
def test_wrong_options_are_usage_errors(call, arguments: list[str]):
    code, _, err = call(*arguments)
    assert code == 2
    assert "Traceback" not in err
