"""Starting Flower's processes: every start of a node is a new instance, and what ends is started again."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy import processes
from fedsofim.deploy.address import Address
from fedsofim.deploy.order import Conduct, Order, from_config, to_config


@pytest.fixture(autouse=True)
def flower_is_here(monkeypatch):
    monkeypatch.setattr(processes, "command", lambda name: f"/bin/{name}")


def node_config(command: list[str]) -> dict[str, str]:
    (text,) = (command[i + 1] for i, part in enumerate(command) if part == "--node-config")
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def test_every_start_of_a_node_is_an_instance_of_its_own(tmp_path: Path):
    starts = [processes.node_command(tmp_path / "policy.toml", "h:1", None, None, port=1) for _ in range(3)]
    assert {node_config(c)["policy"] for c in starts} == {str(tmp_path / "policy.toml")}
    assert len({node_config(c)["instance"] for c in starts}) == 3


def test_a_node_is_secure_with_its_key_and_insecure_without(tmp_path: Path):
    files = (tmp_path / "ca.crt", tmp_path / "node.key")
    secure = processes.node_command(tmp_path / "policy.toml", "h:1", *files, port=1)
    assert "--insecure" not in secure
    assert {"--root-certificates", "--auth-supernode-private-key", *map(str, files)} <= set(secure)
    assert "--insecure" in processes.node_command(tmp_path / "policy.toml", "h:1", None, None, port=1)
    for insecure in (True, False):
        link = processes.superlink_command(tmp_path, Address(insecure=insecure))
        assert ("--insecure" in link) == insecure
        assert ("--enable-supernode-auth" in link) != insecure


@pytest.mark.parametrize("epsilon", [0.5, WITHOUT])
def test_a_job_is_submitted_as_flower_reads_it(tmp_path: Path, monkeypatch, epsilon: float | str):
    given: list[list[str]] = []
    monkeypatch.setattr(
        processes, "_flwr", lambda arguments, env: given.append(arguments) or {"success": 1, "run-id": 7}
    )
    job = (Order(epsilon=epsilon, settings=(("lr", "0.5"),)), Conduct(folder=str(tmp_path / "a job"), ask_first=False))
    assert processes.submit(tmp_path, to_config(*job)) == 7
    (arguments,) = given
    text = arguments[arguments.index("--run-config") + 1]
    assert from_config(tomllib.loads(re.sub(r' (?=[\w-]+=(?!0\.5"))', "\n", text))) == job
    assert Path(arguments[1]).joinpath("pyproject.toml").is_file()


SCRIPT = """
import itertools, os, sys
from fedsofim.deploy.processes import keep_running
count = itertools.count()
def command():
    return [sys.executable, "-c", f"print('start', {next(count)}, flush=True)"]
keep_running([command], os.environ, pause=0.1)
print("stopped", flush=True)
"""


@pytest.mark.slow
def test_what_ends_is_started_again_by_a_new_command_until_told_to_stop():
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        starts = []
        while len(starts) < 3:
            line = process.stdout.readline()
            assert line, "it ended by itself"
            starts += [line] if line.startswith("start ") else []
        os.kill(process.pid, signal.SIGTERM)
        rest = process.stdout.read()
    assert starts == ["start 0\n", "start 1\n", "start 2\n"]
    assert rest.endswith("stopped\n")
    assert process.returncode == 0
