"""The commands of a federation's processes, and a job as it is submitted."""

import re
import tomllib
from pathlib import Path

import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy import processes
from fedsofim.deploy.address import Address
from fedsofim.deploy.order import Conduct, Order, from_config, to_config
from fedsofim.errors import InputError


@pytest.fixture(autouse=True)
def flower_is_here(monkeypatch):
    monkeypatch.setattr(processes, "command", lambda name: f"/bin/{name}")


def test_a_node_is_secure_with_its_key_and_insecure_without(tmp_path: Path):
    files = (tmp_path / "ca.crt", tmp_path / "node.key")
    secure = processes.node_command(tmp_path / "policy.toml", "h:1", *files, tmp_path)
    assert {"--root-certificates", "--key", *map(str, files)} <= set(secure)
    assert "--key" not in processes.node_command(tmp_path / "policy.toml", "h:1", None, None, tmp_path)
    for insecure in (True, False):
        link = processes.superlink_command(tmp_path, Address(insecure=insecure))
        assert ("--insecure" in link) == insecure
        assert link[2] == "fedsofim.deploy.flower.front", "nodes never reach the SuperLink itself"


@pytest.mark.parametrize("found", ["1.40.9", "1.43.0", "2.0.0", "nonsense"])
def test_another_flower_is_an_error_that_names_the_right_ones(monkeypatch, found: str):
    monkeypatch.undo()  # of the fixture above: Flower's own commands
    monkeypatch.setattr(processes, "version", lambda name: found)
    for use in (processes.check_flower, lambda: processes.command("flwr")):
        with pytest.raises(InputError, match=f"Flower {found} is installed here; fedsofim works with 1.41 and 1.42"):
            use()


@pytest.mark.parametrize("epsilon", [0.5, WITHOUT])
def test_a_job_is_submitted_as_flower_reads_it(tmp_path: Path, monkeypatch, epsilon: float | str):
    given: list[list[str]] = []
    monkeypatch.setattr(
        processes, "flwr", lambda arguments, env: given.append(arguments) or {"success": 1, "run-id": 7}
    )
    job = (Order(epsilon=epsilon, settings=(("lr", "0.5"),)), Conduct(folder=str(tmp_path / "a job"), ask_first=False))
    assert processes.submit(tmp_path, to_config(*job)) == 7
    (arguments,) = given
    text = arguments[arguments.index("--run-config") + 1]
    assert from_config(tomllib.loads(re.sub(r' (?=[\w-]+=(?!0\.5"))', "\n", text))) == job
    assert Path(arguments[1]).joinpath("pyproject.toml").is_file()


def test_what_flower_says_in_many_lines_is_one(tmp_path: Path, monkeypatch):
    script = tmp_path / "flwr"
    script.write_text("#!/bin/sh\necho 'Using SuperLink: federation' >&2\necho >&2\necho 'It is away.' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(processes, "command", lambda name: str(script))
    assert processes.flwr(["run"], {})["error-message"] == "Using SuperLink: federation It is away."
