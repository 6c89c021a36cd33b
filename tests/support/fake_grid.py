"""A Flower Grid in memory: every message goes straight to the ClientApp of its node, and a test may tamper."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedsofim.deploy.flower.client_app import client_app
from fedsofim.deploy.flower.messages import opened, reply_message, request_of, what_of
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.wire import Arrays

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # a deployed process has them from Flower
Tamper = Callable[[int, Message, Message], Message | None]  # (node, question, answer) -> answer, or None: lost


def context_for(policy_file: Path | str | None, node: int = 1) -> Context:
    config: dict[str, bool | float | int | str] = {} if policy_file is None else {"policy": str(policy_file)}
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


def delivered(message: Message) -> Message:
    """A message as it is after it was sent: with a number of its own."""
    message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
    return message


class FakeGrid(Grid):
    """Nodes by Flower's number. `uploads` keeps what was answered, by round and node."""

    def __init__(self, nodes: Mapping[int, Policy], tamper: Tamper | None = None) -> None:
        self.nodes = dict(nodes)
        self.tamper = tamper
        self.app = client_app()
        self.waiting: dict[str, Message] = {}
        self.asked: list[tuple[str, int]] = []  # (phase and round, or question; node)
        self.uploads: dict[tuple[str, int], dict[str, Arrays]] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            node = message.metadata.dst_node_id
            reply = self.app(delivered(message), context_for(self.nodes[node].data.parent / "policy.toml", node))
            self._note(message, node, reply)
            if self.tamper is not None:
                reply = self.tamper(node, message, reply)
            if reply is not None:
                self.waiting[message.metadata.message_id] = reply
            numbers.append(message.metadata.message_id)
        return numbers

    def _note(self, message: Message, node: int, reply: Message) -> None:
        if what_of(message) != "ask":
            self.asked.append((what_of(message), node))
            return
        request = request_of(message)
        self.asked.append((f"{request.phase} {request.round}", node))
        if arrays := opened(reply).arrays:
            self.uploads.setdefault((request.phase, request.round), {})[self.nodes[node].name] = arrays

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.waiting.pop(number) for number in list(message_ids) if number in self.waiting]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *a: Any, **k: Any) -> Message:
        raise NotImplementedError


def answered(question: Message, reply: Message, facts: Mapping[str, Any] | None = None, arrays: Arrays | None = None):
    """The same reply with other facts or arrays."""
    given = opened(reply)
    return reply_message(given.facts if facts is None else facts, given.arrays if arrays is None else arrays, question)


def is_round(message: Message, round: int) -> bool:
    return what_of(message) == "ask" and request_of(message).round == round
