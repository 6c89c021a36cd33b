"""A Flower Grid in memory: every message goes straight to the ClientApp of its node, and a test may tamper.

Time is the test's own: a wait of ten minutes takes as long as its looks, on any machine.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedsofim.deploy.flower.client_app import make_client_app
from fedsofim.deploy.flower.messages import Reply, opened, reply_message, request_of, what_of
from fedsofim.deploy.holding import held
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.wire import Arrays

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # a deployed process has them from Flower
Tamper = Callable[[int, Message, Message], Message | None]  # (node, question, answer) -> answer, or None: lost
Accept = Callable[[int, Message], bool]  # (node, question): does the node get to work on it now?
FIRST = "first instance"


class FakeClock:
    """Time that passes only where somebody sleeps; what is due happens on the way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], Any]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds
        ripe = [act for at, act in self.due if at <= self.now]
        self.due = [(at, act) for at, act in self.due if at > self.now]
        for act in ripe:
            act()

    def after(self, seconds: float, act: Callable[[], Any]) -> None:
        self.due.append((self.now + seconds, act))


def context_for(policy_file: Path | str | None, node: int = 1, instance: str = FIRST) -> Context:
    config: dict[str, bool | float | int | str] = {"instance": instance}
    if policy_file is not None:
        config["policy"] = str(policy_file)
        if (key := Path(policy_file).parent / "node.key").exists():
            config["key"] = str(key)
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


def delivered(message: Message) -> Message:
    """A message as it is after it was sent: with a number of its own."""
    message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
    return message


def told(policy_file: Path | str | None, message: Message) -> Reply:
    """What a node's ClientApp sends back."""
    return opened(make_client_app()(delivered(message), context_for(policy_file)))


class FakeGrid(Grid):
    """Nodes by Flower's number. `uploads` keeps what was answered, by round and node."""

    def __init__(self, nodes: Mapping[int, Policy], tamper: Tamper | None = None, accept: Accept | None = None) -> None:
        self.nodes = dict(nodes)
        self.tamper, self.accept = tamper, accept
        self.instances = dict.fromkeys(nodes, FIRST)
        self.app = make_client_app()
        self.waiting: dict[str, Message] = {}
        self.asked: list[tuple[str, int]] = []  # (phase and round, or question; node)
        self.uploads: dict[tuple[str, int], dict[str, Arrays]] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            node = delivered(message).metadata.dst_node_id
            self.asked.append((_what(message), node))
            if self.accept is None or self.accept(node, message):
                self.work(node, message)
            numbers.append(message.metadata.message_id)
        return numbers

    def work(self, node: int, message: Message) -> None:
        """The node answers, now."""
        policy = self.nodes[node]
        context = context_for(policy.data.parent / "policy.toml", node, self.instances.get(node, FIRST))
        reply = self.app(message, context)
        if what_of(message) == "ask" and (arrays := opened(reply).arrays):
            request = request_of(message)
            self.uploads.setdefault((request.phase, request.round), {})[policy.name] = arrays
        if self.tamper is not None:
            reply = self.tamper(node, message, reply)
        if reply is not None:
            self.waiting[message.metadata.message_id] = reply

    def restart(self, node: int) -> None:
        """The node is killed and comes back: another instance, with nothing of what was under way."""
        self.instances[node] = f"instance {uuid.uuid4().hex}"

    def keep_busy(self, node: int, message: Message) -> Callable[[], None]:
        """A live process of the node works on the request until what is returned is called; then it answers."""
        busy = ExitStack()
        busy.enter_context(held(self.nodes[node].ledger, request_of(message).digest()))

        def done() -> None:
            busy.close()
            self.work(node, message)

        return done

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


def _what(message: Message) -> str:
    if what_of(message) != "ask":
        return what_of(message)
    request = request_of(message)
    return f"{request.phase} {request.round}"


def answered(question: Message, reply: Message, facts: Mapping[str, Any] | None = None, arrays: Arrays | None = None):
    """The same reply with other facts or arrays."""
    given = opened(reply)
    return reply_message(given.facts if facts is None else facts, given.arrays if arrays is None else arrays, question)


def is_round(message: Message, round: int) -> bool:
    return what_of(message) == "ask" and request_of(message).round == round


def numbered(nodes: Iterable[Policy]) -> dict[int, Policy]:
    """Nodes by numbers as Flower would give them."""
    return {100 + i: policy for i, policy in enumerate(nodes)}
