"""A node's own loop on Flower's Fleet API: never a server's code, at once back in its place, every wait with an end."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

import httpx
import numpy as np
from flwr.app.message import Message
from flwr.proto.message_pb2 import Message as Proto
from flwr.proto.message_pb2 import ObjectTree

from fake_grid import FakeClock, delivered
from fedsofim.deploy.flower import fleet as fleet_module
from fedsofim.deploy.flower import node_loop
from fedsofim.deploy.flower.arrivals import _read
from fedsofim.deploy.flower.edge import MOST, head_of, tree_of
from fedsofim.deploy.flower.fleet import Fleet, Gone, Letter, NotAdmittedError, Unreachable, private_key
from fedsofim.deploy.flower.messages import ask_message, query_message
from fedsofim.deploy.flower.node_loop import NodeLoop, Worker
from fedsofim.deploy.flower.worker import answered, get, packed, put
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from nodes import asked, charges


def letter_of(message: Message) -> Letter:
    """A message as a node fetches it."""
    sent = packed(delivered(message))
    return Letter(head_of(Proto.FromString(sent.head), ObjectTree.FromString(sent.tree).object_id), sent.contents)


def reply_in(answer: Any) -> Any:
    """The reply in an answer, as a server opens it."""
    return _read(tree_of(ObjectTree.FromString(answer.tree)).top, answer.contents, MOST)


def policy_file(policy: Policy) -> Path:
    return policy.data.parent / "policy.toml"


# --- what a worker says -------------------------------------------------------------------------------------


def test_a_message_is_answered_by_this_installations_app(nodes: list[Policy]):
    letter = letter_of(ask_message(asked(nodes), 7))
    config = {"policy": str(policy_file(nodes[0])), "instance": "i"}
    reply = reply_in(answered(letter.head, letter.contents, 7, MOST, config))
    assert reply.facts["node"] == "n0"
    assert reply.arrays["upload0"].shape == (4, 3)
    assert charges(nodes[0]) == 1


def test_frames_come_out_as_they_went_in():
    file = io.BytesIO()
    put(file, {"top": "x", "node": 3}, {"a": b"12\n3", "b": b""})
    put(file, {}, {})
    file.seek(0)
    assert get(file) == ({"top": "x", "node": 3}, {"a": b"12\n3", "b": b""})
    assert get(file) == ({}, {})
    assert get(file) is None
    assert get(io.BytesIO(b'{"facts": {}, "parts": {"a": 9}}\n123')) is None  # cut short by a kill


# --- the connection -----------------------------------------------------------------------------------------


class Calls:
    """A SuperLink's side: each call is noted; what is listed in `refuse` is turned away, once for each listing."""

    def __init__(self, refuse: dict[str, list[int]] | None = None) -> None:
        self.made: list[str] = []
        self.refuse = refuse or {}

    def __getattr__(self, name: str) -> Any:
        if name in ("GetFab", "GetRun"):
            raise AssertionError("a node asked for a server's code")

        def call(request: Any) -> Any:
            self.made.append(name)
            if self.refuse.get(name):
                status = self.refuse[name].pop(0)
                if status == 0:
                    raise httpx.ConnectError("connection refused")
                answer = httpx.Response(status, text="no", request=httpx.Request("POST", "https://x"))
                raise httpx.HTTPStatusError("no", request=answer.request, response=answer)
            return SimpleNamespace(node_id=5, success=True, messages_list=[])

        return call


def connection(calls: Any, registers: bool = False) -> Fleet:
    return Fleet(calls, b"key", registers=registers)


def test_a_node_that_was_killed_takes_its_own_place_at_once():
    calls = Calls({"ActivateNode": [400]})
    assert connection(calls).enter(last=5) == 5
    assert calls.made == ["ActivateNode", "DeactivateNode", "ActivateNode"]


def test_a_node_that_was_never_here_does_not_push_anybody_out():
    calls = Calls({"ActivateNode": [400]})
    with pytest.raises(NotAdmittedError, match="next `fedsofim serve` makes this node's key known"):
        connection(calls).enter(last=None)
    assert calls.made == ["ActivateNode"]


def test_every_failure_is_told_in_words():
    with pytest.raises(Unreachable, match="does not know this node's key yet"):
        connection(Calls({"ActivateNode": [401]})).enter(None)
    with pytest.raises(Unreachable, match="connection refused"):
        connection(Calls({"ActivateNode": [0]})).enter(None)
    with pytest.raises(Unreachable):
        connection(Calls({"SendNodeHeartbeat": [503]})).beat()


def test_a_part_of_a_message_that_is_late_is_waited_for(monkeypatch):
    monkeypatch.setattr(fleet_module, "_WAITS", (0.0, 0.0, 0.0))
    found = iter([(True, False, b""), (True, True, b"here")])

    class Late(Calls):
        def PullObject(self, request: Any) -> Any:
            there, whole, content = next(found)
            return SimpleNamespace(object_found=there, object_available=whole, object_content=content)

    assert connection(Late())._part(1, "x") == b"here"
    found = iter([(True, False, b"")] * 3)
    with pytest.raises(Gone, match="did not come"):
        connection(Late())._part(1, "x")


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN OPENSSH PRIVATE KEY-----\nx"])
def test_what_is_no_key_is_an_error_in_words(tmp_path: Path, content: bytes):
    (tmp_path / "node.key").write_bytes(content)
    with pytest.raises(InputError, match=r"node\.key: not a node key"):
        private_key(tmp_path / "node.key")
    with pytest.raises(InputError, match="cannot be read"):
        private_key(tmp_path / "none.key")


# --- the loop -----------------------------------------------------------------------------------------------


class OneLetter(Fleet):
    """A connection on which some letters come, then the node is told to stop."""

    def __init__(self, letters: list[Any]) -> None:
        super().__init__(Calls(), b"key", registers=False)  # type: ignore[arg-type]
        self.letters, self.sent, self.left = letters, [], False
        self.loop: NodeLoop | None = None

    def fetch(self, most: int) -> Letter | None:
        if not self.letters:
            assert self.loop is not None
            self.loop.stopping = True
            return None
        letter = self.letters.pop(0)
        if isinstance(letter, Exception):
            raise letter
        large = sum(map(len, letter.contents.values())) > most
        return letter._replace(contents={}, trouble="larger than this node's policy allows") if large else letter

    def send(self, answer: Any) -> None:
        self.sent.append(answer)

    def leave(self) -> None:
        self.left = True


class InProcess(Worker):
    """A worker without a process."""

    def ask(self, letter: Letter, node: int, seconds: float, most: int, meanwhile: Any) -> Any:
        return answered(letter.head, letter.contents, node, most, self.config)


def looped(policy: Policy, letters: list[Any], work: Path, worker: type[Worker] = InProcess) -> OneLetter:
    connection = OneLetter(letters)
    loop = NodeLoop(connection, policy_file(policy), work, "h:1")
    connection.loop, loop.worker = loop, worker(loop.worker.config)
    loop.run()
    return connection


def test_messages_are_answered_in_their_order_and_the_place_is_left(nodes: list[Policy], tmp_path: Path):
    letters = [letter_of(query_message("hello", 5)), letter_of(ask_message(asked(nodes), 5))]
    found = looped(nodes[0], letters, tmp_path)
    facts = [reply_in(answer).facts for answer in found.sent]
    assert [f["node"] for f in facts] == ["n0", "n0"]
    assert facts[0]["size"] == 7
    assert facts[0]["instance"]
    assert found.left
    assert json.loads((tmp_path / "node.json").read_text())["node"] == 5


def test_a_superlink_that_is_away_is_tried_again_and_said_so_once(
    nodes: list[Policy], tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setattr(node_loop, "_AGAIN", 0.0)
    letters = [Unreachable("gone"), Unreachable("gone"), letter_of(query_message("hello", 5))]
    found = looped(nodes[0], letters, tmp_path)
    assert len(found.sent) == 1
    said = capsys.readouterr().out
    assert said.count("cannot be reached (gone)") == 1
    assert "connected to h:1 again, since 20" in said


def test_a_page_does_not_go_on_saying_what_is_over(nodes: list[Policy], tmp_path: Path, monkeypatch):
    monkeypatch.setattr(node_loop, "_AGAIN", 0.0)
    found = looped(nodes[0], [Unreachable("gone"), letter_of(query_message("hello", 5))], tmp_path)
    assert found.loop is not None
    assert "again, since" in found.loop.trouble and "cannot be reached" not in found.loop.trouble


def test_every_line_of_the_log_has_its_time(nodes: list[Policy], tmp_path: Path, capsys):
    looped(nodes[0], [letter_of(query_message("hello", 5))], tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)


def test_a_node_that_is_not_known_yet_is_not_told_that_nobody_answers(
    nodes: list[Policy], tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setattr(node_loop, "_AGAIN", 0.0)
    looped(nodes[0], [NotAdmittedError("unknown key"), letter_of(query_message("hello", 5))], tmp_path)
    said = capsys.readouterr().out
    assert "h:1 does not admit this node: unknown key" in said and "cannot be reached" not in said


def test_a_node_looks_the_less_often_the_longer_nothing_came(nodes: list[Policy], tmp_path: Path, monkeypatch):
    clock, looks = FakeClock(), []
    monkeypatch.setattr(node_loop, "time", clock)
    connection = OneLetter([])
    connection.loop = loop = NodeLoop(connection, policy_file(nodes[0]), tmp_path, "h:1")
    monkeypatch.setattr(
        connection, "fetch", lambda most: looks.append(clock.now) or setattr(loop, "stopping", clock.now > 99)
    )
    loop.run()
    assert (gaps := np.diff(looks))[0] < 0.11 and 0.9 < gaps[-1] < 1.2
    assert all(gap < 0.11 + 0.11 * at for gap, at in zip(gaps, looks[1:], strict=True))  # late by a tenth


def test_a_message_that_is_too_large_is_answered_with_an_error(nodes: list[Policy], tmp_path: Path):
    path = policy_file(nodes[0])
    path.write_text(path.read_text() + "\n[work]\nmessage_mb = 1\n")
    big = letter_of(ask_message(asked(nodes), 5))
    big.contents["more"] = bytes(4_000_000)
    (answer,) = looped(nodes[0], [big], tmp_path).sent
    assert "larger than this node's policy allows" in reply_in(answer).error


class Dying(Worker):
    """A worker that ends at its first letter, or never answers."""

    how = "import sys; sys.stdin.readline()"

    def _running(self) -> Any:
        if self.process is None:
            command = [sys.executable, "-c", self.how]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self.process


class Hanging(Dying):
    how = "import time; time.sleep(600)"


def test_a_worker_that_ends_is_told_as_an_error_and_another_takes_its_place(nodes: list[Policy], tmp_path: Path):
    letters = [letter_of(query_message("hello", 5)) for _ in range(2)]
    found = looped(nodes[0], letters, tmp_path, Dying)
    assert ["the node could not answer" in reply_in(answer).error for answer in found.sent] == [True, True]


def test_a_worker_that_hangs_is_ended_when_the_policys_time_is_up(nodes: list[Policy], tmp_path: Path):
    path = policy_file(nodes[0])
    path.write_text(path.read_text() + "\n[work]\nseconds = 1\n")
    (answer,) = looped(nodes[0], [letter_of(query_message("hello", 5))], tmp_path, Hanging).sent
    assert "more than 1 s" in reply_in(answer).error


def test_two_nodes_in_one_folder_are_an_error(tmp_path: Path):
    with node_loop._alone(tmp_path):
        second = node_loop._alone(tmp_path)
        with pytest.raises(InputError, match="a node runs in this folder already"):
            second.__enter__()


PARENT = textwrap.dedent("""
    import subprocess, sys, os, time
    child = subprocess.Popen([sys.executable, "-c", "import os, sys, time; "
        "from fedsofim.deploy.flower.worker import die_with; die_with(int(sys.argv[1])); "
        "print(os.getpid(), flush=True); time.sleep(600)", str(os.getpid())])
    child.wait()
""")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker ends when no letter comes any more")
def test_a_worker_ends_when_its_node_is_killed_outright():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while (
            Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split(")")[-1][:3]
        ):
            assert time.monotonic() < end, "the worker lives on"
            time.sleep(0.05)
