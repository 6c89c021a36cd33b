"""`fedsofim node`, when policy and data have been checked: fetch a message, have it answered, send the answer.

Flower's SuperNode sleeps 3 s whenever it finds no message, looks for its answer every 0.5 s and starts three processes;
and it fetches and runs code that the server sends. This does none of that: it looks for messages the more often the
shorter ago the last one came, and has them answered by one process of this installation (worker.py), which is kept
while messages come. One message is worked on at a time, in the order they came, which post.py relies on.

Every wait has an end: a worker that does not answer in the time that the policy gives it is ended, a SuperLink that is
away is tried again and said so. Killed, it takes its worker with it; started again, it takes its own place at once.
"""

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsofim.deploy.flower.edge import words
from fedsofim.deploy.flower.fleet import (
    HEARTBEAT,
    Answer,
    Fleet,
    Gone,
    Letter,
    NotAdmittedError,
    Unreachable,
    UnreadableError,
)
from fedsofim.deploy.flower.pipe import exchanged
from fedsofim.deploy.flower.worker import failed
from fedsofim.deploy.holding import sweep
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.stopping import SAID, stopped_since
from fedsofim.errors import InputError
from fedsofim.files import write_text

_QUICK, _IDLE = 0.05, 1.0  # seconds between looks for a message, at least and at most
_RHYTHM = 0.6  # of the shortest of the last gaps between an answer and the next question: before that nobody looks
_WAKES = 0.1  # seconds after which a node that was told to stop notices, at most
_SHARE = 0.1  # of the time since the last message that passes between looks: a node is late by no more than that
_LATELY = 60.0  # seconds after a message in which the next one is expected; then the worker is let go
_AGAIN = 1.0  # seconds before a SuperLink that is away is tried again
_GRACE = 10  # seconds after which a node that was told to stop leaves whatever call it is in


class Stopping(BaseException):
    """The node was told to stop while something was under way. No failure of that, so no Exception."""


class Worker:
    """The process that answers, started when it is needed."""

    def __init__(self, config: dict[str, str]) -> None:
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, letter: Letter, node: int, seconds: float, most: int, meanwhile: Callable[[], None]) -> Answer:
        """The answer to a letter.

        Args:
            letter: The message.
            node: This node's number.
            seconds: The time there is for it.
            most: Bytes of arrays in the message, at most.
            meanwhile: Called ten times a second; what it raises ends the worker.

        Raises:
            ChildProcessError: If there is no answer in time.
        """
        end = time.monotonic() + seconds
        try:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            facts = {"head": list(letter.head), "node": node, "most": most}
            found = exchanged(process.stdin, process.stdout, facts, letter.contents, end, meanwhile)
            if found is None:
                raise ChildProcessError("the process that worked on it was ended")
            head, tree = found[1].pop("head"), found[1].pop("tree")
            return Answer(head, tree, found[1])
        except TimeoutError as error:
            self.stop()
            why = f"it took more than {seconds:g} s, the most that this node's policy allows"
            raise ChildProcessError(why) from error
        except ChildProcessError:
            self.stop()
            raise
        except Exception as error:  # whatever came is no answer
            self.stop()
            raise ChildProcessError(str(error) or type(error).__name__) from error
        except BaseException:
            self.stop()  # whose answer would be taken for that to the next letter
            raise

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "fedsofim.deploy.flower.worker", json.dumps(self.config), str(os.getpid())]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self.process

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


class NodeLoop:
    """One node's connection and worker, and what it told its operator last."""

    def __init__(self, fleet: Fleet, policy: Path, work: Path, where: str, key: Path | None = None) -> None:
        self.fleet, self.policy, self.work, self.where = fleet, policy, work, where
        fleet.pause = self._wait
        config = {"policy": str(policy), "instance": uuid.uuid4().hex, "key": str(key or ""), "superlink": where}
        self.worker = Worker(config)
        self.stopping = False
        self.trouble = ""  # what was told last
        self.failing = False
        self.beaten = 0.0
        self.asked = time.monotonic()
        self.gaps = deque[float](maxlen=4)  # seconds from the last answers to the questions after them

    def run(self) -> None:
        """Until told to stop."""
        sweep(read_policy(self.policy).ledger)
        try:
            while not self.stopping:
                self._once()
        except Stopping:
            pass
        finally:
            self.worker.stop()
        with contextlib.suppress(InputError):
            sweep(read_policy(self.policy).ledger)
        with contextlib.suppress(Unreachable, Gone, Stopping):
            self.fleet.leave()

    def _once(self) -> None:
        try:
            if self.fleet.node is None:
                self._enter()
            self._beat()
            self._turn()
            self._well()
        except NotAdmittedError as error:
            self._fail(f"{self.where} does not admit this node: {error}; trying again")
            self._pause(_AGAIN)
        except (Unreachable, Gone) as error:
            self._fail(f"the SuperLink at {self.where} cannot be reached ({error}); trying again")
            self._pause(_AGAIN)
        except UnreadableError as error:
            self._rejected(str(error))
            self._pause(_AGAIN)
        except InputError as error:  # of a policy that is being edited: it holds again from when it is right
            self._fail(f"{error}; nothing is answered until that is mended")
            self._pause(_AGAIN)

    def _enter(self) -> None:
        place = self.work / "node.json"
        number = self.fleet.enter(_last(place, self.fleet.public_key))
        with contextlib.suppress(OSError):  # a full disk: after a kill it would only be back a little later
            write_text(place, json.dumps({"node": number, "key": self.fleet.public_key.hex()}))
        self.beaten = time.monotonic()
        self._tell(f"connected to {self.where}")

    def _beat(self) -> None:
        if time.monotonic() > self.beaten + HEARTBEAT / 2:
            self.beaten = time.monotonic()
            if not self.fleet.beat():
                self.fleet.node = None
                raise Gone("it does not count this node among its own")

    def _meanwhile(self) -> None:
        """While a worker works: a SuperLink that is away now may be back when there is an answer."""
        if self.stopping:
            raise Stopping
        with contextlib.suppress(Unreachable, Gone):
            self._beat()

    def _wait(self, seconds: float) -> None:
        """While a part of a message is waited for."""
        self._meanwhile()
        self._pause(seconds)

    def _turn(self) -> None:
        """One message, if there is one."""
        policy = read_policy(self.policy)
        work, answers = policy.work, stopped_since(policy.ledger) is None
        most = work.message_mb * 1_000_000 + 2_000_000
        letter = self.fleet.fetch(most)
        if letter is None:
            if time.monotonic() - self.asked > _LATELY:
                self.worker.stop()
            self._pause(self._until_next())
            return
        self.gaps.append(time.monotonic() - self.asked)
        refusal = failed(letter.head, self._number, SAID)
        self._send(self._answer(letter, work.seconds, most), refusal, policy.ledger if answers else None)
        self.asked = time.monotonic()
        self.fleet.confirm()
        self._pause(self._until_next())

    def _until_next(self) -> float:
        """Seconds until the next look: rounds have a rhythm, and a look too early takes the SuperLink's time."""
        since = time.monotonic() - self.asked
        return min(_IDLE, max(_QUICK, _SHARE * since, _RHYTHM * min(self.gaps, default=0.0) - since))

    @property
    def _number(self) -> int:
        return self.fleet.node.node_id if self.fleet.node is not None else 0

    def _answer(self, letter: Letter, seconds: float, most: int) -> Answer:
        if letter.trouble:
            self._rejected(f"a message of run {letter.head.run}: {letter.trouble}")
            return failed(letter.head, self._number, letter.trouble)
        try:
            return self.worker.ask(letter, self._number, seconds, most, self._meanwhile)
        except ChildProcessError as error:
            self._rejected(f"a message of run {letter.head.run} was not answered: {error}")
            return failed(letter.head, self._number, str(error))

    def _send(self, answer: Answer, refusal: Answer, ledger: Path | None) -> None:
        """The answer, tried again while the SuperLink is away; one that nobody wants any more is dropped.

        If the operator stops the node of this ledger meanwhile, the refusal is sent in its place.
        """
        while not self.stopping:
            if ledger is not None and stopped_since(ledger) is not None:
                answer = refusal
            try:
                self.fleet.send(answer)
            except Unreachable as error:
                self._fail(f"an answer could not be sent to {self.where} ({error}); trying again")
                self._pause(_AGAIN)
                continue
            except Gone as error:
                _print(f"an answer was not wanted any more ({error})")
            return

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < end:
            time.sleep(max(0.0, min(_WAKES, end - time.monotonic())))

    def _tell(self, text: str) -> None:
        """For the operator, once."""
        if text != self.trouble:
            _print(text)
        self.trouble = text

    def _fail(self, text: str) -> None:
        """Something keeps the node from its work, until `_well`."""
        self._tell(text)
        self.failing = True

    def _well(self) -> None:
        """The node works again."""
        if self.failing:
            self.failing = False
            self._tell(f"connected to {self.where} again, since {_now()}")

    def _rejected(self, text: str) -> None:
        """For the operator, each time."""
        _print(f"rejected: {words(text, 500)}")


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # a log on a full disk is no reason to end
        print(f"{_now()} {text}", flush=True)


def _last(place: Path, key: bytes) -> int | None:
    """The number under which this key was active last; it may still be, if the node was killed."""
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        return int(found["node"]) if found["key"] == key.hex() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _alone(work: Path) -> Iterator[None]:
    """One node in a folder: two would take each other's messages."""
    with (work / "running").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{work}: a node runs in this folder already; stop it first") from None
        yield


def _page(loop: NodeLoop, port: int) -> contextlib.AbstractContextManager[None]:
    """The operator's page, in this process: it ends with it. Its address is in the node's own folder too."""
    from fedsofim.deploy.pages.loopback import Page, announced  # for those who want one only
    from fedsofim.deploy.pages.operators import Operators

    watched = Operators(loop.policy, lambda: loop.trouble)
    page = Page(kind="node", view=watched.view, acts={"stop": watched.stop, "resume": watched.resume})
    return announced(page, port, place=loop.work / "page")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    for name in ("policy", "superlink", "root-certificates", "key", "work", "page"):
        parser.add_argument(f"--{name}")
    given: Any = parser.parse_args(arguments)
    work = Path(given.work)
    files = [Path(p) if p else None for p in (given.root_certificates, given.key)]
    name = "the node"
    try:
        policy: Policy = read_policy(given.policy)
        name = policy.name
        with _alone(work):
            loop = NodeLoop(Fleet.at(given.superlink, *files), Path(given.policy), work, given.superlink, files[1])

            def stop(number: int, frame: object) -> None:
                loop.stopping = True
                signal.setitimer(signal.ITIMER_REAL, _GRACE, _GRACE)

            def leave(number: int, frame: object) -> None:
                raise Stopping

            signal.signal(signal.SIGALRM, leave)

            for kind in (signal.SIGTERM, signal.SIGINT):
                signal.signal(kind, stop)
            with contextlib.nullcontext() if given.page is None else _page(loop, int(given.page)):
                loop.run()
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Stopping:
        pass
    except InputError as error:
        sys.exit(f"error: {error}")
    print(f"{name}: stopped", flush=True)


if __name__ == "__main__":
    main()
