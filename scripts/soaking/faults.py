"""What goes wrong, by chance: kill -9 of anything, disks that fill up, messages that are lost or come twice."""

import contextlib
import json
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from soak_taps import noted
from soaking.federation import LINK, Federation
from soaking.found import about

FULL = 512  # bytes that a file may have on a full disk: what is there can be read, nothing can be added
MESSAGES = {
    "question lost": 0.01, "answer lost": 0.01, "question repeated": 0.03, "question delivered twice": 0.03,
    "answer sent twice": 0.03,
}  # fmt: skip


class Faults:
    """One fault after another, so many seconds apart on average; what happened is counted."""

    def __init__(self, federation: Federation, seed: int, apart: float) -> None:
        self.federation, self.dice, self.apart = federation, random.Random(seed), apart
        self.counts: Counter[str] = Counter()
        self.next = time.monotonic() + 20.0
        self.full: dict[int, float] = {}  # processes whose disk is full, and until when
        self.kinds: list[tuple[str, float, Callable[[], bool]]] = [
            ("worker killed", 5, lambda: self._kill("worker")),
            ("node killed", 4, self._kill_node),
            ("server killed", 2, lambda: self._kill("server")),
            ("link killed", 1, lambda: self.federation.kill(LINK, self.dice.uniform(0, 4))),
            ("disk of a worker full", 3, lambda: self._fill("worker")),
            ("disk of a node's loop full", 1, lambda: self._fill("node")),
            ("disk of a server full", 1, lambda: self._fill("server")),
            ("disk of the link full", 0.3, lambda: self._fill("link")),
        ]

    def begin(self) -> None:
        (self.federation.taps / "faults.json").write_text(json.dumps(MESSAGES))

    def end(self) -> None:
        """From now on nothing goes wrong any more."""
        (self.federation.taps / "faults.json").unlink(missing_ok=True)
        self._make_room(self.full)
        self.full = {}

    def tend(self) -> None:
        now = time.monotonic()
        over = {pid: at for pid, at in self.full.items() if at < now}
        self._make_room(over)
        self.full = {pid: at for pid, at in self.full.items() if pid not in over}
        if now < self.next:
            return
        self.next = now + self.dice.expovariate(1 / self.apart)
        ((name, _, act),) = self.dice.choices(self.kinds, [weight for _, weight, _ in self.kinds])
        if act():
            self.counts[name] += 1

    def messages(self) -> Counter[str]:
        """Messages that were lost or came twice, by kind."""
        return Counter(line["kind"] for line in noted(self.federation.taps) if line["kind"] in MESSAGES)

    def _kill_node(self) -> bool:
        return self.federation.kill(self.dice.choice(self.federation.names), self.dice.uniform(0, 6))

    def _kill(self, what: str) -> bool:
        pid = self._one(what)
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _fill(self, what: str) -> bool:
        """No file of the process can grow for some seconds. What is written fails as on a full disk."""
        pid = self._one(what)
        if pid is None or not _limit(pid, FULL):
            return False
        self.full[pid] = time.monotonic() + self.dice.uniform(1, 8)
        return True

    def _make_room(self, pids: dict[int, float]) -> None:
        for pid in pids:
            _limit(pid, resource.RLIM_INFINITY)

    def _one(self, what: str) -> int | None:
        found = [process.pid for process in about(self.federation.folder) if process.what == what]
        return self.dice.choice(sorted(found)) if found else None


def _limit(pid: int, size: int) -> bool:
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    except (ProcessLookupError, PermissionError):
        return False
    return True


def left_over(folder: Path) -> list[str]:
    """Files that only a process at work should have."""
    wild = ("**/*.part", "**/*.new", "**/*-journal", "**/*.held/*", "tmp/*")
    return sorted({str(path.relative_to(folder)) for pattern in wild for path in folder.glob(pattern)})
