"""Answers on their way to the server.

An answer is announced before all of its parts have come. Flower's grid then sleeps for a second, two, four, ... up to
two hours in all, whoever else has answered meanwhile: with three nodes that was most of a round. Here an announced
answer is kept, its parts are fetched as they come, and others are looked for in the meantime; when the caller's
patience ends, so does its wait. Of the grid its connection is used; one that shows none is asked as Flower means it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    ObjectTree,
    PullObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedsofim.deploy.flower.messages import Reply, opened
from fedsofim.deploy.flower.parts import known, missing

_SERVER = Node(node_id=SUPERLINK_NODE_ID)


class Announced(NamedTuple):
    """An answer of which not all has come."""

    head: Message
    tree: ObjectTree
    contents: dict[str, bytes]


@dataclass
class Arrivals:
    """What was announced, by the number of the question; and what has come whole, which the SuperLink is told late."""

    grid: Grid
    announced: dict[str, Announced] = field(default_factory=dict)
    whole: list[tuple[int, str]] = field(default_factory=list)
    settled: list[tuple[int, str]] = field(default_factory=list)

    def pull(self, numbers: Iterable[str]) -> dict[str, Reply]:
        """What has come whole of the answers to these questions, by the question's number."""
        wanted, client = set(numbers), getattr(self.grid, "_runtime_client", None)
        if client is None:
            return {m.metadata.reply_to_message_id: opened(m) for m in self.grid.pull_messages(wanted)}
        if unheard := sorted(wanted - self.announced.keys()):
            found = client.PullMessages(PullAppMessagesRequest(message_ids=unheard))
            for head, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                self.announced[head.metadata.reply_to_message_id] = Announced(head, tree, known(head, tree))
        came = {number: self._fetched(client, self.announced[number]) for number in wanted & self.announced.keys()}
        for number in [number for number, reply in came.items() if reply is not None]:
            del self.announced[number]
        return {number: reply for number, reply in came.items() if reply is not None}

    def confirm(self) -> None:
        """Tell the SuperLink what it need not keep any longer: what came before the last call. It can wait, there is
        time while nodes work; and a node that has sent an answer's needed parts may still be sending the others."""
        client, done = getattr(self.grid, "_runtime_client", None), self.settled
        self.settled, self.whole = self.whole, []
        for run, name in done if client is not None else ():
            client.ConfirmMessageReceived(  # type: ignore[union-attr]
                ConfirmMessageReceivedRequest(node=_SERVER, run_id=run, message_object_id=name)
            )

    def _fetched(self, client: Any, answer: Announced) -> Reply | None:
        """The answer, if all of it has come; an error if a part of it never will."""
        run, top = answer.head.metadata.run_id, answer.tree.object_id
        for name in missing(answer.tree, answer.contents):
            found = client.PullObject(PullObjectRequest(node=_SERVER, run_id=run, object_id=name))
            if not found.object_found:
                return Reply({}, {}, "its answer was lost on the way: not all of its parts came")
            if not found.object_available:
                return None
            answer.contents[name] = found.object_content
        self.whole.append((run, top))
        message: Any = inflate_object_from_contents(top, dict(answer.contents))
        return opened(message)
