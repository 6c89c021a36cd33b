"""The front before the SuperLink: from a node's position nothing is reached but a node's own calls."""

import asyncio
import contextlib
import importlib
import pkgutil
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

import flwr.proto
import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedsofim.deploy import credentials, processes, readiness
from fedsofim.deploy.address import Address
from fedsofim.deploy.flower import fleet as fleet_module
from fedsofim.deploy.flower import front as front_module
from fedsofim.deploy.flower.fleet import Fleet, NotAdmittedError
from fedsofim.deploy.flower.flower_api import Node, public_key_to_bytes
from fedsofim.deploy.flower.front import (
    CALLS,
    WITHOUT_KEYS,
    Front,
    Keys,
    TurnedAwayError,
    check_options,
    check_own,
    link_environment,
    served,
)
from fedsofim.errors import InputError

BEAT = "/v1/fleet/send-node-heartbeat"


class Link:
    """What of the SuperLink is behind the front: it notes what reaches it."""

    def __init__(self) -> None:
        self.reached: list[httpx.Request] = []
        self.answer = httpx.Response(200, content=b"answered", headers={"content-type": "application/protobuf"})

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.reached.append(request)
        return self.answer


class Running:
    """A front that listens, with the key of one node."""

    def __init__(self, folder: Path, insecure: bool = False) -> None:
        self.link, self.port = Link(), processes.free_port()
        (folder / "node-keys").mkdir()
        (folder / "node").mkdir()
        (folder / "node-keys" / "node-1.pub").write_bytes(credentials.node_key(folder / "node", "node-1"))
        self.key = fleet_module.private_key(folder / "node" / "node.key")
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.link))
        self.front = Front("https://link", client, None if insecure else Keys(folder / "node-keys"))
        self.server = served(self.front, folder, "127.0.0.1", self.port, insecure=True)

    def headers(self, key: ec.EllipticCurvePrivateKey | None = None) -> dict[str, str]:
        """As a node signs a call."""
        from flwr.supercore.date import now
        from flwr.supercore.primitives.asymmetric import sign_message

        key, signed = key or self.key, now().isoformat()
        return {
            front_module._KEY: b64encode(public_key_to_bytes(key.public_key())).decode(),
            front_module._TIME: signed,
            front_module._SIGNATURE: b64encode(sign_message(key, signed.encode())).decode(),
        }

    def call(self, path: str, method: str = "POST", headers: dict[str, str] | None = None, body: bytes = b"") -> int:
        given = self.headers() if headers is None else headers
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}") as client:
            return client.request(method, path, headers=given, content=body).status_code

    def raw(self, text: bytes) -> bytes:
        """What comes back on a connection of its own, up to its end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as s:
            s.sendall(text)
            s.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                return b"".join(iter(lambda: s.recv(4096), b""))
            return b""

    def signed(self) -> bytes:
        return "".join(f"{k}: {v}\r\n" for k, v in self.headers().items()).encode()


@contextlib.contextmanager
def running(folder: Path, **how: Any) -> Iterator[Running]:
    found = Running(folder, **how)
    thread = threading.Thread(target=lambda: asyncio.run(found.server.serve()))
    thread.start()
    try:
        processes.wait_for(lambda: found.server.started, 30, "the front's start")
        yield found
    finally:
        found.server.should_exit = True
        thread.join()


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        yield found


# --- what passes --------------------------------------------------------------------------------------------


def test_every_call_of_our_nodes_passes_and_no_other(front: Running):
    for path in CALLS:
        body = _push() if path.endswith(b"push-messages") else b"x"
        assert front.call(path.decode(), body=body) == 200
    assert [r.url.raw_path for r in front.link.reached] == list(CALLS)
    with running_calls() as asked:
        fleet = Fleet.at("127.0.0.1:1", None, None)
        fleet.registers, fleet.node = False, Node(node_id=5)
        for use in (
            fleet.beat,
            lambda: fleet.fetch(1),
            lambda: fleet.enter(None),
            fleet.leave,
            lambda: fleet._part(1, "x"),
        ):
            with contextlib.suppress(Exception):
                use()
    assert asked and asked <= {path.decode() for path in CALLS}


@contextlib.contextmanager
def running_calls() -> Iterator[set[str]]:
    """The paths that a node's client asks for."""
    asked: set[str] = set()

    def note(self: Any, *, path: str, **more: Any) -> Any:
        asked.add(path)
        raise httpx.ConnectError("away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FleetHttpClient, "_unary_unary", note)
        yield asked


def test_nothing_of_a_request_passes_but_its_body_and_its_keys_headers(front: Running):
    more = {
        "x-forwarded-for": "1.2.3.4",
        "authorization": "Bearer x",
        "cookie": "a=b",
        "host": "evil",
        "flwr-account": "me",
    }
    assert front.call(BEAT, headers=front.headers() | more, body=b"body") == 200
    (passed,) = front.link.reached
    assert passed.content == b"body" and str(passed.url) == f"https://link{BEAT}"
    mine = {front_module._KEY.lower(), front_module._TIME.lower(), front_module._SIGNATURE.lower()}
    allowed = {"content-type", "accept", "accept-encoding", "content-length", "host", "connection", "user-agent"}
    assert {k.lower() for k in passed.headers} <= mine | allowed
    assert passed.headers["host"] == "link"


# --- what is turned away ------------------------------------------------------------------------------------


def routes() -> list[tuple[str, str]]:
    """Every route of the SuperLink, by its own table, and every method of Flower's gRPC services as a path."""
    from flwr.superlink.main import create_app

    found: list[tuple[str, str]] = []

    def walk(table: Any) -> None:
        for route in table:
            if (methods := getattr(route, "methods", None)) and (path := getattr(route, "path", None)):
                found.extend((method, path) for method in methods)
            for inner in ("routes", "original_router"):
                below = getattr(route, inner, None)
                walk(getattr(below, "routes", below) or ())

    walk(create_app().routes)
    for module in pkgutil.iter_modules(flwr.proto.__path__):
        if module.name.endswith("_pb2"):
            services = importlib.import_module(f"flwr.proto.{module.name}").DESCRIPTOR.services_by_name.values()
            found += [("POST", f"/{s.full_name}/{m.name}") for s in services for m in s.methods]
    return sorted(set(found))


def test_every_route_of_the_superlink_but_a_nodes_own_is_turned_away(front: Running):
    there = routes()
    paths = {path for _, path in there}
    assert {path.decode() for path in WITHOUT_KEYS} <= paths, "Flower renamed a call of nodes"
    assert {"/v1/control/start-run", "/openapi.json"} <= paths and any("flwr.proto.Control" in p for p in paths)
    assert any(p.startswith("/v1/runtime") for p in paths)
    others = [(method, path) for method, path in there if method != "POST" or path.encode() not in CALLS]
    assert len(others) > 60
    assert {front.call(path, method) for method, path in others} == {403}
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "PROPFIND"):
        assert front.call(BEAT, method) == 403
    assert front.link.reached == []


START = "/v1/control/start-run"
SPELT = [
    f"/v1/fleet/..{START[3:]}", f"/v1/fleet/%2e%2e{START[3:]}", f"/{START}", "/v1/fleet//get-run", f"{BEAT}/",
    f"{BEAT}/../..{START[3:]}",
    "/v1/fleet/send-node-heartbea%74", BEAT.replace("v1", "V1"), f"{BEAT}?x=1", f"{BEAT}%00", "*", f"{BEAT};{START}",
    f"http://127.0.0.1:9093{START}", f"http://127.0.0.1{BEAT}", "/v1/fleet\\..\\control/start-run", f"{BEAT}#{START}",
    "/v1/fleet/get-run", "/v1/fleet/get-fab", "/v1/fleet/register-node", "/",
]  # fmt: skip


@pytest.mark.parametrize("target", SPELT)
def test_no_spelling_of_a_path_reaches_another(front: Running, target: str):
    said = front.raw(b"POST %s HTTP/1.1\r\nhost: x\r\n%scontent-length: 0\r\n\r\n" % (target.encode(), front.signed()))
    assert said.split(b" ")[1] in (b"400", b"403"), said
    assert front.link.reached == []


@pytest.mark.parametrize("head", [
    b"CONNECT 127.0.0.1:9093 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    b"GET /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"\x16\x03\x01 not http\r\n\r\n", b"POST " + BEAT.encode() + b"\r\n\r\n",
    b"POST " + BEAT.encode() + b" HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
], ids=range(7))  # fmt: skip
def test_other_protocols_and_endless_heads_are_turned_away(front: Running, head: bytes):
    said = front.raw(head)
    assert said == b"" or said.split(b" ")[1] in (b"400", b"401", b"403"), said
    assert front.link.reached == []


def test_no_second_request_hides_in_a_body(front: Running):
    """Lengths that contradict each other are the way to do it; the SuperLink only ever sees what the front made."""
    hidden = b"POST /v1/control/start-run HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    first = b"POST " + BEAT.encode() + b" HTTP/1.1\r\nhost: x\r\n" + front.signed()
    none, chunks = b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n"
    for lengths in (none + chunks, b"content-length: 3\r\n" + none, chunks, chunks.replace(b"ch", b"xch"), none):
        front.raw(first + lengths + b"\r\n0\r\n\r\n" + hidden)
    assert {r.url.path for r in front.link.reached} <= {BEAT}
    assert all(r.content == b"" for r in front.link.reached)


def test_a_header_that_comes_twice_is_turned_away(front: Running):
    said = front.raw(
        b"POST %s HTTP/1.1\r\nhost: x\r\n%s%scontent-length: 0\r\n\r\n"
        % (BEAT.encode(), front.signed(), front.signed())
    )
    assert b" 400 " in said and front.link.reached == []


def test_who_has_no_key_of_a_node_reaches_nothing(front: Running, tmp_path: Path):
    other = ec.generate_private_key(ec.SECP384R1())
    good = front.headers()
    forged = good | {front_module._SIGNATURE: front.headers(other)[front_module._SIGNATURE]}
    for headers in ({}, front.headers(other), forged, dict.fromkeys(good, ""), dict.fromkeys(good, "!" * 3000)):
        assert front.call(BEAT, headers=headers) == 401
    assert front.link.reached == []
    (tmp_path / "node-keys" / "node-1.pub").unlink()  # a key that is taken back
    front.front.keys.read_at -= 10  # type: ignore[union-attr]
    assert front.call(BEAT, headers=good) == 401


def test_bodies_have_a_size(front: Running):
    assert front.call(BEAT, body=bytes(10_001)) == 413
    head = b"POST %s HTTP/1.1\r\nhost: x\r\n%stransfer-encoding: chunked\r\n\r\n" % (BEAT.encode(), front.signed())
    assert b" 413 " in front.raw(head + b"4e20\r\n" + bytes(20_000) + b"\r\n0\r\n\r\n")  # without saying how much
    assert front.call(BEAT, headers=front.headers() | {"content-encoding": "gzip"}) == 415
    assert front.link.reached == []


def test_slow_calls_and_idle_connections_end(front: Running, monkeypatch):
    monkeypatch.setattr(front_module, "_SECONDS", 0.3)
    monkeypatch.setattr(front_module, "_IDLE", 0.3)
    slow = b"POST %s HTTP/1.1\r\nhost: x\r\n%scontent-length: 9\r\n\r\nab" % (BEAT.encode(), front.signed())
    for text in (slow, b"POST /v1/fl", b""):
        with socket.create_connection(("127.0.0.1", front.port), timeout=60) as s:
            s.sendall(text)
            with contextlib.suppress(ConnectionError):
                while s.recv(4096):  # ends by the front's doing: this side never closes
                    pass
    assert front.link.reached == []


def test_one_address_has_so_many_connections_and_no_more(front: Running, monkeypatch):
    monkeypatch.setattr(front_module, "_EACH", 3)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", front.port), timeout=20))
        processes.wait_for(lambda: front_module.Connection.open["127.0.0.1"] == 3, 20, "three connections")
        with socket.create_connection(("127.0.0.1", front.port), timeout=20) as s, contextlib.suppress(ConnectionError):
            assert s.recv(1) == b""
    processes.wait_for(lambda: not front_module.Connection.open, 20, "the end of all connections")


def test_a_redirect_of_the_superlink_is_not_followed(front: Running):
    front.link.answer = httpx.Response(307, headers={"location": "http://127.0.0.1:1/"})
    assert front.call(BEAT) == 502 and len(front.link.reached) == 1


def test_a_rehearsal_has_no_keys_and_turns_away_all_the_same(tmp_path: Path):
    with running(tmp_path, insecure=True) as front:
        assert front.call("/v1/fleet/register-node", headers={}) == 200
        assert front.call("/v1/control/start-run", headers={}) == 403
        assert len(front.link.reached) == 1


# --- in whose name ------------------------------------------------------------------------------------------


def _push(**meta: Any) -> bytes:
    request = PushMessagesRequest(node=Node(node_id=7), message_object_trees=[ObjectTree(object_id="0" * 64)])
    fields = {"src_node_id": 7, "dst_node_id": 1, "reply_to_message_id": "a" * 64} | meta
    request.messages_list.add(metadata=fields)
    return request.SerializeToString()


def test_a_node_speaks_in_its_own_name_only():
    check_own(_push())
    others: list[dict[str, Any]] = [
        {"src_node_id": 1, "reply_to_message_id": ""},
        {"src_node_id": 8},
        {"dst_node_id": 8},
        {"reply_to_message_id": ""},
    ]
    for other in others:
        with pytest.raises(TurnedAwayError, match="own name only"):
            check_own(_push(**other))
    twice = PushMessagesRequest.FromString(_push())
    twice.messages_list.append(twice.messages_list[0])
    for strange in (twice.SerializeToString(), b"", PushMessagesRequest(node=Node(node_id=7)).SerializeToString()):
        with pytest.raises(TurnedAwayError, match="one reply at a time"):
            check_own(strange)
    with pytest.raises(TurnedAwayError, match="cannot be read"):
        check_own(b"\xff\xff\xff")


# --- how the SuperLink is started ---------------------------------------------------------------------------


def test_the_superlink_listens_on_this_machine_whatever_is_given(monkeypatch):
    monkeypatch.setattr(front_module, "command", lambda name: f"/bin/{name}")
    line = front_module.link_command(Path("/s"), 9093, False, ["--log-file", "x"])
    assert line[line.index("--host") + 1] == "127.0.0.1" and "--enable-supernode-auth" in line
    assert Address(port=9092).inner == 9093 and Address(port=65535).inner == 65534
    environment = link_environment(
        {"FLWR_INTERNAL_GRPC_CONTROL_API": "1", "FLWR_INTERNAL_GRPC_FLEET_API": "1", "A": "b"}
    )
    assert set(environment) == {"A", "PATH"}
    check_options(["--log-file", "x"])
    for option in (
        "--host=0.0.0.0",
        "--hos",
        "--insecure",
        "--control-api-address",
        "--health-server-address=x",
        "--port",
    ):
        with pytest.raises(InputError, match="not for the SuperLink"):
            check_options([option])


def test_the_front_asks_for_tls_as_nodes_speak_it(tmp_path: Path):
    credentials.server_certificate(tmp_path, ["localhost", "127.0.0.1"], credentials.authority(tmp_path))
    config = served(Front("https://link", httpx.AsyncClient(), None), tmp_path, "127.0.0.1", 1, insecure=False).config
    config.load()
    assert config.ssl is not None and config.ssl.minimum_version >= ssl.TLSVersion.TLSv1_2


# --- clocks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds, said", [(30, r"clock is \d+ s ahead of the coordinator's.*NTP"), (-400, "s behind"),
                                           (0, "does not know this node's key yet")])  # fmt: skip
def test_a_wrong_clock_is_told_from_an_unknown_key(
    front: Running, tmp_path: Path, monkeypatch, seconds: int, said: str
):
    """The front dates its answers, so a node that is turned away knows how far off its clock is."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    monkeypatch.setattr(fleet_module, "datetime", Clock)
    (tmp_path / "other").mkdir()
    credentials.node_key(tmp_path / "other", "stranger")
    node = Fleet.at(f"127.0.0.1:{front.port}", None, tmp_path / "other" / "node.key")
    with pytest.raises(NotAdmittedError, match=said):
        node.enter(None)


def test_check_compares_the_clock_with_the_coordinators(front: Running, monkeypatch):
    where = f"127.0.0.1:{front.port}"
    assert [finding.right for finding in readiness._of_clock(where, None)] == [True]
    monkeypatch.setattr(readiness, "ahead_of", lambda date, now: 30.0 if date else None)
    (finding,) = readiness._of_clock(where, None)
    assert not finding.right and "30 s ahead of the coordinator's" in finding.text
    monkeypatch.setattr(readiness, "ahead_of", lambda date, now: -30.0 if date else None)
    (finding,) = readiness._of_clock(where, None)
    assert finding.right and finding.mark == "note"
