"""The page's server: for this machine, for who was given the address, and changed by nobody but the page itself."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedsofim.deploy.pages import loopback
from fedsofim.deploy.pages.loopback import Page, announced, served
from fedsofim.deploy.pages.view import Cell, Gauge, View
from fedsofim.errors import InputError

VIEW = View(title="n0", about="", state=Cell("answering"), notices=(), gauge=Gauge("Budget", "1", "", 0.5, ("0", "2")),
            figures=(), tables=(), stopped=False)  # fmt: skip


class Visitor(NamedTuple):
    """A served page, and what was done from it."""

    address: str
    done: list[str]

    @property
    def port(self) -> int:
        return int(self.address.split(":")[2].split("/")[0])

    @property
    def key(self) -> str:
        return self.address.rstrip("/").rpartition("/")[2]

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> tuple[int, str, Any]:
        """(status, body, headers), with our own Host unless another is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, answer.headers

    @property
    def token(self) -> str:
        found = re.search(r'name="token" value="([^"]+)"', self.ask(f"/{self.key}/")[1])
        assert found
        return found.group(1)

    def press(self, what: str, token: str, **headers: str) -> int:
        return self.ask(f"/{self.key}/{what}", "POST", f"token={token}", **headers)[0]


@pytest.fixture(scope="module")
def visitor() -> Iterator[Visitor]:
    done: list[str] = []

    def fail() -> None:
        raise InputError("the disk is full")

    acts = {"stop": lambda: done.append("stop"), "fail": fail}
    with served(Page(kind="node", view=lambda: VIEW, acts=acts)) as address:
        yield Visitor(address, done)


def test_the_page_and_its_facts(visitor: Visitor):
    status, html, headers = visitor.ask(f"/{visitor.key}/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>n0</h1>" in html
    status, facts, headers = visitor.ask(f"/{visitor.key}/facts.json")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(facts)["gauge"]["part"] == 0.5


def test_it_listens_on_this_machine_only(visitor: Visitor):
    assert visitor.address.startswith("http://127.0.0.1:")
    for host in ("127.0.0.2", "::1"):
        with pytest.raises(OSError), socket.create_connection((host, visitor.port), timeout=5):
            pass


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}",
                                  "localhost.evil.example:{port}", "127.0.0.1:{port}@evil.example", ""])  # fmt: skip
def test_another_host_is_turned_away(visitor: Visitor, host: str):
    status, text, _ = visitor.ask(f"/{visitor.key}/", Host=host.format(port=visitor.port))
    assert status == 421
    assert "n0" not in text
    token = visitor.token
    home = f"http://127.0.0.1:{visitor.port}"
    assert visitor.press("stop", token, Host=host.format(port=visitor.port), Origin=home) == 421
    assert visitor.done == []


def test_localhost_is_this_machine_too(visitor: Visitor):
    assert visitor.ask(f"/{visitor.key}/", Host=f"localhost:{visitor.port}")[0] == 200


@pytest.mark.parametrize("path", ["/", "/facts.json", "/{wrong}/", "/{wrong}/facts.json", "/{key}", "/{key}/../",
                                  "/{key}/policy.toml", "/{key}/facts.json/", "/{key}//", "/%2e%2e/", "*"])  # fmt: skip
def test_nothing_is_found_without_the_key_or_elsewhere(visitor: Visitor, path: str):
    status, text, _ = visitor.ask(path.format(key=visitor.key, wrong="A" * len(visitor.key)))
    assert status == 404
    assert "n0" not in text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "<script>"])
def test_no_other_method_is_known(visitor: Visitor, method: str):
    status, text, headers = visitor.ask(f"/{visitor.key}/", method)
    assert status == 501
    assert text == "this was not understood\n"
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_a_stop_comes_from_the_page_itself_or_from_nobody(visitor: Visitor):
    token, home = visitor.token, f"http://127.0.0.1:{visitor.port}"
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": f"https://127.0.0.1:{visitor.port}"},
                   {"Origin": f"{home}.evil.example"}, {"Referer": home}):  # fmt: skip
        assert visitor.press("stop", token, **origin) == 403
    for wrong in (
        "",
        "x",
        token[:-1],
        token + "&token=" + token,
        "\ud83d\ude00".encode("utf-16", "surrogatepass").hex(),
    ):
        assert visitor.press("stop", wrong, Origin=home) == 403
    assert visitor.ask(f"/{visitor.key}/stop", "GET", Origin=home)[0] == 404
    assert visitor.ask(f"/{visitor.key}/stop", "POST", "x" * 10_000, Origin=home)[0] == 403
    assert visitor.done == []
    status, _, headers = visitor.ask(f"/{visitor.key}/stop", "POST", f"token={token}", Origin=home)
    assert (status, headers["Location"]) == (303, f"/{visitor.key}/")
    assert visitor.done == ["stop"]
    visitor.done.clear()


def test_only_what_the_page_offers_can_be_done_and_failure_is_told(visitor: Visitor):
    home = f"http://127.0.0.1:{visitor.port}"
    assert visitor.press("resume", visitor.token, Origin=home) == 404
    status, text, _ = visitor.ask(f"/{visitor.key}/fail", "POST", f"token={visitor.token}", Origin=home)
    assert (status, text) == (409, "the disk is full\n")


def test_every_response_forbids_what_the_page_does_not_need(visitor: Visitor):
    for path in (f"/{visitor.key}/", f"/{visitor.key}/facts.json", "/nothing"):
        headers = visitor.ask(path)[2]
        policy = headers["Content-Security-Policy"]
        for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'",
                     "require-trusted-types-for 'script'"):  # fmt: skip
            assert rule in policy
        assert "unsafe" not in policy and "http" not in policy
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Python" not in headers["Server"]


def test_a_view_that_fails_says_so_and_nothing_of_why(caplog):
    def broken() -> View:
        raise ZeroDivisionError("record 17 is Meier")

    with served(Page(kind="node", view=broken)) as address:
        status, text, _ = Visitor(address, []).ask("/" + address.split("/", 3)[3])
    assert status == 500
    assert "Meier" not in text
    assert "Meier" in caplog.text


# --- it ends ------------------------------------------------------------------------------------------------


def test_it_leaves_no_thread_and_no_port_even_with_somebody_on_the_line():
    before = set(threading.enumerate())
    with served(Page(kind="node", view=lambda: VIEW)) as address:
        visitor = Visitor(address, [])
        idle = socket.create_connection(("127.0.0.1", visitor.port))
        idle.sendall(b"GET / HT")
        assert visitor.ask(f"/{visitor.key}/")[0] == 200
    assert set(threading.enumerate()) - before == set()
    assert idle.recv(10) == b""
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", visitor.port), timeout=5)


def test_too_many_connections_are_turned_away_and_the_page_comes_back(monkeypatch):
    monkeypatch.setattr(loopback, "_MOST", 3)
    with served(Page(kind="node", view=lambda: VIEW)) as address:
        visitor = Visitor(address, [])
        held = [socket.create_connection(("127.0.0.1", visitor.port)) for _ in range(3)]
        for each in held:
            each.sendall(b"GET / HT")
        with pytest.raises((OSError, http.client.HTTPException)):
            visitor.ask(f"/{visitor.key}/")
        for each in held:
            each.close()
        answers = (_tried(visitor) for _ in range(1000))
        assert next(status for status in answers if status) == 200


def _tried(visitor: Visitor) -> int:
    try:
        return visitor.ask(f"/{visitor.key}/")[0]
    except (OSError, http.client.HTTPException):
        return 0


def test_a_port_that_is_taken_is_an_error_in_words():
    with served(Page(kind="node", view=lambda: VIEW)) as address:
        again = served(Page(kind="node", view=lambda: VIEW), Visitor(address, []).port)
        with pytest.raises(InputError, match="--page-port"):
            again.__enter__()


def test_whoever_looks_at_the_end_sees_how_it_ended():
    state, found = ["training"], []

    def look_on(visitor: Visitor) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                found.append(json.loads(visitor.ask(f"/{visitor.key}/facts.json")[1])["title"])
                began.set()
                time.sleep(0.2)

    began = threading.Event()
    with served(Page(kind="job", view=lambda: replace(VIEW, title=state[0])), linger=20.0) as address:
        looking = threading.Thread(target=look_on, args=(Visitor(address, []),))
        looking.start()
        assert began.wait(20)
        state[0] = "finished"
    looking.join()
    assert found[0] == "training"
    assert found[-1] == "finished"


def test_the_address_is_printed_and_kept_for_its_owner_alone(tmp_path: Path, capsys):
    with announced(Page(kind="node", view=lambda: VIEW), 0, place=tmp_path / "page"):
        address = capsys.readouterr().out.removeprefix("page: ").strip()
        assert (tmp_path / "page").read_text().strip() == address
        assert (tmp_path / "page").stat().st_mode & 0o077 == 0
        assert Visitor(address, []).ask("/" + address.split("/", 3)[3])[0] == 200
    assert not (tmp_path / "page").exists()
