"""A node's connection to the SuperLink, by the Fleet API that Flower's own SuperNode speaks.

Messages are fetched and answers sent; the code that a server ships with its app is never asked for. Whatever fails to
reach the SuperLink is an `Unreachable` with a reason, and the caller decides how long to try again.
"""

import contextlib
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedsofim.deploy.clocks import ahead_of, in_words, is_off
from fedsofim.deploy.flower.edge import Head, at_the_edge, head_of, known, missing, tree_of, words
from fedsofim.deploy.flower.flower_api import (
    FleetHttpClient,
    FlowerError,
    Node,
    NodeAuthHttpInterceptor,
    NodeVersion,
    fleet_pb2,
    generate_key_pairs,
    heartbeat_pb2,
    message_pb2,
    public_key_to_bytes,
    set_http_client,
)
from fedsofim.errors import InputError

HEARTBEAT = 10.0  # seconds that Flower is told, the least it takes: a node that is silent for twice that is away
_TIMEOUT = 30.0  # seconds without a byte until a call is given up,
_WHOLE = 300.0  # and seconds for all of what it brings
_MOST = 32_000_000  # bytes that a call may bring: a part of a message has 5 MB
_FETCH = 600.0  # seconds for all parts of a message
_RUNS = 1000  # whose last message is kept in mind
_WAITS = (0.02,) * 10 + (0.1,) * 20 + (0.5,) * 16  # seconds between looks for a part of a message


class Unreachable(Exception):
    """The SuperLink did not take a call; why, in words."""


class NotAdmittedError(Unreachable):
    """The SuperLink is there, and does not take this node's calls; why, in words."""


class Gone(Exception):
    """The SuperLink no longer has what a call was about, or its run has ended."""


class UnreadableError(Exception):
    """A message came that cannot even be answered; what is wrong with it, in words."""


class Letter(NamedTuple):
    """A message as it came: its head, its contents by their ids, and why these were not fetched if so."""

    head: Head
    contents: dict[str, bytes]
    trouble: str = ""


class Answer(NamedTuple):
    """A reply ready to be sent: its head, the tree of its contents, and these by their ids."""

    head: bytes
    tree: bytes
    contents: dict[str, bytes]


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A node's key; an error in words if it is none."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise InputError(f"{path}: the node's key cannot be read ({error.strerror})") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: not a node key; expected an OpenSSH key, ecdsa of 384 bits") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: a key of another kind; expected an OpenSSH key, ecdsa of 384 bits")
    return key


class _Bounded(httpx.SyncByteStream):
    """The body of an answer, up to a size and a time."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[bytes]:
        left, end = _MOST, time.monotonic() + _WHOLE
        for block in self.stream:
            left -= len(block)
            if left < 0:
                raise httpx.ReadError(f"its answer is larger than {_MOST} bytes")
            if time.monotonic() > end:
                raise httpx.ReadError(f"its answer took more than {_WHOLE:g} s")
            yield block

    def close(self) -> None:
        self.stream.close()


def _look_at(response: httpx.Response) -> None:
    """Refuse an answer that sends the node elsewhere, or that is packed and could be of any size."""
    if response.is_redirect or response.has_redirect_location:
        raise httpx.ProtocolError(f"it answered with a redirect ({response.status_code}), and a node follows none")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.ProtocolError("its answer is compressed, which a node does not read")
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = _Bounded(response.stream)


def http_client(certificates: Path | None) -> httpx.Client:
    """The HTTP client of a node: it follows no redirect, and reads no more than a message's part can have.

    Args:
        certificates: Of the authority that the SuperLink's certificate must come from; None for no encryption.
    """
    verify = False if certificates is None else ssl.create_default_context(cafile=str(certificates))
    return httpx.Client(
        verify=verify, timeout=_TIMEOUT, follow_redirects=False, event_hooks={"response": [_look_at]},
        headers={"accept-encoding": "identity"},
    )  # fmt: skip


@dataclass
class Fleet:
    """The calls of one node."""

    client: FleetHttpClient
    public_key: bytes
    registers: bool  # without a key of its own a node makes itself known
    node: Node | None = None
    received: dict[int, str] = field(default_factory=dict)  # by run, what came last
    settled: list[tuple[int, str]] = field(default_factory=list)  # run and id of what the SuperLink may forget
    pause: Callable[[float], None] = time.sleep  # between parts and while one is waited for: heartbeats, the end

    @staticmethod
    def at(address: str, certificates: Path | None, key: Path | None) -> "Fleet":
        mine = private_key(key) if key is not None else generate_key_pairs()[0]
        headers = [NodeVersion(), NodeAuthHttpInterceptor(mine, mine.public_key())]
        scheme = "http" if certificates is None else "https"
        client = FleetHttpClient(f"{scheme}://{address}", interceptors=headers)
        try:
            set_http_client(client, http_client(certificates))
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"{certificates}: these certificates cannot be read ({error})") from error
        return Fleet(client, public_key_to_bytes(mine.public_key()), registers=key is None)

    def enter(self, last: int | None) -> int:
        """Become active; the node's number. `last` is the number under which it was left active by being killed."""
        if self.registers:
            _call(self.client.RegisterNode, fleet_pb2.RegisterNodeFleetRequest(public_key=self.public_key), known=True)
        request = fleet_pb2.ActivateNodeRequest(public_key=self.public_key, heartbeat_interval=HEARTBEAT)
        try:
            found = _call(self.client.ActivateNode, request)
        except (Gone, Unreachable) as error:
            if isinstance(error, NotAdmittedError):
                raise
            if last is None and isinstance(error, Gone):
                raise NotAdmittedError(
                    f"{error} The coordinator's next `fedsofim serve` makes this node's key known; or is a node with "
                    "this key active elsewhere?"
                ) from error
            if last is None:
                raise
            _call(self.client.DeactivateNode, fleet_pb2.DeactivateNodeRequest(node_id=last))
            found = _call(self.client.ActivateNode, request)
        self.node = Node(node_id=found.node_id)
        return found.node_id

    def beat(self) -> bool:
        """Say that the node is alive; False if the SuperLink no longer counts it among its nodes."""
        request = heartbeat_pb2.SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT)
        return _call(self.client.SendNodeHeartbeat, request).success

    def fetch(self, most: int) -> Letter | None:
        """The next message, if there is one; of one that is larger than `most` bytes, or makes no sense, only the head.

        Raises:
            UnreadableError: If there is one that cannot even be answered.
        """
        found = _call(self.client.PullMessages, fleet_pb2.PullMessagesRequest(node=self.node))
        try:
            with at_the_edge("the announcement of a message"):
                if not found.messages_list:
                    return None
                told, tree = found.messages_list[0], tree_of(found.message_object_trees[0])
                head = head_of(told, tree.top)
        except InputError as error:
            raise UnreadableError(str(error)) from error
        self._note(head.run, head.message)
        if not head.kind:
            kind = words(told.metadata.message_type, 40)
            return Letter(head, {}, f"it is of a kind that a node does not answer ({kind!r})")
        try:
            contents, left = known(told, tree), most
        except InputError as error:
            return Letter(head, {}, str(error))
        end = time.monotonic() + _FETCH
        for name in missing(tree, contents):
            self.pause(0.0)
            contents[name] = content = self._part(head.run, name)
            left -= len(content)
            if left < 0:
                return Letter(head, {}, "the message is larger than this node's policy allows")
            if time.monotonic() > end:
                return Letter(head, {}, f"the message did not come whole within {_FETCH:g} s")
        return Letter(head, contents)

    def _note(self, run: int, name: str) -> None:
        """A message can be answered before its sender has pushed the parts that nobody needs, and what is confirmed is
        deleted under its hands. Who sends the next one has done with the last."""
        if run in self.received:
            self.settled.append((run, self.received.pop(run)))
        self.received[run] = name
        while len(self.received) > _RUNS:
            self.received.pop(next(iter(self.received)))

    def confirm(self) -> None:
        """Tell the SuperLink what it need not keep any longer; after the answer, for which somebody waits."""
        while self.settled:
            run, name = self.settled.pop()
            request = message_pb2.ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=name)
            with contextlib.suppress(Gone):  # its run has ended, and everything with it
                _call(self.client.ConfirmMessageReceived, request)

    def _part(self, run: int, name: str) -> bytes:
        """A message is announced before all of it has come: what is still missing is waited for, a while."""
        request = message_pb2.PullObjectRequest(node=self.node, run_id=run, object_id=name)
        for wait in _WAITS:
            found = _call(self.client.PullObject, request)
            if not found.object_found:
                raise Gone("a part of the message is gone")
            if found.object_available:
                return found.object_content
            self.pause(wait)
        raise Gone(f"a part of the message did not come within {sum(_WAITS):g} s")

    def send(self, answer: Answer) -> None:
        head, tree = message_pb2.Message.FromString(answer.head), message_pb2.ObjectTree.FromString(answer.tree)
        request = fleet_pb2.PushMessagesRequest(
            node=self.node, messages_list=[head], message_object_trees=[tree], clientapp_runtime_list=[0.0]
        )
        found = _call(self.client.PushMessages, request)
        for name in dict.fromkeys(found.objects_to_push):
            if name not in answer.contents:
                raise Gone("the SuperLink asked for a part that the answer does not have")
            self.pause(0.0)
            push = message_pb2.PushObjectRequest(
                node=self.node, run_id=head.metadata.run_id, object_id=name, object_content=answer.contents[name],
                session_id=found.session_id,
            )  # fmt: skip
            _call(self.client.PushObject, push)

    def leave(self) -> None:
        if self.node is not None:
            _call(self.client.DeactivateNode, fleet_pb2.DeactivateNodeRequest(node_id=self.node.node_id))
            if self.registers:
                _call(self.client.UnregisterNode, fleet_pb2.UnregisterNodeFleetRequest(node_id=self.node.node_id))


def _call(act: Callable[[Any], Any], request: Any, *, known: bool = False) -> Any:
    """One call; nothing but Gone and Unreachable comes out of it. `known`: what is known already is no trouble."""
    try:
        return act(request)
    except httpx.HTTPStatusError as error:
        why = _reason(error.response)
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            raise NotAdmittedError(_why_not(error.response)) from error
        if known:
            return None
        if error.response.status_code in (502, 503, 504):
            raise Unreachable(why) from error
        raise Gone(why) from error
    except Exception as error:
        raise Unreachable(words(error) or type(error).__name__) from error


def _why_not(response: httpx.Response) -> str:
    """Why a signed call was turned away: signatures hold for seconds only, so clocks come first."""
    ahead = ahead_of(response.headers.get("date"), datetime.now(UTC))
    if ahead is not None and is_off(ahead):
        return f"this machine's clock is {in_words(ahead)} the coordinator's. Correct it, for example with NTP"
    return ("the coordinator does not know this node's key yet. Its next `fedsofim serve` makes the key known, if it "
            "lies in server/node-keys")  # fmt: skip


def _reason(response: httpx.Response) -> str:
    """What is said with a refusal, fit for a log."""
    text = response.text[:2000]
    try:
        told = FlowerError.from_json(text)
    except Exception:  # of text that is none of Flower's, however it is none
        told = None
    return words(told.message if told is not None else text) or f"status {response.status_code}"
