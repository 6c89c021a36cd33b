"""A node's connection to the SuperLink, by the Fleet API that Flower's own SuperNode speaks.

Messages are fetched and answers sent; the code that a server ships with its app is never asked for. Whatever fails to
reach the SuperLink is an `Unreachable` with a reason, and the caller decides how long to try again.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import FlowerError
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedsofim.deploy.flower.parts import known, missing
from fedsofim.errors import InputError

HEARTBEAT = 10.0  # seconds that Flower is told, the least it takes: a node that is silent for twice that is away
_WAITS = (0.02,) * 10 + (0.1,) * 20 + (0.5,) * 16  # seconds between looks for a part of a message


class Unreachable(Exception):
    """The SuperLink did not take a call; why, in words."""


class Gone(Exception):
    """The SuperLink no longer has what a call was about, or its run has ended."""


class Letter(NamedTuple):
    """A message as it came: its head, and the contents of it by their ids."""

    head: Message
    top: str  # id of the whole
    contents: dict[str, bytes]


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


@dataclass
class Fleet:
    """The calls of one node."""

    client: FleetHttpClient
    public_key: bytes
    registers: bool  # without a key of its own a node makes itself known
    node: Node | None = None
    received: dict[int, str] = field(default_factory=dict)  # by run, what came last
    settled: list[tuple[int, str]] = field(default_factory=list)  # run and id of what the SuperLink may forget

    @staticmethod
    def at(address: str, certificates: Path | None, key: Path | None) -> "Fleet":
        mine = private_key(key) if key is not None else generate_key_pairs()[0]
        headers = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(mine, mine.public_key()),
        ]
        client = FleetHttpClient.from_server_address(
            address, certificates is None, None if certificates is None else str(certificates), headers
        )
        return Fleet(client, public_key_to_bytes(mine.public_key()), registers=key is None)

    def enter(self, last: int | None) -> int:
        """Become active; the node's number. `last` is the number under which it was left active by being killed."""
        if self.registers:
            _call(self.client.RegisterNode, RegisterNodeFleetRequest(public_key=self.public_key), known=True)
        request = ActivateNodeRequest(public_key=self.public_key, heartbeat_interval=HEARTBEAT)
        try:
            found = _call(self.client.ActivateNode, request)
        except (Gone, Unreachable) as error:
            if last is None and isinstance(error, Gone):
                raise Gone(f"{error} The coordinator's next `fedsofim serve` makes this node's key known; or is a node "
                           "with this key active elsewhere?") from error  # fmt: skip
            if last is None:
                raise
            _call(self.client.DeactivateNode, DeactivateNodeRequest(node_id=last))
            found = _call(self.client.ActivateNode, request)
        self.node = Node(node_id=found.node_id)
        return found.node_id

    def beat(self) -> bool:
        """Say that the node is alive; False if the SuperLink no longer counts it among its nodes."""
        request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT)
        return _call(self.client.SendNodeHeartbeat, request).success

    def fetch(self, most: int) -> Letter | None:
        """The next message, if there is one; of one that is larger than `most` bytes only the head."""
        found = _call(self.client.PullMessages, PullMessagesRequest(node=self.node))
        if not found.messages_list:
            return None
        head, tree = found.messages_list[0], found.message_object_trees[0]
        contents, left = known(head, tree), most
        for name in missing(tree, contents):
            contents[name] = content = self._part(head.metadata.run_id, name)
            left -= len(content)
            if left < 0:
                contents = {}
                break
        self._note(head.metadata.run_id, tree.object_id)
        return Letter(head, tree.object_id, contents)

    def _note(self, run: int, name: str) -> None:
        """A message can be answered before its sender has pushed the parts that nobody needs, and what is confirmed is
        deleted under its hands. Who sends the next one has done with the last."""
        if run in self.received:
            self.settled.append((run, self.received.pop(run)))
        self.received[run] = name

    def confirm(self) -> None:
        """Tell the SuperLink what it need not keep any longer; after the answer, for which somebody waits."""
        while self.settled:
            run, name = self.settled.pop()
            request = ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=name)
            with contextlib.suppress(Gone):  # its run has ended, and everything with it
                _call(self.client.ConfirmMessageReceived, request)

    def _part(self, run: int, name: str) -> bytes:
        """A message is announced before all of it has come: what is still missing is waited for, a while."""
        request = PullObjectRequest(node=self.node, run_id=run, object_id=name)
        for wait in _WAITS:
            found = _call(self.client.PullObject, request)
            if not found.object_found:
                raise Gone("a part of the message is gone")
            if found.object_available:
                return found.object_content
            time.sleep(wait)
        raise Gone(f"a part of the message did not come within {sum(_WAITS):g} s")

    def send(self, answer: Answer) -> None:
        head, tree = Message.FromString(answer.head), ObjectTree.FromString(answer.tree)
        request = PushMessagesRequest(
            node=self.node, messages_list=[head], message_object_trees=[tree], clientapp_runtime_list=[0.0]
        )
        found = _call(self.client.PushMessages, request)
        for name in found.objects_to_push:
            push = PushObjectRequest(
                node=self.node, run_id=head.metadata.run_id, object_id=name, object_content=answer.contents[name],
                session_id=found.session_id,
            )  # fmt: skip
            _call(self.client.PushObject, push)

    def leave(self) -> None:
        if self.node is not None:
            _call(self.client.DeactivateNode, DeactivateNodeRequest(node_id=self.node.node_id))
            if self.registers:
                _call(self.client.UnregisterNode, UnregisterNodeFleetRequest(node_id=self.node.node_id))


def _call(act: Callable[[Any], Any], request: Any, *, known: bool = False) -> Any:
    """One call. `known`: what is known already is no trouble."""
    try:
        return act(request)
    except httpx.HTTPStatusError as error:
        told = FlowerError.from_json(error.response.text)
        why = told.message if told is not None else error.response.text[:200]
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            raise Unreachable("the SuperLink does not know this node's key; the coordinator's next `fedsofim serve` "
                              "makes it known if it lies in server/node-keys") from error  # fmt: skip
        if known:
            return None
        if error.response.status_code in (502, 503, 504):
            raise Unreachable(why) from error
        raise Gone(why) from error
    except (httpx.HTTPError, ValueError, OSError) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
