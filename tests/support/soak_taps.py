"""What leaves a node and what a coordinator takes in, noted line by line; and messages that get lost or come twice.

Used from outside of what is judged: wrapped around a ClientApp, a Fleet and a Post, in a process of a soak
(scripts/soaking/hooks) or in a test. A line is one `write`, so that a process killed after it has told of it.
"""

import contextlib
import hashlib
import json
import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from soak_invariants import Upload


class Taps:
    """Notes of one process in a folder, and how likely a message is to get lost or to come twice there."""

    def __init__(self, folder: Path, dice: random.Random | None = None) -> None:
        self.folder, self.dice = folder, dice or random.SystemRandom()

    def note(self, kind: str, upload: Upload) -> None:
        self._write({"kind": kind, **upload._asdict()})

    def strikes(self, what: str) -> bool:
        """Does this misfortune happen now? As likely as `faults.json` says at the moment."""
        try:
            chance = json.loads((self.folder / "faults.json").read_text()).get(what, 0.0)
        except (OSError, ValueError):
            chance = 0.0
        if self.dice.random() >= chance:
            return False
        self._write({"kind": what})
        return True

    def _write(self, facts: dict[str, Any]) -> None:
        with _room():
            file = os.open(self.folder / f"{os.getpid()}.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                os.write(file, json.dumps(facts).encode() + b"\n")
            finally:
                os.close(file)


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Notes are taken also while the process has a full disk (scripts/soaking/faults.py)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def noted(folder: Path) -> Iterator[dict[str, Any]]:
    """All lines of all processes."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())


def uploads_of(lines: list[dict[str, Any]], kind: str) -> list[Upload]:
    return [Upload(**{k: line[k] for k in Upload._fields}) for line in lines if line["kind"] == kind]


def _upload(node: str, question: Any, reply: Any) -> Upload | None:
    """The upload in a reply to a question, if there is one."""
    from fedsofim.deploy.flower.messages import ASK, request_of, what_of

    if what_of(question) != ASK or not reply.arrays:
        return None
    return _noted(node, request_of(question), reply.arrays)


def _noted(node: str, request: Any, arrays: Any) -> Upload:
    from fedsofim.deploy.packing import to_bytes

    answer = hashlib.sha256(to_bytes(arrays)).hexdigest()
    return Upload(node, request.job.id, str(request.phase), request.round, request.digest(), answer)


def tapped_respond(taps: Taps, respond: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """What a node's worker answers, whose uploads are noted before they are handed on."""
    from fedsofim.deploy.flower.messages import request_in

    def call(incoming: Any, config: Any) -> Any:
        facts, arrays = respond(incoming, config)
        if incoming.kind == "train" and arrays:
            taps.note("left", _noted(str(facts.get("node")), request_in(incoming.opened), arrays))
        return facts, arrays

    return call


def tapped_app(taps: Taps, app: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A ClientApp whose uploads are noted before they are handed on."""
    from fedsofim.deploy.flower.messages import opened

    def call(message: Any, context: Any) -> Any:
        reply = app(message, context)
        found = opened(reply)
        if (upload := _upload(str(found.facts.get("node")), message, found)) is not None:
            taps.note("left", upload)
        return reply

    return call


def tap_post(taps: Taps, kind: Any) -> None:
    """A Post that notes what it takes in, loses answers, and asks twice."""
    from fedsofim.deploy.flower.messages import again

    exchange, push, pull = kind.exchange, kind._push, kind._pull

    def exchanged(self: Any, messages: Any, *how: Any, **more: Any) -> Any:
        questions = {m.metadata.dst_node_id: m for m in messages}
        replies = exchange(self, messages, *how, **more)
        for node, reply in replies.items():
            if (upload := _upload(str(reply.facts.get("node")), questions[node], reply)) is not None:
                taps.note("received", upload)
        return replies

    def pushed(self: Any, messages: Any) -> Any:
        twice = [again(m) for m in messages if taps.strikes("question repeated")]
        if twice:
            list(self.grid.push_messages(twice))  # whose answers nobody looks for
        return push(self, messages)

    def pulled(self: Any, numbers: Any) -> Any:
        return {k: v for k, v in pull(self, numbers).items() if not taps.strikes("answer lost")}

    kind.exchange, kind._push, kind._pull = exchanged, pushed, pulled


def tap_fleet(taps: Taps, kind: Any) -> None:
    """A Fleet whose node misses questions, gets them twice, and sends answers twice."""
    fetch, send = kind.fetch, kind.send
    waiting: list[Any] = []

    def fetched(self: Any, most: int) -> Any:
        letter = waiting.pop() if waiting else fetch(self, most)
        if letter is None or taps.strikes("question lost"):
            return None
        if taps.strikes("question delivered twice"):
            waiting.append(letter)
        return letter

    def sent(self: Any, answer: Any) -> None:
        send(self, answer)
        if taps.strikes("answer sent twice"):
            send(self, answer)

    kind.fetch, kind.send = fetched, sent
