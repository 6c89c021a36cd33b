"""Seconds of a federation's round, and a node's memory: one server and three nodes on this machine, TLS on.

    python benchmarks/rounds.py                  # all; docs/federation_rounds.json and its section of the page
    python benchmarks/rounds.py --only small --out /tmp

A round is counted from one checkpoint's note to the next, as `fedsofim serve` shows it: question, three answers,
step and checkpoint. The first one, in which programs are read and compiled, is told apart.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import machine
import numpy as np
from rounds_section import section

from fedsofim.data.npz import save_npz
from fedsofim.deploy import processes
from fedsofim.deploy.address import Address
from fedsofim.deploy.checkpoint import OUTCOME, PROGRESS
from fedsofim.deploy.demo import federated
from fedsofim.deploy.handout import Terms, hand_out
from fedsofim.deploy.policy import read_policy

DOCS = Path(__file__).parents[1] / "docs"
NODES = 3
IDLE_MB = 400


class Size(NamedTuple):
    """A head's parameters are classes x (features + 1)."""

    features: int
    records: int
    rounds: int
    seconds: float  # a round may take, at most


SIZES = {
    "small": Size(features=64, records=600, rounds=20, seconds=1.0),  # 650 parameters
    "large": Size(features=99_999, records=60, rounds=6, seconds=6.0),  # a million
}
CLASSES = 10


@contextlib.contextmanager
def federation(folder: Path, size: Size) -> Iterator[list[Path]]:
    """Nodes with records of that size, running."""
    where, names = Address(port=processes.free_port()), [f"node-{i + 1}" for i in range(NODES)]
    hand_out(folder, names, where, Terms(epsilon=50.0, methods=("fedsofim",)))
    random, nodes = np.random.default_rng(0), [folder / "nodes" / name for name in names]
    for node in nodes:
        x = random.standard_normal((size.records, size.features), np.float32)
        save_npz(node / "records.npz", {"x": x, "y": random.integers(0, CLASSES, size.records)})
        read_policy(node / "policy.toml").account.create()
    with federated(folder, where, nodes):
        yield nodes


def measured(folder: Path, size: Size) -> dict[str, Any]:
    """One job."""
    with federation(folder, size) as nodes:
        processes.wait_for(
            lambda: all("connected" in _text(node / "node.log") for node in nodes), 300, "the nodes' start"
        )
        idle = [_memory(node, "node_loop") for node in nodes]
        job = folder / "job"
        order = {"recipe": "paper", "method": "fedsofim", "epsilon": 5.0, "rounds": size.rounds, "clients": NODES}
        began = time.time()
        processes.submit(folder / "server", {"folder": str(job), "patience": 300.0, **order})
        _wait_round(job, 1)
        before = work_of(folder)
        ends = _ends(job)
        work = work_of(folder) - before
        busy = [_memory(node, "worker") for node in nodes]
    rounds = np.diff(ends)  # from the end of the first round on
    return {
        "parameters": CLASSES * (size.features + 1),
        "records a node": size.records,
        "rounds": size.rounds,
        "seconds from submission to the end of round 1": round(ends[0] - began, 2),
        "seconds a round, median": round(float(statistics.median(rounds)), 3),
        "seconds a round, fastest": round(float(min(rounds)), 3),
        "seconds a round, slowest": round(float(max(rounds)), 3),
        "at most": size.seconds,
        "CPU seconds a round": {what: round(each / len(rounds), 3) for what, each in sorted(work.items())},
        "MB of an idle node": max(idle),
        "MB of a node's worker beside it, during a job": max(busy),
    }


KINDS = {
    "flower.worker": "the nodes' workers", "flower.node_loop": "the nodes' loops", "flwr-serverapp": "the server",
    "flower-superlink": "the SuperLink", "flower.front": "the SuperLink",  # which it stands before
}  # fmt: skip


def work_of(folder: Path) -> Counter[str]:
    """CPU seconds that the federation's processes have used so far, by kind. Unlike time it is not others' doing."""
    found: Counter[str] = Counter()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            if str(folder).encode() in command + environment:
                kind = next((name for part, name in KINDS.items() if part.encode() in command), "others")
                ticks = (entry / "stat").read_text().rpartition(")")[2].split()[11:13]
                found[kind] += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")  # type: ignore[arg-type]
    return found


def _wait_round(job: Path, done: int) -> None:
    def there() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((job / PROGRESS).read_text()).get("round", 0) >= done
        return False

    processes.wait_for(lambda: there() or (job / OUTCOME).exists(), 900, f"round {done}")


def _ends(job: Path) -> list[float]:
    """When each round was done, from the first that is seen on: the times of the job's notes."""
    seen: dict[int, float] = {}
    while not (job / OUTCOME).exists():
        with contextlib.suppress(OSError, ValueError):
            at, facts = (job / PROGRESS).stat().st_mtime, json.loads((job / PROGRESS).read_text())
            if "round" in facts:
                seen.setdefault(facts["round"], at)
        time.sleep(0.005)
    outcome = json.loads((job / OUTCOME).read_text())
    if "failed" in outcome:
        raise SystemExit(f"the job failed: {outcome['failed']}")
    facts = json.loads((job / PROGRESS).read_text())
    seen.setdefault(facts["round"], (job / PROGRESS).stat().st_mtime)
    return [seen[round] for round in sorted(seen)]


def _memory(node: Path, what: str) -> int:
    """Resident MB of the node's process of that kind; 0 if there is none."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, StopIteration):
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if f"fedsofim.deploy.flower.{what}".encode() in command and str(node).encode() in command:
                status = (entry / "status").read_text().splitlines()
                return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) // 1000
    return 0


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=SIZES)
    parser.add_argument("--out", type=Path, default=DOCS)
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": machine.describe()}
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        found["machine"]["priority"] = "real-time priority beside other work"
    late = False
    for name, size in SIZES.items():
        if given.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                found[name] = measured(Path(folder) / "f", size)
            late |= found[name]["seconds a round, median"] > size.seconds or found[name]["MB of an idle node"] > IDLE_MB
            print(json.dumps({name: found[name]}, indent=2), flush=True)
    (given.out / "federation_rounds.json").write_text(json.dumps(found, indent=2) + "\n")
    if given.out == DOCS:
        page = DOCS / "performance.md"
        before = page.read_text(encoding="utf-8").partition("\n## A federation's rounds\n")[0]  # it is the last one
        page.write_text(before + section(), encoding="utf-8")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
