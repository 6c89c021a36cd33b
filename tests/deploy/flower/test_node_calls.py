"""A node's calls to a SuperLink that means it ill: redirects, answers without end, and words for a terminal."""

import contextlib
import gzip
import http.server
import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

import httpx

from fedsofim.deploy.flower import fleet as fleet_module
from fedsofim.deploy.flower import flower_api
from fedsofim.deploy.flower.fleet import Fleet, Gone, Unreachable, http_client
from fedsofim.deploy.flower.flower_api import HttpGrid, Node, http_client_of, runtime_client_of
from fedsofim.errors import InputError


@contextlib.contextmanager
def serving(answer: Any) -> Iterator[tuple[str, list[str]]]:
    """A server on this machine that answers each call by `answer(handler)`; where it is, and what was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append(self.path)
            with contextlib.suppress(OSError):
                answer(self)

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _send(handler: Any, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def node_at() -> Iterator[Any]:
    """Makes nodes; their connections are closed at the end."""
    made: list[Fleet] = []

    def make(where: str) -> Fleet:
        made.append(Fleet.at(where, None, None))
        made[-1].node = Node(node_id=5)
        return made[-1]

    yield make
    for each in made:
        http_client_of(each.client).close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 300])
def test_a_node_is_sent_nowhere(node_at: Any, status: int):
    """It had followed into the hospital's own network, with its signed headers."""
    with serving(lambda h: _send(h, 200)) as (inside, reached), \
            serving(lambda h: _send(h, status, location=f"http://{inside}/secret")) as (where, asked):  # fmt: skip
        node = node_at(where)
        for use in (
            node.beat,
            lambda: node.fetch(10),
            lambda: node.enter(None),
            lambda: node._part(1, "x"),
            node.leave,
        ):
            with pytest.raises((Unreachable, Gone), match="redirect"):
                use()
        assert asked and reached == []


def test_an_answer_without_end_is_not_read_to_its_end(node_at: Any, monkeypatch):
    monkeypatch.setattr(fleet_module, "_MOST", 100_000)

    def endless(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        while True:
            handler.wfile.write(b"8000\r\n" + bytes(0x8000) + b"\r\n")

    with serving(endless) as (where, _), pytest.raises(Unreachable, match="larger than 100000 bytes"):
        node_at(where).beat()


def test_a_compressed_answer_is_not_unpacked(node_at: Any):
    packed = gzip.compress(bytes(10**6))
    answer = lambda h: _send(h, 200, packed, content_encoding="gzip")  # noqa: E731
    with serving(answer) as (where, _), pytest.raises(Unreachable, match="compressed"):
        node_at(where).beat()


def test_an_answer_that_trickles_ends(node_at: Any, monkeypatch):
    monkeypatch.setattr(fleet_module, "_WHOLE", 0.2)
    monkeypatch.setattr(fleet_module, "_MOST", 10**12)

    def trickle(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000000000000")
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 1000)

    with serving(trickle) as (where, _), pytest.raises(Unreachable, match="took more than"):
        node_at(where).beat()


BODIES = {
    "nothing": b"", "deep": b"[" * 100_000, "a terminal's": json.dumps({"message": "\x1b[2Jgone"}).encode(),
    "bytes": bytes(range(256)), "flower": json.dumps({"code": 1, "message": ["x"], "public_details": {}}).encode(),
}  # fmt: skip


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 409, 426, 429, 500, 503])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_whatever_is_answered_nothing_else_escapes(node_at: Any, status: int, body: bytes):
    with serving(lambda h: _send(h, status, body)) as (where, _):
        node = node_at(where)
        for use in (node.beat, lambda: node.fetch(10), lambda: node.enter(3)):
            try:
                use()
            except (Unreachable, Gone) as error:
                assert str(error).isprintable() and str(error)


def test_a_superlink_cannot_end_a_node_by_its_version(node_at: Any):
    """Flower's own interceptor ends the process when the other side says that it must."""
    text = json.dumps(
        {"code": 1, "message": "version", "public_details": "Flower runtime version incompatible"}
    ).encode()
    with serving(lambda h: _send(h, 400, text)) as (where, _), pytest.raises(Gone):
        node_at(where).beat()


# --- Flower's own clients -----------------------------------------------------------------------------------


def test_flowers_grid_follows_no_redirect():
    grid = HttpGrid("127.0.0.1:1", insecure=True, token="x")
    client = runtime_client_of(grid)
    assert not http_client_of(client).follow_redirects
    client.close()


def test_another_grid_is_none_of_flowers_and_a_changed_one_is_an_error(monkeypatch):
    assert runtime_client_of(object()) is None
    monkeypatch.setattr(HttpGrid, "_runtime_client", None)
    with pytest.raises(
        InputError, match=r"has no connection in HttpGrid\._runtime_client; fedsofim works with flwr 1\.4"
    ):
        runtime_client_of(HttpGrid("127.0.0.1:1", insecure=True, token="x"))


def test_a_client_that_keeps_its_connection_elsewhere_is_an_error():
    class Changed:
        client = httpx.Client()

    with pytest.raises(InputError, match=r"has no HTTP client in Changed\._client"):
        flower_api.set_http_client(Changed(), http_client(None))
    Changed.client.close()


@pytest.mark.parametrize(
    "piece", ["flwr.supernode.fleet_http_client", "flwr.superlink.grid.http_grid", "flwr.common.serde"]
)
def test_a_flower_that_lacks_a_piece_is_an_error_that_names_it(monkeypatch, piece: str):
    monkeypatch.setitem(sys.modules, piece, None)
    assert flower_api.__file__ is not None
    spec = importlib.util.spec_from_file_location("fresh", flower_api.__file__)
    assert spec is not None and spec.loader is not None
    with pytest.raises(InputError, match=rf"lacks a piece.*{piece}.*works with flwr 1\.41 and 1\.42"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
