"""Answers on their way to the server.

An answer is announced before all of its parts have come. Flower's grid then sleeps for a second, two, four, ... up to
two hours in all, whoever else has answered meanwhile: with three nodes that was most of a round. Here an announced
answer is kept, its parts are fetched as they come, and others are looked for in the meantime; when the caller's
patience ends, so does its wait. Of Flower's own grid its connection is used; another kind of grid is asked as Flower
means it.

What a node sends is parsed here (edge.py). What cannot be read, or is larger than allowed, is an error of that one
answer: it is fetched no further, and the others are not touched by it.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
from flwr.serverapp import Grid

from fedsofim.deploy.flower.edge import Tree, at_the_edge, error_in, known, missing, tree_of
from fedsofim.deploy.flower.flower_api import SUPERLINK_NODE_ID, Node, message_pb2, runtime_client_of, runtime_pb2
from fedsofim.deploy.flower.messages import MOST_OF_A_REPLY, Reply, opened, reply_from
from fedsofim.errors import InputError

_SERVER = Node(node_id=SUPERLINK_NODE_ID)


class Announced(NamedTuple):
    """An answer of which not all has come."""

    run: int
    tree: Tree
    contents: dict[str, bytes]


@dataclass
class Arrivals:
    """What was announced, by the number of the question; and what has come whole, which the SuperLink is told late.

    `most` is how many bytes an answer may have.
    """

    grid: Grid
    announced: dict[str, Announced | Reply] = field(default_factory=dict)
    whole: list[tuple[int, str]] = field(default_factory=list)
    settled: list[tuple[int, str]] = field(default_factory=list)
    most: int = MOST_OF_A_REPLY

    def pull(self, numbers: Iterable[str]) -> dict[str, Reply]:
        """What has come whole of the answers to these questions, by the question's number."""
        wanted, client = set(numbers), runtime_client_of(self.grid)
        if client is None:
            messages = self.grid.pull_messages(wanted)
            return {m.metadata.reply_to_message_id: opened(m, self.most) for m in messages}
        if unheard := sorted(wanted - self.announced.keys()):
            self.announced |= self._announced(client, unheard)
        came = {number: self._fetched(client, self.announced[number]) for number in wanted & self.announced.keys()}
        for number in [number for number, reply in came.items() if reply is not None]:
            del self.announced[number]
        return {number: reply for number, reply in came.items() if reply is not None}

    def confirm(self) -> None:
        """Tell the SuperLink what it need not keep any longer: what came before the last call. It can wait, there is
        time while nodes work; and a node that has sent an answer's needed parts may still be sending the others."""
        client, done = runtime_client_of(self.grid), self.settled
        self.settled, self.whole = self.whole, []
        if client is None:
            return
        for run, name in done:
            request = message_pb2.ConfirmMessageReceivedRequest(node=_SERVER, run_id=run, message_object_id=name)
            with contextlib.suppress(httpx.HTTPStatusError):  # it is gone already
                client.ConfirmMessageReceived(request)

    def _announced(self, client: Any, numbers: Sequence[str]) -> dict[str, Announced | Reply]:
        """What the SuperLink announces of the answers to these questions.

        One answer that the SuperLink or its client cannot bear must not hide the others: each is then asked for alone.
        """
        try:
            found = client.PullMessages(runtime_pb2.PullAppMessagesRequest(message_ids=numbers))
            pairs = list(zip(found.messages_list, found.message_object_trees, strict=True))
        except (httpx.HTTPStatusError, ValueError) as error:
            if len(numbers) == 1:
                return {numbers[0]: _unreadable(error)}
            return {name: each for number in numbers for name, each in self._announced(client, [number]).items()}
        told: dict[str, Announced | Reply] = {}
        for head, parts in pairs:
            number = head.metadata.reply_to_message_id
            if number not in numbers:
                continue
            try:
                with at_the_edge("the announcement of its answer"):
                    tree = tree_of(parts)
                    told[number] = Announced(head.metadata.run_id, tree, known(head, tree))
            except InputError as error:
                told[number] = Reply({}, {}, str(error))
        return told

    def _fetched(self, client: Any, answer: Announced | Reply) -> Reply | None:
        """The answer, if all of it has come; an error if a part of it never will, or is too much."""
        if isinstance(answer, Reply):
            return answer
        run, tree, contents = answer
        size = sum(map(len, contents.values()))
        for name in missing(tree, contents):
            try:
                found = client.PullObject(message_pb2.PullObjectRequest(node=_SERVER, run_id=run, object_id=name))
            except (httpx.HTTPStatusError, ValueError) as error:
                return self._settled(answer, _unreadable(error))
            if not found.object_found:
                return self._settled(answer, Reply({}, {}, "its answer was lost on the way: not all of its parts came"))
            if not found.object_available:
                return None
            contents[name] = found.object_content
            size += len(found.object_content)
            if size > self.most:
                why = f"its answer is larger than the {self.most} bytes that it may have"
                return self._settled(answer, Reply({}, {}, why))
        return self._settled(answer, _read(tree.top, contents, self.most))

    def _settled(self, answer: Announced, reply: Reply) -> Reply:
        """A reply after which the SuperLink need not keep the answer."""
        self.whole.append((answer.run, answer.tree.top))
        return reply


def _read(top: str, contents: dict[str, bytes], most: int) -> Reply:
    try:
        why = error_in(contents, top)
    except InputError as error:
        why = str(error)
    return reply_from(top, contents, most) if why is None else Reply({}, {}, why)


def _unreadable(error: Exception) -> Reply:
    return Reply({}, {}, f"its answer cannot be read ({type(error).__name__})")
