"""A soak in one process: two jobs in turns on nodes that are killed at work, whose disks are full, whose messages get
lost or come twice; servers that are killed between rounds. All by dice, so that a seed gives the same soak again."""

import contextlib
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fake_grid import FakeClock, FakeGrid, numbered
from fedsofim.deploy import account, ledger_file, node
from fedsofim.deploy.checkpoint import CHECKPOINT, OUTCOME, restore
from fedsofim.deploy.flower import server_app, strategy
from fedsofim.deploy.flower.post import Post
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.policy import Policy
from soak_invariants import Upload
from soak_taps import Taps, noted, tap_post, tapped_app, uploads_of

MESSAGES = {"answer lost": 0.06, "question repeated": 0.1}
TRIES = 40  # of one job


class Killed(BaseException):
    """kill -9: nothing that catches errors catches it."""


@dataclass(frozen=True)
class Soaked:
    """What happened."""

    left: list[Upload]
    received: list[Upload]
    states: list[JobState]
    outcomes: list[dict[str, Any]]  # of each job, how it ended last
    counts: Counter[str]


class SoakedGrid(FakeGrid):
    """Nodes that are killed at work or have a full disk, as dice say."""

    def __init__(self, nodes: Mapping[int, Policy], taps: Taps, dice: random.Random, counts: Counter[str]) -> None:
        super().__init__(nodes)
        self.app: Any = tapped_app(taps, self.app)
        self.dice, self.counts = dice, counts

    def work(self, node: int, message: Message) -> None:
        faults = {"node killed": _dying, "disk full": _full_disk}
        chosen = self.dice.choices([*faults, ""], [0.12, 0.1, 1.0])[0]
        with faults[chosen](self.dice) if chosen else contextlib.nullcontext():
            try:
                super().work(node, message)
            except Killed:
                self.restart(node)  # the question is lost with it
        self.counts[chosen] += 1


@contextlib.contextmanager
def _dying(dice: random.Random) -> Iterator[None]:
    """Killed after the charge, with the answer computed, or when that is stored and was not yet sent."""
    where, name = dice.choice([(node, "run"), (account.Account, "close_ask"), (node, "from_bytes")])

    def die(*args: Any, **kwargs: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, die)
        yield


@contextlib.contextmanager
def _full_disk(dice: random.Random) -> Iterator[None]:
    """A ledger that cannot grow: SQLite itself says so. Sometimes only from the second use of it on."""
    connected, spared = ledger_file._connected, dice.randrange(4)

    def full(path: Path) -> sqlite3.Connection:
        nonlocal spared
        db, spared = connected(path), spared - 1
        if spared < 0:
            db.execute(f"PRAGMA max_page_count={db.execute('PRAGMA page_count').fetchone()[0]}")
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_file, "_connected", full)
        yield


def soaked(nodes: Sequence[Policy], folder: Path, jobs: Sequence[Mapping[str, Any]], seed: int) -> Soaked:
    """The jobs in turns: each goes on until its server is killed or its round fails, then the next."""
    dice, counts = random.Random(seed), Counter[str]()
    taps = Taps(folder, dice)
    folder.mkdir()
    (folder / "faults.json").write_text(json.dumps(MESSAGES))
    kept, open_jobs = strategy.save, {folder / f"job{i}": dict(job) for i, job in enumerate(jobs)}

    class TappedPost(Post):
        pass

    def save(now: JobState, path: Path) -> None:
        chosen = dice.choices(["server killed before", "server killed after", "server's disk full", ""], [1, 1, 1, 6])[
            0
        ]
        counts[chosen] += 1
        if chosen == "server's disk full":
            raise OSError(28, "No space left on device", str(path))
        if chosen == "server killed before":
            raise Killed
        kept(now, path)
        if chosen == "server killed after":
            raise Killed

    tap_post(taps, TappedPost)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "Post", TappedPost)
        patch.setattr(strategy, "save", save)
        for _ in range(TRIES):
            for path, job in list(open_jobs.items()):
                grid = SoakedGrid(numbered(nodes), taps, dice, counts)
                how = {"resume": True} if (path / CHECKPOINT).exists() else job
                with contextlib.suppress(Killed, SystemExit):
                    server_app.run(grid, {"folder": str(path), "patience": 5.0, **how}, FakeClock())
                    del open_jobs[path]
    paths = [folder / f"job{i}" for i in range(len(jobs))]
    lines = list(noted(folder))
    counts.update(line["kind"] for line in lines)
    return Soaked(
        uploads_of(lines, "left"), uploads_of(lines, "received"), [restore(p / CHECKPOINT) for p in paths],
        [json.loads((p / OUTCOME).read_text()) for p in paths], counts,
    )  # fmt: skip
