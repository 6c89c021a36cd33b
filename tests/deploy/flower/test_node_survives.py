"""What does not end a node: a policy that is being edited, a full disk, a worker that cannot be started."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from fake_grid import FakeClock
from fedsofim.deploy.flower import node_loop
from fedsofim.deploy.flower.fleet import Letter
from fedsofim.deploy.flower.node_loop import NodeLoop, Worker
from fedsofim.deploy.policy import Policy


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
        Worker({}).ask(Letter(None, "x", {}), 1, 5.0, lambda: None)  # type: ignore[arg-type]


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
