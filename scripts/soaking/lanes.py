"""Jobs one after another, each by `fedsofim serve` as a coordinator types it, and again with --resume when it stops."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedsofim.deploy.checkpoint import CHECKPOINT
from soaking.federation import Federation

TRIES = 12  # of one job
PAUSE = 3.0  # seconds before it is tried again


def orders(nodes: int) -> list[list[str]]:
    """What is ordered in turn; the last one no node allows."""
    everybody = ["--clients", str(nodes), "--patience", "60"]
    paper = ["--recipe", "paper", "--epsilon", "1", *everybody]
    return [
        [*paper, "--method", "fedsofim", "--rounds", "10", "--min-clients", str((nodes + 1) // 2)],
        [*paper, "--method", "fedgd", "--rounds", "8"],
        [*paper, "--method", "fedsofim", "--rounds", "6", "--trust", "secure-sum"],
        ["--recipe", "auto", "--epsilon", "2", "--rounds", "6", *everybody],
        [*paper, "--method", "scaffold", "--set", "local_steps=2", "--rounds", "4"],
        [*paper[:2], "--epsilon", "5000", *everybody, "--method", "fedgd", "--rounds", "2"],
    ]


@dataclass
class Work:
    """One job: what was ordered, how often it was begun, and how it ended."""

    folder: Path
    order: list[str]
    tries: int = 0
    reasons: list[str] = field(default_factory=list)  # why it stopped, each time
    finished: bool = False
    began: float = 0.0
    seconds: float = 0.0


@dataclass
class Lane:
    """One job at a time."""

    federation: Federation
    name: str
    orders: Sequence[list[str]]
    done: list[Work] = field(default_factory=list)
    work: Work | None = None
    process: subprocess.Popen[str] | None = None
    again: float = 0.0

    def tend(self, more: bool) -> bool:
        """Look after the job; begin another if there are to be `more`. Whether there is one."""
        if self.work is None and more:
            number = len(self.done)
            folder = self.federation.folder / "jobs" / f"{self.name}{number + 1}"
            self.work = Work(folder, list(self.orders[number % len(self.orders)]), began=time.monotonic())
        if self.work is None:
            return False
        if self.process is None and time.monotonic() >= self.again:
            self.process = self._serve(self.work)
        if self.process is not None and self.process.poll() is not None:
            self._ended(self.work, self.process)
        return True

    def _serve(self, work: Work) -> subprocess.Popen[str]:
        work.tries += 1
        command = [sys.executable, "-m", "fedsofim", "serve", str(self.federation.server), "--job", str(work.folder)]
        how = ["--resume", "--patience", "60"] if (work.folder / CHECKPOINT).exists() else work.order
        return subprocess.Popen([*command, *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _ended(self, work: Work, process: subprocess.Popen[str]) -> None:
        _, told = process.communicate()
        self.process, self.again = None, time.monotonic() + PAUSE
        if process.returncode == 0:
            work.finished = True
        else:
            work.reasons.append(told.strip() or f"no reason; exit {process.returncode}")
        hopeless = "the smallest allowed here" in "".join(work.reasons[-1:])  # a policy does not change its mind
        if work.finished or hopeless or work.tries >= TRIES:
            work.seconds = time.monotonic() - work.began
            self.done.append(work)
            self.work = None

    def give_up(self) -> None:
        """Its time is over: what is under way counts as ended without a reason."""
        if self.work is not None:
            if self.process is not None:
                self.process.kill()
                self.process.communicate()
            self.work.reasons.append("it did not end in time")
            self.done.append(self.work)
            self.work = None
