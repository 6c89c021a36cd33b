"""What nodes reach of a coordinator: a front before Flower's SuperLink, which itself listens on 127.0.0.1 only.

The SuperLink serves nodes, runs and Flower's commands on one port, and asks nobody who submits a run: whoever reaches
it can run code as the coordinator's user. So nodes reach this front. It passes on exactly the calls that a node makes,
from whoever has the key of a node, and only in that node's own name.

A call that passes is made anew: path and headers are our own, the body is read whole and has a largest size. Nothing of
a request but its body and the values of five headers reaches the SuperLink.

`python -m fedsofim.deploy.flower.front` starts the SuperLink too, and ends with it.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import httpx
import uvicorn
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedsofim.deploy.flower.flower_api import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    PROTOBUF_MEDIA_TYPE,
    SUPERLINK_NODE_ID,
    TIMESTAMP_HEADER,
    bytes_to_public_key,
    fleet_pb2,
    public_key_to_bytes,
    verify_signature,
)
from fedsofim.deploy.flower.pipe import die_with
from fedsofim.deploy.processes import command, listening
from fedsofim.errors import InputError

_PUSH_MESSAGES = b"/v1/fleet/push-messages"
#: What a node may call, by POST, and how many bytes it may send. Paths are compared byte by byte, as they came.
CALLS: dict[bytes, int] = {
    b"/v1/fleet/activate-node": 10_000,
    b"/v1/fleet/deactivate-node": 10_000,
    b"/v1/fleet/send-node-heartbeat": 10_000,
    b"/v1/fleet/pull-messages": 10_000,
    _PUSH_MESSAGES: 4_000_000,
    b"/v1/fleet/push-object": 8_000_000,  # Flower's chunks have 5 MB, our small messages up to 3
    b"/v1/fleet/pull-object": 10_000,
    b"/v1/fleet/confirm-message-received": 10_000,
}
#: And in a rehearsal without keys, where nodes make themselves known.
WITHOUT_KEYS = CALLS | {b"/v1/fleet/register-node": 10_000, b"/v1/fleet/unregister-node": 10_000}
_KEY, _SIGNATURE, _TIME = FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER
_PASSED = tuple(name.lower().encode() for name in (_KEY, _SIGNATURE, _TIME))
_SECONDS = 120.0  # for one call, from its head to the last byte of its answer
_IDLE = 20.0  # seconds that a connection may be open without a call under way
_EACH, _ALL = 64, 512  # connections at a time, from one address and altogether
_OF_A_KEY = 16  # calls at a time
_LINK = 60.0  # seconds until the SuperLink listens
_REREAD = 1.0  # seconds for which the folder of keys is believed


class TurnedAwayError(Exception):
    """A call that is not passed on: status and reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Keys:
    """The public keys of nodes that the coordinator knows, read anew as the folder changes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known, self.read_at = folder, frozenset[bytes](), -_REREAD

    def __contains__(self, key: bytes) -> bool:
        if time.monotonic() >= self.read_at + _REREAD:
            self.known, self.read_at = frozenset(self._read()), time.monotonic()
        return key in self.known

    def _read(self) -> Iterator[bytes]:
        for path in self.folder.glob("*.pub"):
            with contextlib.suppress(Exception):  # a file that is none: `fedsofim serve` says so
                yield public_key_to_bytes(load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]


class Front:
    """An ASGI application that passes the calls of nodes on.

    Args:
        link: Where the SuperLink listens, such as `https://127.0.0.1:9093`.
        client: To reach it; follows no redirects.
        keys: Of the nodes; None in a rehearsal, where anybody may be one.
    """

    def __init__(self, link: str, client: httpx.AsyncClient, keys: Keys | None) -> None:
        self.link, self.client, self.keys = link, client, keys
        self.calls = CALLS if keys is not None else WITHOUT_KEYS
        self.busy = Counter[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only calls come here")
        try:
            async with asyncio.timeout(_SECONDS):
                try:
                    status, kind, body = await self._passed(scope, receive)
                except TurnedAwayError as turned:
                    status, kind, body = turned.status, "text/plain", str(turned).encode()
                headers = [(b"content-type", kind.encode("latin-1")), (b"content-length", str(len(body)).encode())]
                if status >= 400:
                    headers.append((b"connection", b"close"))  # whatever of its body has not come is not waited for
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": body})
        except TimeoutError:
            raise ConnectionAbortedError("a call took too long") from None

    async def _passed(self, scope: Any, receive: Any) -> tuple[int, str, bytes]:
        path = scope["raw_path"]
        if scope["method"] != "POST" or path not in self.calls or scope["query_string"]:
            raise TurnedAwayError(403, "only nodes are served here")
        headers = _headers(scope["headers"])
        owner = self._owner(headers) if self.keys is not None else str(scope.get("client"))
        if self.busy[owner] >= _OF_A_KEY:
            raise TurnedAwayError(429, "too many calls at a time")
        self.busy[owner] += 1
        try:
            body = await _body(receive, self.calls[path], headers)
            if path == _PUSH_MESSAGES:
                check_own(body)
            return await self._ask(path, headers, body)
        finally:
            _drop(self.busy, owner)

    def _owner(self, headers: Mapping[bytes, str]) -> str:
        """The key that a call is signed with, if it is a node's. Whether the time is right is for the SuperLink."""
        assert self.keys is not None
        key, signature, signed = (headers.get(name, "") for name in _PASSED)
        try:
            public = b64decode(key, validate=True)
            right = public in self.keys and verify_signature(
                bytes_to_public_key(public), signed.encode("ascii"), b64decode(signature, validate=True)
            )
        except Exception:  # of headers that hold anything
            right = False
        if not right:
            raise TurnedAwayError(401, "the coordinator does not know this key")
        return key

    async def _ask(self, path: bytes, headers: Mapping[bytes, str], body: bytes) -> tuple[int, str, bytes]:
        passed = {name.decode(): headers[name] for name in _PASSED if name in headers}
        passed |= {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE, "accept-encoding": "identity"}
        try:
            answer = await self.client.post(self.link + path.decode("ascii"), content=body, headers=passed)
        except httpx.HTTPError:
            raise TurnedAwayError(503, "the SuperLink is away") from None
        if answer.is_redirect:
            raise TurnedAwayError(502, "the SuperLink answered with a redirect")
        return answer.status_code, answer.headers.get("content-type", "text/plain"), answer.content


def _headers(given: list[tuple[bytes, bytes]]) -> dict[bytes, str]:
    """Those that count, each at most once."""
    found: dict[bytes, str] = {}
    for name, value in given:
        if name not in (*_PASSED, b"content-length", b"content-encoding"):
            continue
        if name in found or not value.isascii():
            raise TurnedAwayError(400, "a header came twice, or with strange letters")
        found[name] = value.decode("ascii")
    if found.get(b"content-encoding", "identity") != "identity":
        raise TurnedAwayError(415, "compressed bodies are not read")
    return found


async def _body(receive: Any, most: int, headers: Mapping[bytes, str]) -> bytes:
    length = headers.get(b"content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise TurnedAwayError(413, f"at most {most} bytes are read here")
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise TurnedAwayError(400, "the call was broken off")
        body += event.get("body", b"")
        if len(body) > most:
            raise TurnedAwayError(413, f"at most {most} bytes are read here")
        if not event.get("more_body"):
            return bytes(body)


def check_own(body: bytes) -> None:
    """A node sends replies, one at a time and in its own name; that the number is its own the SuperLink checks.

    The SuperLink believes the sender that a message names. So a node could ask other nodes in the coordinator's name,
    or answer for them.

    Raises:
        TurnedAwayError: If it is anything else.
    """
    try:
        request = fleet_pb2.PushMessagesRequest.FromString(body)
    except Exception:
        raise TurnedAwayError(400, "the call cannot be read") from None
    number = request.node.node_id
    for message in request.messages_list:
        meta = message.metadata
        if meta.src_node_id != number or meta.dst_node_id != SUPERLINK_NODE_ID or not meta.reply_to_message_id:
            raise TurnedAwayError(403, "a node sends replies in its own name only")
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1 or number in (0, SUPERLINK_NODE_ID):
        raise TurnedAwayError(403, "a node sends one reply at a time")


def _drop(counts: Counter[str], name: str) -> None:
    """One fewer; nothing is kept of those that have none."""
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]


class Connection(H11Protocol):
    """A connection that is closed when no call comes for a while, or when one address has too many of them."""

    open: ClassVar[Counter[str]] = Counter()
    watch: asyncio.TimerHandle | None = None
    since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address, self.since = self.client[0] if self.client else "", self.loop.time()
        self.open[self.address] += 1
        if self.open[self.address] > _EACH:
            transport.abort()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _drop(self.open, self.address)
        if self.watch is not None:
            self.watch.cancel()

    def _look(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.since = self.loop.time()
        elif self.loop.time() > self.since + _IDLE:
            self.transport.abort()
            return
        self.watch = self.loop.call_later(1.0, self._look)


# --- the process --------------------------------------------------------------------------------------------


def link_command(server: Path, inner: int, insecure: bool, more: list[str]) -> list[str]:
    """Flower's SuperLink, for this machine only."""
    tls = [
        *("--ssl-ca-certfile", str(server / "ca.crt"), "--ssl-certfile", str(server / "server.crt")),
        *("--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth"),
    ]
    return [
        command("flower-superlink"),
        *(["--insecure"] if insecure else tls),
        *("--host", "127.0.0.1", "--port", str(inner), "--database", str(server / "superlink.db")),
        *("--disable-runtime-dependency-installation", *more),
    ]


def link_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that have the SuperLink open further ports, for the calls of older versions."""
    path = os.pathsep.join([str(Path(command("flower-superlink")).parent), given.get("PATH", "")])
    return {k: v for k, v in given.items() if not k.startswith("FLWR_INTERNAL_GRPC")} | {"PATH": path}


def check_options(more: list[str]) -> None:
    """Options for the SuperLink that would have it listen elsewhere, or believe anybody, are refused."""
    for option in more:
        name = option.partition("=")[0]
        if name.startswith("--") and any(full.startswith(name) for full in _OURS):
            raise InputError(f"{name} is not for the SuperLink: it listens on this machine, behind the front for nodes")


_OURS = (
    *("--host", "--port", "--insecure", "--database", "--fleet-api-address", "--fleet-api-type"),
    *("--control-api-address", "--health-server-address", "--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"),
    *("--isolation", "--simulation", "--enable-supernode-auth", "--allow-runtime-dependency-installation"),
)


@contextlib.contextmanager
def link_running(server: Path, inner: int, insecure: bool, more: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The SuperLink, listening; it ends with this process, however that ends."""
    if listening(inner):
        raise InputError(f"port {inner} of this machine is taken; the SuperLink needs it: choose another --port")
    own = os.getpid()
    link = subprocess.Popen(
        link_command(server, inner, insecure, more), env=link_environment(os.environ), preexec_fn=lambda: die_with(own)
    )
    try:
        end = time.monotonic() + _LINK
        while not listening(inner):
            if link.poll() is not None or time.monotonic() > end:
                raise InputError("the SuperLink did not start; what it said is above")
            time.sleep(0.1)
        yield link
    finally:
        link.terminate()
        try:
            link.wait(8)
        except subprocess.TimeoutExpired:
            link.kill()
            link.wait()


def application(server: Path, inner: int, insecure: bool) -> Front:
    """The front of a SuperLink on this machine."""
    verify = False if insecure else ssl.create_default_context(cafile=str(server / "ca.crt"))
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=16)
    client = httpx.AsyncClient(verify=verify, timeout=60.0, follow_redirects=False, trust_env=False, limits=limits)
    scheme = "http" if insecure else "https"
    return Front(f"{scheme}://127.0.0.1:{inner}", client, None if insecure else Keys(server / "node-keys"))


def served(front: Front, server: Path, host: str, port: int, insecure: bool) -> uvicorn.Server:
    """What listens for nodes: HTTP/1.1 as h11 reads it, no upgrades, and headers of at most 16 kB."""
    tls: dict[str, Any] = {"ssl_certfile": server / "server.crt", "ssl_keyfile": server / "server.key",
                           "ssl_ciphers": "ECDHE+AESGCM:ECDHE+CHACHA20"}  # fmt: skip
    return uvicorn.Server(
        uvicorn.Config(
            front,
            host=host,
            port=port,
            http=Connection,
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=True,  # by which a node whose clock is wrong can say so
            proxy_headers=False,
            limit_concurrency=_ALL,
            timeout_keep_alive=int(_IDLE),
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=16_384,
            **({} if insecure else tls),
        )
    )


async def _until(server: uvicorn.Server, link: subprocess.Popen[bytes]) -> None:
    """Serve until told to stop, or until the SuperLink ends."""

    async def watch() -> None:
        while link.poll() is None:
            await asyncio.sleep(0.5)
        server.should_exit = True

    watching = asyncio.create_task(watch())
    await server.serve()
    watching.cancel()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--inner", type=int, required=True)
    parser.add_argument("--insecure", action="store_true")
    given, more = parser.parse_known_args(arguments)
    server = given.server.absolute()
    try:
        check_options(more)
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # so that the SuperLink is ended too
        with link_running(server, given.inner, given.insecure, more) as link:
            front = application(server, given.inner, given.insecure)
            print(f"nodes are served at {given.host}:{given.port}", flush=True)
            asyncio.run(_until(served(front, server, given.host, given.port, given.insecure), link))
            ended = link.poll()
    except InputError as error:
        sys.exit(f"error: {error}")
    if ended is not None:
        sys.exit(f"error: the SuperLink ended ({ended})")


if __name__ == "__main__":
    main()
