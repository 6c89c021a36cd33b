"""Sending questions to nodes and waiting for the answers; and noticing what was lost with a node that was killed.

A node killed at work loses its question. Flower says so only to a server that looks while the node counts as away, and
`fedsofim node` may be back within that moment: then no answer ever comes. So a node that is late is asked whether it
still holds the question (holding.py). A SuperNode works on one message at a time, in the order they were sent: it
answers that only when it has done with the question, or has lost it.

* A live process works on it: wait.
* It was answered, and the answer is stored: ask again, which is free.
* Neither, and it costs nothing: ask again.
* Neither, and the node is another instance than the one that was asked: it is gone. How often to ask again is for the
  caller to decide.
* Neither, and it is the same instance, which says so twice: it was lost on its way (a connection that broke while it
  was fetched); ask again, which is free, since a question is charged once.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from logging import getLogger
from typing import NamedTuple, Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from fedsofim.deploy.flower.arrivals import Arrivals
from fedsofim.deploy.flower.messages import ASK, MOST_OF_A_REPLY, Reply, again, holding_message, request_of, what_of
from fedsofim.deploy.holding import Holding

_LOG = getLogger("flwr")
_POLL, _SHARE, _POLL_MOST = 0.05, 0.1, 1.0  # between looks for answers: a share of the seconds waited, within bounds
_RHYTHM = 0.6  # of the time that a question's first answer took last: before that nobody looks
_LATE = 10.0  # seconds after which a node that has not answered is asked whether it still holds the question
MOMENT = 5.0  # seconds that those who are late have when enough have answered
_FORGET = 300.0  # seconds after which that question counts as lost itself, and is asked again
_SURE = 2  # times that a node says of a question that it knows nothing of it, until it is believed
LOST = "the node lost the request: it was killed at work, and has started again"


class Clock(Protocol):
    """Of the module `time`, what waiting needs; a test brings one that does not wait."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


@dataclass
class Post:
    """A grid, which instance of each node was met last, and how long the first answer to each kind of question took."""

    grid: Grid
    clock: Clock = time
    instances: dict[int, str] = field(default_factory=dict)
    paces: dict[str, float] = field(default_factory=dict)
    behind: dict[int, "_Behind"] = field(default_factory=dict)  # nodes that had not answered when a round was over

    def __post_init__(self) -> None:
        self.arrivals = Arrivals(self.grid)

    def exchange(
        self, messages: Sequence[Message], timeout: float, enough: int | None = None, moment: float | None = MOMENT,
        *, room: int = 0,
    ) -> dict[int, Reply]:  # fmt: skip
        """One reply to each message, or why there is none; by the node that was asked, each of them once.

        Where fewer than all are `enough`, the others are waited for as long again as these took, and a moment more;
        without a `moment` they are not waited for, and a refusal is not one of those that are enough. `room` is how
        many bytes the arrays of one reply have, where they may be large.
        """
        self.arrivals.most = MOST_OF_A_REPLY + room
        asked = {m.metadata.dst_node_id: m for m in messages}
        replies = {node: Reply({}, {}, "no answer came") for node in asked}
        waiting, probes, asked_at = self._push(messages), dict[str, int](), self.clock.monotonic()
        instances, end, look = dict(self.instances), self._in(timeout), self._in(_LATE)
        began, answers, doubts = self.clock.monotonic(), 0, Counter[int]()
        over, kind = False, what_of(messages[0]) if messages else ""
        self.arrivals.confirm()  # nodes have just begun to work
        self.clock.sleep(min(_POLL_MOST, timeout, _RHYTHM * self.paces.get(kind, 0.0)))
        while waiting and not over:
            over = self.clock.monotonic() >= end  # then what has come by now still counts
            came = self._pull([*waiting, *probes])
            if came and len(waiting) == len(asked):
                self.paces[kind] = self.clock.monotonic() - began
            for number in came.keys() & waiting.keys():
                node = waiting.pop(number)
                replies[node] = self._met(node, came[number])
                answers += not (replies[node].error or (moment is None and "refused" in replies[node].facts))
                if answers == enough:
                    took = self.clock.monotonic() - began
                    end = min(end, self._in(0.0 if moment is None else took + moment))
            for number in came.keys() & probes.keys():
                node = probes.pop(number)
                verdict = _verdict(asked[node], self._met(node, came[number]), instances.get(node))
                doubts[node] += verdict is _Verdict.DOUBT
                if doubts[node] == _SURE:
                    doubts[node], verdict = 0, _Verdict.AGAIN
                if node not in waiting.values() or verdict in (_Verdict.WAIT, _Verdict.DOUBT):
                    continue
                waiting = {number: n for number, n in waiting.items() if n != node}
                if verdict is _Verdict.GONE:
                    replies[node] = Reply({}, {}, LOST)
                else:
                    _LOG.warning("fedsofim: a question to node %d, or its answer, was lost; it is asked again", node)
                    waiting |= self._push([again(asked[node])])
            if self.clock.monotonic() > look:
                if self.clock.monotonic() > asked_at + _FORGET:
                    probes, asked_at = {}, self.clock.monotonic()
                look, late = self._in(_LATE), set(waiting.values()) - set(probes.values())
                probes |= self._push([holding_message(asked[node]) for node in sorted(late)])
            if waiting and not over:
                self.clock.sleep(min(_POLL_MOST, max(_POLL, _SHARE * (self.clock.monotonic() - began))))
        if kind == ASK and enough is not None:
            self._leave(asked, waiting)
        return replies

    def _leave(self, asked: Mapping[int, Message], waiting: Mapping[str, int]) -> None:
        """Go on without these. A node works on one message at a time, so what is asked after this one is answered when
        it has done with this one, or has lost it."""
        connected = set(self.grid.get_node_ids())
        for number, node in waiting.items():
            if node in connected:
                (probe,) = self._push([holding_message(asked[node])]) or ("",)
                self.behind[node] = _Behind(number, probe, request_of(asked[node]).round)

    def late(self) -> tuple[frozenset[int], list[tuple[int, int]]]:
        """Nodes that still work on a round that is over; and whose answers to which rounds have come since."""
        if not self.behind:
            return frozenset(), []
        connected, came = set(self.grid.get_node_ids()), list[tuple[int, int]]()
        found = self._pull([number for one in self.behind.values() for number in (one.number, one.probe) if number])
        for node, one in list(self.behind.items()):
            reply = found.get(one.number)
            if reply is not None and not reply.error and "refused" not in reply.facts:
                came.append((node, one.round))
            if reply is not None or one.probe in found or node not in connected:
                del self.behind[node]
        return frozenset(self.behind), came

    def _in(self, seconds: float) -> float:
        return self.clock.monotonic() + seconds

    def _push(self, messages: Sequence[Message]) -> dict[str, int]:
        """The node asked, by the number of its message."""
        numbers = list(self.grid.push_messages(messages)) if messages else []
        return {number: m.metadata.dst_node_id for number, m in zip(numbers, messages, strict=True) if number}

    def _pull(self, numbers: Iterable[str]) -> dict[str, Reply]:
        """What came, by the number of the message it answers: an error's own source is not the node that failed."""
        return self.arrivals.pull(numbers)

    def _met(self, node: int, reply: Reply) -> Reply:
        """Notes which instance of the node said it."""
        if "instance" in reply.facts:
            self.instances[node] = str(reply.facts["instance"])
        return reply


class _Behind(NamedTuple):
    """A question that was left, the one that was sent after it, and its round."""

    number: str
    probe: str
    round: int


class _Verdict(Enum):
    """What becomes of a question that is late."""

    WAIT = auto()
    DOUBT = auto()  # the instance that was asked knows nothing of it
    AGAIN = auto()  # ask again: it costs nothing
    GONE = auto()


def _verdict(question: Message, reply: Reply, instance: str | None) -> _Verdict:
    """From what a node says of a question that this instance of it was asked; nonsense means waiting on."""
    how, now = reply.facts.get("holding"), reply.facts.get("instance")
    free = what_of(question) != ASK
    if how == (Holding.NOTHING if free else Holding.ANSWERED):
        return _Verdict.AGAIN
    if how == Holding.NOTHING and None not in (instance, now):
        return _Verdict.GONE if instance != now else _Verdict.DOUBT
    return _Verdict.WAIT
