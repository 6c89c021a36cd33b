"""A page on this machine and for nobody else: HTTP on 127.0.0.1, in a thread that ends with whoever started it.

* The address holds a key, new with every start: another user of this machine who finds the port finds nothing there.
* The Host header must be ours: a site whose name is pointed here (DNS rebinding) is turned away.
* What changes something is a POST with the page's own token, from a page of our own origin.
* Only known paths, small bodies, a few connections at a time, each with an end.
"""

import contextlib
import hmac
import logging
import os
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

from fedsofim.deploy.pages.rendered import HEADERS, content_policy, facts_of, html_of
from fedsofim.deploy.pages.view import View
from fedsofim.errors import InputError
from fedsofim.files import write_whole

HERE = "127.0.0.1"
_LOG = logging.getLogger("fedsofim.pages")
_SECONDS = 5.0  # for one connection's next word
_MOST = 32  # connections at a time
_BODY = 2_000  # bytes of a form


@dataclass(frozen=True, kw_only=True)
class Page:
    """What is served: a view of the moment, and what may be done from it by the name of its form."""

    kind: str
    view: Callable[[], View]
    acts: Mapping[str, Callable[[], None]] = field(default_factory=dict)


@contextlib.contextmanager
def announced(page: Page, port: int, *, place: Path | None = None, linger: float = 0.0) -> Iterator[None]:
    """Serve a page and say where: on the screen and in the file `place`, which only its owner can read."""
    with served(page, port, linger=linger) as address:
        if place is not None:
            with contextlib.suppress(OSError):  # it is printed too
                write_whole(place, lambda file: (os.fchmod(file.fileno(), 0o600), file.write(f"{address}\n".encode())))
        print(f"page: {address}", flush=True)
        try:
            yield
        finally:
            if place is not None:
                with contextlib.suppress(OSError):
                    place.unlink()


@contextlib.contextmanager
def served(page: Page, port: int = 0, *, linger: float = 0.0) -> Iterator[str]:
    """The page's address, for as long as it is served; port 0: any that is free.

    Whoever is looking at the end has so many seconds (`linger`) for a last look, which shows how it ended.
    """
    try:
        server = _Server(page, port)
    except OSError as error:
        raise InputError(
            f"the page cannot be served at port {port} ({error.strerror}); choose another with --page-port"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="fedsofim-page", daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.last_look(linger)
        server.shutdown()
        server.end()
        thread.join()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = False  # joined at the end
    request_queue_size = _MOST

    def __init__(self, page: Page, port: int) -> None:
        super().__init__((HERE, port), _Handler)
        self.page, self.port = page, int(self.server_address[1])
        self.key, self.token = secrets.token_urlsafe(16), secrets.token_urlsafe(32)
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.looked, self.ending, self.seen = 0.0, False, threading.Event()

    @property
    def address(self) -> str:
        return f"http://{HERE}:{self.port}/{self.key}/"

    @property
    def hosts(self) -> tuple[str, str]:
        return f"{HERE}:{self.port}", f"localhost:{self.port}"

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self.lock:
            if len(self.open) >= _MOST:
                return False
            self.open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no news."""

    def look(self) -> View:
        """The view of this moment."""
        self.looked = time.monotonic()
        return self.page.view()

    def last_look(self, seconds: float) -> None:
        """Wait so long for one more look of somebody who looked just now."""
        self.ending = True
        if self.looked and time.monotonic() - self.looked < 2 * seconds:
            self.seen.wait(seconds)

    def end(self) -> None:
        """Close what is open, so that nobody is waited for."""
        with self.lock:
            for request in self.open:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "fedsofim", ""
    timeout = _SECONDS

    @property
    def ours(self) -> _Server:
        return cast(_Server, self.server)

    def do_GET(self) -> None:
        if not self._known():
            return
        name = self._name()
        if name not in ("", "facts.json"):
            self._say(HTTPStatus.NOT_FOUND, "there is nothing here")
            return
        page, last = self.ours.page, self.ours.ending
        try:
            view = self.ours.look()
            text = facts_of(view) if name else html_of(view, page.kind, self.ours.token)
        except Exception:
            _LOG.exception("fedsofim: the page could not be made")
            self._say(HTTPStatus.INTERNAL_SERVER_ERROR, "the page could not be made; the log says why")
            return
        self._send(HTTPStatus.OK, "application/json" if name else "text/html", text)
        if last:
            self.ours.seen.set()

    def do_POST(self) -> None:
        if not self._known():
            return
        act = self.ours.page.acts.get(self._name() or "")
        if act is None:
            self._say(HTTPStatus.NOT_FOUND, "there is nothing to be done here")
        elif not self._own_origin() or not self._token():
            self._say(HTTPStatus.FORBIDDEN, "this did not come from the page itself; load it again")
        else:
            try:
                act()
            except InputError as error:
                self._say(HTTPStatus.CONFLICT, str(error))
                return
            self._send(HTTPStatus.SEE_OTHER, "text/plain", "", {"Location": f"/{self.ours.key}/"})

    def _known(self) -> bool:
        """Is it for us, and from somebody who was given the address?"""
        if self.headers.get("Host", "").lower() not in self.ours.hosts:
            self._say(HTTPStatus.MISDIRECTED_REQUEST, "this is not the address of this page")
            return False
        if self._name() is None:
            self._say(HTTPStatus.NOT_FOUND, "there is nothing here; the address that was printed holds a key")
            return False
        return True

    def _name(self) -> str | None:
        """What stands after the key; None if the key is not ours."""
        key, slash, name = self.path.removeprefix("/").partition("/")
        return name if slash and hmac.compare_digest(key.encode(), self.ours.key.encode()) else None

    def _own_origin(self) -> bool:
        """Browsers say where a form came from; one that says nothing is not believed."""
        return self.headers.get("Origin", "") in [f"http://{host}" for host in self.ours.hosts]

    def _token(self) -> bool:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= _BODY):
            return False
        form = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"), max_num_fields=8)
        given = form.get("token", [""])
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), self.ours.token.encode())

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain", text + "\n")

    def _send(self, status: HTTPStatus, kind: str, text: str, more: Mapping[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": content_policy(), **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request of a browser's to this page."""
        self._say(HTTPStatus(code), "this was not understood")

    def log_message(self, format: str, *args: Any) -> None:
        """The address holds the key, so it goes into no log."""
