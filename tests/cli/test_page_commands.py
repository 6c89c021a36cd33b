"""`--page` of a node and of a job, and the switch without a page: as an operator and a coordinator type it."""

import json
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commands import run_here
from fedsofim.cli import deployment
from fedsofim.deploy.checkpoint import PROGRESS
from fedsofim.deploy.docket import visits
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.stopping import stopped_since
from nodes import X, Y, make_node


@pytest.fixture
def fedsofim(capsys, monkeypatch):
    return lambda *arguments: run_here(capsys, monkeypatch, *arguments)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    make_node(tmp_path / "n", X, Y)
    return tmp_path / "n" / "policy.toml"


def test_a_node_is_stopped_and_resumed_by_commands(fedsofim, policy: Path):
    said = [fedsofim("node", what, "--policy", policy) for what in ("stop", "stop", "resume", "resume")]
    assert [done.returncode for done in said] == [0, 0, 0, 0]
    assert "n0: stopped; every request is refused" in said[0].stdout
    assert "stopped already" in said[1].stdout
    assert "answers again" in said[2].stdout
    assert "was not stopped" in said[3].stdout
    ledger = read_policy(policy).ledger
    assert [v.verdict for v in visits(ledger, 9)] == ["resumed", "stopped"]
    assert stopped_since(ledger) is None


def test_stopping_what_is_no_node_is_one_line(fedsofim, tmp_path: Path):
    done = fedsofim("node", "stop", "--policy", tmp_path / "none.toml")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "asked"),
    [((), []), (("--page",), ["--page", "0"]), (("--page", "--page-port", "8711"), ["--page", "8711"]),
     (("--page-port", "8711"), ["--page", "8711"])],
)  # fmt: skip
def test_a_node_is_started_with_the_page_that_was_asked_for(
    fedsofim, policy: Path, monkeypatch, options: tuple[str, ...], asked: list[str]
):
    started: list[list[str]] = []

    def execve(path: str, arguments: list[str], env: dict[str, str]) -> None:
        started.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr("os.execve", execve)
    fedsofim("node", "--policy", policy, "--superlink", "h:1", "--insecure", "--work", policy.parent / "w", *options)
    (arguments,) = started
    assert arguments[arguments.index("--work") + 2 :] == asked


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_port_that_is_none_is_refused(fedsofim, policy: Path, port: str):
    done = fedsofim("node", "--policy", policy, "--superlink", "h:1", "--insecure", "--page-port", port)
    assert done.returncode == 2
    assert "page-port" in done.stderr


def test_a_jobs_page_is_there_while_it_is_followed(fedsofim, tmp_path: Path, monkeypatch, capsys):
    seen: list[str] = []

    def follow(*arguments: Any) -> None:
        address = capsys.readouterr().out.removeprefix("page: ").strip()
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / PROGRESS).write_text(json.dumps({"round": 1, "rounds": 4}))
        with urllib.request.urlopen(address, timeout=60) as page:
            seen.extend([address, page.read().decode()])

    monkeypatch.setattr(deployment, "announced", partial(_hasty, deployment.announced))
    monkeypatch.setattr(deployment, "follow", follow)
    done = fedsofim("serve", tmp_path, "--job", tmp_path / "job", "--method", "fedgd", "--rounds", "4", "--page")
    assert done.returncode == 0, done.stderr
    assert "1 of 4" in seen[1]
    with pytest.raises(OSError):
        urllib.request.urlopen(seen[0], timeout=60)


def _hasty(announced: Any, page: Any, port: int, **how: Any) -> Any:
    """Nobody is waited for at the end."""
    return announced(page, port, **how | {"linger": 0.0})
