"""Downloads against a server on this machine: checked, resumed, kept; a clear word when there is none."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedsofim.data.download import Remote, fetch
from fedsofim.data.image_sources import read_images
from fedsofim.errors import InputError

CONTENT = bytes(range(256)) * 4000


@dataclass
class Server:
    """What the server serves, and what it was asked for."""

    url: str = ""
    ranges: list[str | None] = field(default_factory=list)
    cut_after: int | None = None  # break the connection after so many bytes
    knows_ranges: bool = True
    missing: bool = False


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Range"]
            state.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and state.knows_ranges else 0
            if state.missing or start >= len(CONTENT):
                return self.send_error(404 if state.missing else 416)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(CONTENT) - start))
            self.end_headers()
            end = len(CONTENT) if state.cut_after is None else start + state.cut_after
            self.wfile.write(CONTENT[start:end])
            return None

        def log_message(self, format: str, *args: object) -> None:
            pass

    monkeypatch.setenv("FEDSOFIM_CACHE", str(tmp_path / "cache"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{running.server_address[1]}/file"
        yield state
        running.shutdown()
        thread.join()


def remote(server: Server, digest: str | None = None) -> Remote:
    return Remote(server.url, "file.bin", "md5", digest or hashlib.md5(CONTENT).hexdigest())


def test_downloads_once_and_keeps(server: Server) -> None:
    path = fetch(remote(server))
    assert path.read_bytes() == CONTENT
    assert fetch(remote(server)) == path
    assert server.ranges == [None]
    assert [file.name for file in path.parent.iterdir()] == ["file.bin"]


def test_resumes_what_broke_off(server: Server) -> None:
    server.cut_after = 300_000
    with pytest.raises(InputError, match="resumed when you try again"):
        fetch(remote(server))
    server.cut_after = None
    assert fetch(remote(server)).read_bytes() == CONTENT
    first, second = server.ranges
    assert first is None and second is not None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) <= 300_000


def test_starts_again_where_the_server_knows_no_ranges(server: Server, tmp_path: Path) -> None:
    server.knows_ranges = False
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file.bin.part").write_bytes(b"junk")
    assert fetch(remote(server)).read_bytes() == CONTENT


def test_a_complete_part_needs_no_more_bytes(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file.bin.part").write_bytes(CONTENT)
    assert fetch(remote(server)).read_bytes() == CONTENT


def test_a_wrong_hash_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not have the published md5"):
        fetch(remote(server, "0" * 32))
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_first_digits_of_a_hash_suffice(server: Server) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()[:8]
    assert fetch(Remote(server.url, "w.pt", "sha256", digest)).read_bytes() == CONTENT


def test_a_wrong_file_in_the_cache_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file.bin").write_bytes(b"other")
    with pytest.raises(InputError, match=r"file.bin: not the published file"):
        fetch(remote(server))


def test_offline_says_which_file_to_place_where(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        fetch(Remote("http://127.0.0.1:1/x.npz", "x.npz", "md5", "0"))
    message = str(caught.value)
    assert str(tmp_path / "cache" / "x.npz") in message and "--source FILE" in message
    assert "http://127.0.0.1:1/x.npz" in message


def test_a_file_the_server_has_not(server: Server) -> None:
    server.missing = True
    with pytest.raises(InputError, match="the server answers 404"):
        fetch(remote(server))


def test_a_source_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"nowhere.npz: no such file"):
        read_images("pathmnist", "nowhere.npz")
