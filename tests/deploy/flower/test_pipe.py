"""A node and its worker: every wait has an end, heartbeats go on, and a node that is told to stop stops."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fedsofim.deploy.flower import node_loop
from fedsofim.deploy.flower.edge import Head
from fedsofim.deploy.flower.fleet import Letter
from fedsofim.deploy.flower.node_loop import NodeLoop, Stopping, Worker
from fedsofim.deploy.policy import Policy

HEAD = Head(run=1, message="0" * 64, sender=1, group="", kind="query", created=0.0, ttl=1.0)
ENDLESS = "import time; time.sleep(600)"


class Saying(Worker):
    """A worker that runs some Python in the place of ours."""

    def __init__(self, code: str) -> None:
        super().__init__({})
        self.code = code

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            command = [sys.executable, "-c", self.code]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self.process


def says(text: str) -> str:
    wait = "sys.stdout.flush(); time.sleep(600)"
    return f"import sys, time; sys.stdin.buffer.readline(); sys.stdout.write({text!r}); {wait}"


@pytest.mark.parametrize("code, size", [
    (ENDLESS, 60_000), (ENDLESS, 1_000_000), (says("{"), 10), (says('{"facts": {}, "parts": {"head": 9}}\n1'), 10),
], ids=["a small letter is not read", "a large letter is not read", "half a line", "half a part"])  # fmt: skip
def test_a_worker_that_hangs_anywhere_is_ended_and_heartbeats_go_on_meanwhile(code: str, size: int):
    worker, beats = Saying(code), list[int]()
    with pytest.raises(ChildProcessError, match="more than 1 s"):
        worker.ask(Letter(HEAD, {"p": bytes(size)}), 1, 1.0, 10**7, lambda: beats.append(1))
    assert len(beats) > 2 and worker.process is None


@pytest.mark.parametrize(
    "text", ["x\n", "[]\n", '{"facts": {}, "parts": {}}\n', '{"facts": {}, "parts": {"head": "x"}}\n', '{"parts": 3}\n']
)
def test_an_answer_that_is_none_is_an_error_in_words(text: str):
    worker = Saying(says(text))
    with pytest.raises(ChildProcessError):
        worker.ask(Letter(HEAD, {"p": b"1"}), 1, 600.0, 10**7, lambda: None)
    assert worker.process is None


class Busy:
    """A connection with one letter."""

    node: Any = type("Node", (), {"node_id": 5})()
    public_key = b""
    left = False

    def beat(self) -> bool:
        return True

    def fetch(self, most: int) -> Letter:
        return Letter(HEAD, {"p": b"1"})

    def confirm(self) -> None: ...

    def leave(self) -> None:
        self.left = True


def test_a_node_that_is_told_to_stop_does_not_wait_for_its_worker(nodes: list[Policy], tmp_path: Path, monkeypatch):
    fleet = Busy()
    loop = NodeLoop(fleet, nodes[0].data.parent / "policy.toml", tmp_path, "h:1")  # type: ignore[arg-type]
    loop.worker = Saying(ENDLESS)
    monkeypatch.setattr(loop, "_beat", lambda: setattr(loop, "stopping", loop.worker.process is not None))
    loop.run()  # the policy allows the worker 600 s
    assert fleet.left and loop.worker.process is None


def test_a_part_that_is_waited_for_does_not_keep_a_node_that_is_told_to_stop(nodes: list[Policy], tmp_path: Path):
    fleet = Busy()
    loop = NodeLoop(fleet, nodes[0].data.parent / "policy.toml", tmp_path, "h:1")  # type: ignore[arg-type]
    loop.stopping = True
    with pytest.raises(Stopping):
        fleet.pause(600.0)  # type: ignore[attr-defined]
    assert not issubclass(Stopping, Exception), "or a call would take it for its own failure"
    assert node_loop._GRACE < 60, "systemd waits for 90 s"
