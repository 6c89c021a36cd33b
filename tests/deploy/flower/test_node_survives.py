"""What does not end a node: a policy that is being edited, a full disk, a worker that cannot be started."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fake_grid import FakeClock
from fedsofim.deploy.flower import node_loop
from fedsofim.deploy.flower.edge import Head
from fedsofim.deploy.flower.fleet import Letter
from fedsofim.deploy.flower.node_loop import NodeLoop, Worker
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.processes import free_port, wait_for

HEAD = Head(run=1, message="0" * 64, sender=1, group="", kind="query", created=0.0, ttl=1.0)


class Looks:
    """A connection on which nothing comes."""

    node = public_key = None

    def __init__(self) -> None:
        self.looks = 0
        self.loop: Any = None

    def fetch(self, most: int) -> None:
        self.looks += 1
        self.loop.stopping = True

    def leave(self) -> None: ...


def test_a_policy_that_is_broken_for_a_moment_is_told_and_then_holds_again(
    nodes: list[Policy], tmp_path: Path, capsys, monkeypatch
):
    path = nodes[0].data.parent / "policy.toml"
    right, fleet = path.read_text(), Looks()
    loop = NodeLoop(fleet, path, tmp_path, "h:1")  # type: ignore[arg-type]
    fleet.loop = loop
    pauses: list[float] = []

    def mend(seconds: float) -> None:
        pauses.append(seconds)
        path.write_text(right if len(pauses) >= 2 else "[node]\nname = ")

    monkeypatch.setattr(loop, "_enter", lambda: path.write_text("[node]\nname = ") and setattr(fleet, "node", 5))
    monkeypatch.setattr(loop, "_beat", lambda: None)
    monkeypatch.setattr(loop, "_pause", mend)
    loop.run()
    assert fleet.looks == 1 and pauses[:2] == [node_loop._AGAIN] * 2
    assert capsys.readouterr().out.count("nothing is answered until that is mended") == 1


def test_a_full_disk_does_not_end_a_node_that_enters_or_has_something_to_tell(
    nodes: list[Policy], tmp_path: Path, monkeypatch
):
    def full(*a: Any, **k: Any) -> None:
        raise OSError(28, "No space left on device")

    fleet = Looks()
    fleet.loop = loop = NodeLoop(fleet, nodes[0].data.parent / "policy.toml", tmp_path, "h:1")  # type: ignore[arg-type]
    monkeypatch.setattr(fleet, "public_key", b"key")
    monkeypatch.setattr(fleet, "enter", lambda last: setattr(fleet, "node", 5) or 5, raising=False)
    monkeypatch.setattr(node_loop, "write_text", full)
    monkeypatch.setattr("builtins.print", full)
    loop.run()
    assert fleet.looks == 1 and loop.trouble == "connected to h:1"


def test_a_worker_that_cannot_be_started_is_an_answer_in_words(monkeypatch):
    def none(*a: Any, **k: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("subprocess.Popen", none)
    with pytest.raises(ChildProcessError, match="Cannot allocate memory"):
        Worker({}).ask(Letter(HEAD, {}), 1, 5.0, 10**6, lambda: None)


def test_a_node_looks_first_when_most_of_the_usual_time_has_passed(nodes: list[Policy], tmp_path: Path, monkeypatch):
    """Each look is work for the SuperLink; the first ones after an answer would find nothing."""
    clock, fleet, looks = FakeClock(), Looks(), list[float]()
    monkeypatch.setattr(node_loop, "time", clock)
    fleet.loop = loop = NodeLoop(fleet, nodes[0].data.parent / "policy.toml", tmp_path, "h:1")  # type: ignore[arg-type]
    fleet.node = 5  # type: ignore[assignment]
    loop.gaps.extend([1.0, 3.0])  # the shorter one counts: a question within a round follows sooner than a round

    def look(most: int) -> None:
        looks.append(round(clock.now, 2))
        loop.stopping = len(looks) == 4

    monkeypatch.setattr(fleet, "fetch", look)
    monkeypatch.setattr(loop, "_beat", lambda: None)
    loop.run()
    assert looks == [0.0, 0.6, 0.66, 0.73]


def running_in(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        found += [line.replace(b"\0", b" ").decode()] if str(folder).encode() in line else []
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_kill_9_of_the_command_leaves_nothing_running(nodes: list[Policy], tmp_path: Path):
    """The command itself, as an operator types it: it had been a parent of three, which went on answering."""
    policy, work = nodes[0].data.parent / "policy.toml", tmp_path / "work"
    where = ["--superlink", f"127.0.0.1:{free_port()}", "--insecure"]  # nobody is there, and the node waits for them
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen(
            [sys.executable, "-m", "fedsofim", "node", "--policy", str(policy), *where, "--work", str(work)],
            stdout=log, stderr=log,
        )  # fmt: skip
    wait_for(lambda: "cannot be reached" in (tmp_path / "log").read_text() or node.poll() is not None, 60, "its start")
    assert len(running_in(work)) == 1, (tmp_path / "log").read_text()
    node.kill()
    node.wait()
    assert running_in(work) == []
