"""Fetch a published file once: checked by its hash, resumed where it broke off, with a progress bar.

pooch, requests and rich are imported where they are used: most runs download nothing.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsofim.errors import InputError
from fedsofim.files import cache_folder
from fedsofim.progress import progress_bar

CHUNK = 1 << 18
TIMEOUT = 30  #: seconds without a byte


@dataclass(frozen=True)
class Remote:
    """A published file: where it is, what it is called, and the (start of the) hash it must have."""

    url: str
    file: str
    algorithm: str
    digest: str


def fetch(remote: Remote, source: str | Path | None = None, option: str = "--source") -> Path:
    """The local copy of `remote`: `source` if given, else from the cache, else downloaded into it."""
    if source is not None:
        return _existing(Path(source))
    import pooch
    import requests

    target = cache_folder() / remote.file
    if target.exists():
        return _checked(target, remote)
    pooch.get_logger().setLevel("WARNING")  # one line of ours below says all that its messages would
    downloader: Any = _Resumable(remote)  # pooch types this by a protocol with its own parameter names
    try:
        pooch.retrieve(remote.url, None, remote.file, target.parent, downloader=downloader)
    except (requests.exceptions.RequestException, OSError) as problem:
        raise InputError(
            f"cannot download {remote.url} ({_reason(problem)}). Without a network, fetch it "
            "elsewhere and place "
            f"it at {target}, or pass {option} FILE; a download that broke off is resumed when you try again"
        ) from None
    return target


def matches(path: Path, remote: Remote) -> bool:
    """Whether a file has the published hash."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, remote.algorithm).hexdigest().startswith(remote.digest)


def _reason(problem: Exception) -> str:
    """What a user can act on: the server's answer, or that there was none."""
    answer = getattr(problem, "response", None)
    return type(problem).__name__ if answer is None else f"the server answers {answer.status_code}"


def _checked(path: Path, remote: Remote) -> Path:
    if not matches(path, remote):
        raise InputError(
            f"{path}: not the published file, whose {remote.algorithm} is {remote.digest}; "
            "remove it to download it again"
        )
    return path


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    return path


@dataclass(frozen=True)
class _Resumable:
    """A pooch downloader that keeps what it has got in `<file>.part` and asks only for the rest."""

    remote: Remote

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        part = cache_folder() / (self.remote.file + ".part")
        _receive(url, part)
        if not matches(part, self.remote):
            part.unlink()
            raise InputError(
                f"{url}: the file received does not have the published {self.remote.algorithm} "
                f"{self.remote.digest}; nothing was kept. Try again, or fetch it elsewhere"
            )
        part.replace(output_file)


def _receive(url: str, part: Path) -> None:
    """Append to `part` whatever of `url` it lacks."""
    import requests

    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            return  # nothing is missing; the hash decides
        answer.raise_for_status()
        resumed = answer.status_code == requests.codes.partial_content
        have = have if resumed else 0
        total = have + int(answer.headers["Content-Length"]) if "Content-Length" in answer.headers else None
        with (
            part.open("ab" if resumed else "wb") as file,
            progress_bar(f"downloading {part.stem}", total, of_bytes=True) as progress,
        ):
            progress.at(have)
            for chunk in answer.iter_content(CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress.at(have)
