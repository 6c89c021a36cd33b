"""The pinned node: whatever code a server sends, the worker runs the ClientApp installed here, or nothing."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supernode import cli as supernode_cli
from flwr.supernode.runtime import run_clientapp

from fedsofim.deploy import workers
from fedsofim.deploy.flower import pinned
from fedsofim.deploy.flower.client_app import app

runtime: Any = run_clientapp
REPLACED = ["install_from_fab", "get_project_dir", "install_app_dependencies", "get_load_client_app_fn"]


@pytest.fixture
def own_runtime(monkeypatch):
    """Flower's worker module, put back as it was afterwards; its command does not really start."""
    ran: list[bool] = []
    for name in REPLACED:
        monkeypatch.setattr(runtime, name, getattr(runtime, name))
    monkeypatch.setattr(supernode_cli, "flwr_clientapp", lambda: ran.append(True))
    return ran


# --- the commands a SuperNode finds -------------------------------------------------------------------------


def test_every_worker_command_of_flower_is_ours(tmp_path: Path):
    folder = workers.commands(tmp_path / "workers")
    for command in TASK_TYPE_TO_COMMAND.values():
        assert (folder / command).is_file(), f"a SuperNode would run Flower's own {command}"
        assert os.access(folder / command, os.X_OK)


def test_ours_come_first_on_the_path(tmp_path: Path):
    env = workers.environment(tmp_path)
    first = Path(env["PATH"].split(os.pathsep)[0])
    assert first == tmp_path / "workers"
    for command in TASK_TYPE_TO_COMMAND.values():
        found = subprocess.run(["sh", "-c", f"command -v {command}"], env=env, capture_output=True, text=True)
        assert found.stdout.strip() == str(first / command)
    found = subprocess.run(["sh", "-c", "command -v flower-supernode"], env=env, capture_output=True, text=True)
    assert found.stdout.strip()


@pytest.mark.parametrize("kind", [k for k in TASK_TYPE_TO_COMMAND if "client" not in TASK_TYPE_TO_COMMAND[k]])
def test_every_other_worker_is_a_refusal(tmp_path: Path, kind):
    command = TASK_TYPE_TO_COMMAND[kind]
    done = subprocess.run([workers.commands(tmp_path) / command, "--token", "x"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"a node does not run {command}" in done.stderr


def test_commands_are_written_anew_each_time(tmp_path: Path):
    folder = workers.commands(tmp_path)
    (folder / "flwr-clientapp").write_text("#!/bin/sh\nflwr-clientapp-of-the-server\n")
    workers.commands(tmp_path)
    assert "of-the-server" not in (folder / "flwr-clientapp").read_text()
    assert stat.S_IMODE((folder / "flwr-clientapp").stat().st_mode) & 0o022 == 0  # no one else may change it


def test_nothing_is_installed_and_nothing_is_told(tmp_path: Path):
    env = workers.environment(tmp_path)
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert Path(env["FLWR_HOME"]).is_relative_to(tmp_path)


# --- the worker ---------------------------------------------------------------------------------------------


def test_the_worker_loads_this_installations_app_and_not_the_servers(own_runtime, tmp_path: Path, monkeypatch):
    """The server's FAB is neither unpacked nor imported: what Flower's worker calls gives our app."""
    evil = tmp_path / "evil_app.py"
    evil.write_text("raise AssertionError('the server ran code here')")
    monkeypatch.syspath_prepend(tmp_path)
    pinned.worker()
    assert own_runtime == [True]
    assert runtime.install_from_fab(b"the server's code", skip_prompt=True) is None
    where = runtime.get_project_dir("evil/app", "1.0.0", "hash")
    assert not (Path(where) / "evil_app.py").exists()
    load = runtime.get_load_client_app_fn(default_app_ref="evil_app:app", app_path=str(tmp_path), multi_app=True)
    assert load("evil/app", "1.0.0", "hash") is app
    with pytest.raises(RuntimeError, match="installs nothing"):
        runtime.install_app_dependencies(tmp_path, launch_id="x", run_id=1, index_context={})


@pytest.mark.parametrize("name", REPLACED)
def test_the_worker_does_not_run_on_a_flower_it_does_not_know(own_runtime, name: str, monkeypatch):
    monkeypatch.delattr(runtime, name)
    with pytest.raises(SystemExit) as caught:
        pinned.worker()
    assert name in str(caught.value)
    assert own_runtime == []


def test_flowers_worker_uses_every_name_that_is_replaced():
    """A name that Flower's worker no longer calls would be replaced in vain."""
    used = runtime.run_clientapp.__code__.co_names
    assert set(REPLACED) <= set(used)
