"""A SuperLink and three nodes with TLS and node keys, as real processes on loopback: training, crashes, refusals.

Without noise a deployed job must end where the simulator ends, whatever was killed on the way; that is the check
behind most of this file. It is one test in three parts, because they share one federation.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fedsofim as fs
from commands import QUICKLY
from fedsofim.data.npz import save_npz

pytest.importorskip("flwr")

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy import certificate, processes
from fedsofim.deploy.account import Account
from fedsofim.deploy.address import Address
from fedsofim.deploy.checkpoint import CHECKPOINT, OUTCOME, PROGRESS, restore
from fedsofim.deploy.handout import Terms, hand_out, policy_text
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.registration import register

NAMES = ["node-1", "node-2", "node-3"]
REHEARSAL = Terms(epsilon=WITHOUT, smallest_multiplier=0, methods=("fedsofim", "scaffold", "fedgd"))
ROUNDS = 24
LIMIT = 500.0  # seconds for anything to happen; less than a job waits for an answer that was lost


@dataclass
class Deployed:
    """The processes of a federation, by name."""

    folder: Path
    where: Address
    split: fs.Split
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    jobs: int = 0

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def node(self, name: str) -> Path:
        return self.folder / "nodes" / name

    def start_link(self) -> None:
        command = processes.superlink_command(self.server, self.where)
        environment = processes.server_environment(self.server)
        self.running["link"] = processes.start(command, environment, self.folder / "link.log")
        processes.wait_for(lambda: processes.listening(self.where.port), LIMIT, "the SuperLink's start")

    def start_node(self, name: str) -> None:
        node = self.node(name)
        self.running[name] = processes.start(processes.node_start(node, self.where), os.environ, node / "node.log")

    def kill(self, name: str) -> None:
        """kill -9 of the process that an operator started: nothing gets a chance to tidy up."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def policies(self, terms: Terms, ledger: str) -> None:
        """Other policies, with ledgers of their own: as if for other records."""
        for name in NAMES:
            path = self.node(name) / "policy.toml"
            path.write_text(
                policy_text(name, terms).replace("ledger.db", ledger).replace("ledger.json", f"{ledger}.json")
            )
            read_policy(path).account.create()

    def ledger(self, name: str) -> Path:
        return read_policy(self.node(name) / "policy.toml").ledger

    def order(self, **config: Any) -> Path:
        """Submit a new job; its folder."""
        self.jobs += 1
        job = self.folder / f"job-{self.jobs}"
        self.submit(job, clients=3, patience=LIMIT, **config)
        return job

    def submit(self, job: Path, **config: Any) -> None:
        (job / OUTCOME).unlink(missing_ok=True)
        processes.submit(self.server, {"folder": str(job), **config})

    def outcome(self, job: Path) -> dict[str, Any]:
        processes.wait_for((job / OUTCOME).exists, LIMIT, f"the end of {job.name}")
        return json.loads((job / OUTCOME).read_text())

    def wait_round(self, job: Path, done: int) -> None:
        processes.wait_for(lambda: _facts(job / PROGRESS).get("round", 0) >= done, LIMIT, f"round {done}")

    def releases(self, name: str, job: str) -> int:
        account = Account(self.ledger(name))
        return sum(line.releases for of, line in account.entries() if of == job)


def _facts(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    for name, value in QUICKLY.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "f"
    where = Address(port=processes.free_port())
    hand_out(folder, NAMES, where, REHEARSAL)
    split = fs.split(fs.load("digits"), clients=3, alpha=0.5)
    for name, part in zip(NAMES, split.parts, strict=True):
        records = {"x": split.dataset.x_train[part], "y": split.dataset.y_train[part]}
        save_npz(folder / "nodes" / name / "records.npz", records)
        read_policy(folder / "nodes" / name / "policy.toml").account.create()
    found = Deployed(folder, where, split)
    try:
        found.start_link()
        register(found.server)
        for name in NAMES:
            found.start_node(name)
        yield found
    finally:
        for process in reversed(list(found.running.values())):
            processes.stop(process)
    processes.wait_for(lambda: not _processes_about(folder), LIMIT, "the end of every process")


def _processes_about(folder: Path) -> list[int]:
    """Processes whose command line or environment names the federation's folder; this one does not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in text:
            found.append(int(entry.name))
    return found


def _command(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def _is_node(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return any(part.startswith(b"fedsofim.deploy.flower.") for part in _command(pid))
    return False


def _simulated(deployed: Deployed, method: str, rounds: int, **settings: str) -> Any:
    return fs.train(deployed.split, fs.make(method, settings), fs.NO_PRIVACY, rounds=rounds, recipe="paper").params


def _agree(job: Path, expected: Any) -> None:
    found = restore(job / CHECKPOINT)
    assert found.finished
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected), strict=True):
        # nodes and the simulator clip a little differently (core/clipping.py GUARD)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-3)


def kills_lose_nothing(deployed: Deployed) -> None:
    """A node, the server process and the SuperLink are killed in turn; client memory and ledgers survive it.

    Rounds are quick: there are enough of them that each kill comes before the last.
    """
    order = {"recipe": "paper", "method": "scaffold", "settings": "local_steps=2"}
    job = deployed.order(**order, epsilon=WITHOUT, rounds=ROUNDS, attempts=4)
    deployed.wait_round(job, 1)
    _wait_until_asked(deployed, "node-2", job, round=1)
    deployed.kill("node-2")  # charged, perhaps not yet answered
    about = lambda: [p for p in _processes_about(deployed.node("node-2")) if _is_node(p)]  # noqa: E731
    processes.wait_for(lambda: not about(), LIMIT, "the end of the killed node's worker")
    deployed.start_node("node-2")
    deployed.wait_round(job, 2)

    os.kill(_server_process(deployed), signal.SIGKILL)
    assert not (job / OUTCOME).exists()
    reached = restore(job / CHECKPOINT).round
    deployed.submit(job, resume=True, patience=LIMIT)
    deployed.wait_round(job, reached + 1)

    deployed.kill("link")
    deployed.start_link()
    command = [sys.executable, "-m", "fedsofim", "serve", str(deployed.server), "--job", str(job), "--resume"]
    served = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert served.returncode == 0, served.stderr
    assert f"round {ROUNDS}/{ROUNDS}" in served.stdout
    assert deployed.outcome(job) == {"finished": ROUNDS}

    _agree(job, _simulated(deployed, "scaffold", ROUNDS, local_steps="2"))
    number = restore(job / CHECKPOINT).job.id
    for name in NAMES:
        assert deployed.releases(name, number) >= ROUNDS * 2, "a ledger is short"
    ledgers = [deployed.ledger(name) for name in NAMES]
    assert certificate.verify(certificate.read(job / "certificate.json"), ledgers) == []


def _wait_until_asked(deployed: Deployed, name: str, job: Path, round: int) -> None:
    """Until the node's ledger holds a charge for that round of the job."""
    number = restore(job / CHECKPOINT).job.id

    def asked() -> bool:
        with closing(sqlite3.connect(f"file:{deployed.ledger(name)}?mode=ro", uri=True)) as db, db:
            query = "SELECT COUNT(*) FROM asks WHERE job=? AND round=?"
            return db.execute(query, (number, round)).fetchone()[0] > 0

    processes.wait_for(asked, LIMIT, f"{name}'s charge for round {round + 1}")


def _server_process(deployed: Deployed) -> int:
    """The ServerApp's process."""
    for pid in _processes_about(deployed.folder):
        if any(part.endswith(b"flwr-serverapp") for part in _command(pid)):
            return pid
    raise AssertionError("no server process is running")


def every_node_refuses_what_its_policy_does_not_allow(deployed: Deployed) -> None:
    """The cap is the first job's; one more round and a larger clip are refused.

    The first is asked for straight away, as a malicious server would; the other as ours does, asking first.
    """
    terms = Terms(epsilon=2.0, smallest_multiplier=1.0, largest_clip=10.0, methods=("fedsofim",))
    deployed.policies(terms, "private.db")

    job = deployed.order(recipe="paper", method="fedsofim", epsilon=2.0, rounds=2)
    assert deployed.outcome(job) == {"finished": 2}
    before = {name: Account(deployed.ledger(name)).last() for name in NAMES}

    for config, reason in (
        ({"epsilon": 2.0, "rounds": 2, "method": "fedsofim", "ask-first": False}, "above the cap of 2"),
        ({"epsilon": 2.0, "rounds": 2, "clip": 11.0, "method": "fedsofim"}, "the largest allowed here is 10"),
    ):
        failed = deployed.outcome(deployed.order(recipe="paper", **config))["failed"]
        assert all(f"{name}: refused" in failed for name in NAMES), failed
        assert failed.count(reason) == 3, failed
    assert before == {name: Account(deployed.ledger(name)).last() for name in NAMES}


_ROGUE = """
import sys
if "fedsofim.deploy.flower.worker" in " ".join(sys.orig_argv):
    import numpy as np
    from fedsofim.deploy.flower import client_app
    honest = client_app.answer
    client_app.answer = lambda *a: {k: np.full_like(v, np.nan) for k, v in honest(*a).items()}
"""


def a_client_sending_nan_is_rejected_by_name(deployed: Deployed) -> None:
    deployed.policies(REHEARSAL, "rehearsal.db")
    rogue = deployed.folder / "rogue"
    rogue.mkdir()
    (rogue / "sitecustomize.py").write_text(_ROGUE)  # Python reads it at its start: its operator turned malicious
    deployed.kill("node-3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(rogue), os.environ.get("PYTHONPATH", "")]))
        deployed.start_node("node-3")

    job = deployed.order(recipe="paper", method="fedgd", epsilon=WITHOUT, rounds=1, attempts=1, **{"ask-first": False})
    failed = deployed.outcome(job)["failed"]
    assert "node-3: its upload0 holds NaN" in failed
    assert "node-1" not in failed and "node-2" not in failed
    assert restore(job / CHECKPOINT).round == 0  # nothing was averaged


_TAKEOVER = """
from pathlib import Path
from flwr.serverapp import ServerApp
Path({mark!r}).write_text("code of a hospital ran as the coordinator")
app = ServerApp()
@app.main()
def main(grid, context): ...
"""
_TAKEOVER_APP = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "takeover"
version = "1.0.0"
[tool.flwr.app]
publisher = "x"
[tool.flwr.app.components]
serverapp = "takeover:app"
clientapp = "takeover:app"
"""


def a_node_reaches_nothing_but_its_own_calls(deployed: Deployed) -> None:
    """From a hospital's position, with all that it was given: its key and the authority's certificate."""
    deployed.policies(REHEARSAL, "outside.db")
    node, mark, app = deployed.node("node-2"), deployed.folder / "ran", deployed.folder / "takeover"
    outside = deployed.folder / "outside"
    outside.mkdir()
    app.mkdir()
    (outside / "config.toml").write_text(
        f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{deployed.where}"\n'
        f'root-certificates = "{node / "ca.crt"}"\n'
    )
    (app / "takeover.py").write_text(_TAKEOVER.format(mark=str(mark)))
    (app / "pyproject.toml").write_text(_TAKEOVER_APP)
    for command in (["run", str(app), "x"], ["ls", "x"], ["supernode", "list", "x"]):
        said = processes.flwr([*command, "--format", "json"], {**os.environ, "FLWR_HOME": str(outside)})
        assert not said.get("success") and "403 Forbidden" in str(said), said
    _asks_nobody_in_the_coordinators_name(deployed)
    deployed.start_node("node-2")
    job = deployed.order(recipe="paper", method="fedgd", epsilon=WITHOUT, rounds=1)
    assert deployed.outcome(job) == {"finished": 1} and not mark.exists()


def _asks_nobody_in_the_coordinators_name(deployed: Deployed) -> None:
    """The SuperLink believes the sender that a message names; a node's messages to other nodes must not reach it."""
    import httpx
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    from fedsofim.deploy.flower.fleet import Fleet
    from fedsofim.deploy.flower.flower_api import (
        TaskIdentity,
        get_object_tree,
        http_client_of,
        message_to_proto,
        remove_content_from_message,
    )
    from fedsofim.deploy.flower.messages import query_message

    node = deployed.node("node-2")
    processes.stop(deployed.running.pop("node-2"))
    evil = Fleet.at(str(deployed.where), node / "ca.crt", node / "node.key")
    number = evil.enter(json.loads((node / "state" / "node.json").read_text())["node"])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_task_id", "_run_id", "_node_id"):
            patch.setattr(TaskIdentity, name, 1)
        message = query_message("hello", number)
    message.metadata.__dict__["_message_id"] = message.object_id
    head, tree = message_to_proto(remove_content_from_message(message)), get_object_tree(message)
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        evil.client.PushMessages(PushMessagesRequest(node=evil.node, messages_list=[head], message_object_trees=[tree]))
    evil.leave()
    http_client_of(evil.client).close()


@pytest.mark.slow
@pytest.mark.longest
def test_a_federation_of_real_processes(deployed: Deployed) -> None:
    kills_lose_nothing(deployed)
    every_node_refuses_what_its_policy_does_not_allow(deployed)
    a_node_reaches_nothing_but_its_own_calls(deployed)
    a_client_sending_nan_is_rejected_by_name(deployed)
