"""The peers: installed into an environment of their own, checked against us, and run by turns with us.

A peer that cannot be installed, does not start, or computes something else stays in the table with the reason.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from agreement import objection
from clock import Times, by_turns, timed
from install import PYTHON, install, reason

HERE = Path(__file__).parent
MARK = "@@"  # as in peers/turns.py
TORCH = ("torch==2.13.0",)  # this very line gives the build for CPUs; the plain name does not
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_PATIENCE = 900  # seconds until a peer that does not answer is given up: a round of a network may take minutes


@dataclass(frozen=True)
class Peer:
    """A script in peers/ and what must be installed for it, in this order; of each pair the first that can be."""

    name: str
    script: str
    installs: tuple[tuple[str, ...], ...] = ()  # none: it runs in our own environment
    arguments: tuple[str, ...] = ()


FLOWER = (("flwr[simulation]>=1.41,<1.43", "flwr[simulation]==1.41.*"),)  # not every machine can install 1.42
NUMPY, OPACUS, JAX_PRIVACY, AUTHORS, FLOWER_ENGINE, FLOWER_POLLED = (
    "NumPy closed form",
    "Opacus, ghost clipping",
    "jax-privacy, clipped_grad",
    "PyTorch, per-record gradients (the authors' way)",
    "Flower, simulation engine",
    "Flower, simulation engine, polled every ms",
)
PEERS = (
    Peer(NUMPY, "numpy_closed_form.py"),
    Peer(OPACUS, "opacus_ghost.py", (TORCH, ("opacus",))),
    Peer(JAX_PRIVACY, "jax_privacy_clipped.py", (("jax-privacy",),)),
    Peer(AUTHORS, "torch_per_record.py", (TORCH, ("numpy",))),
    Peer(FLOWER_ENGINE, "flower_simulation.py", FLOWER),
    Peer(FLOWER_POLLED, "flower_simulation.py", FLOWER, ("0.001",)),
)


@dataclass(frozen=True)
class Outcome:
    """What came of one peer: its times and ours from the same minutes, or why there are none."""

    name: str
    version: str = ""
    theirs: Times | None = None
    ours: Times | None = None
    missing: str = ""  # it could not be installed or started
    wrong: str = ""  # it computes something else

    @property
    def reason(self) -> str:
        return self.wrong or self.missing


class Silent(Exception):
    """A peer ended, or took too long, without an answer."""


def compare(
    peer: Peer, problem: Path, sums: np.ndarray, ours: Callable[[], object], turns: int, repeats: int = 3
) -> Outcome:
    """Install, check and time one peer by turns with a round of ours."""
    for alternatives in peer.installs:
        failures = [reason for reason in map(install, alternatives) if reason]
        if len(failures) == len(alternatives):
            return Outcome(peer.name, missing=failures[-1])
    try:
        with tempfile.TemporaryDirectory() as folder, running(peer, problem, Path(folder) / "sums.npy") as ask:
            version = ask(None)["version"]
            wrong = objection(np.load(Path(folder) / "sums.npy"), sums)
            if wrong:
                return Outcome(peer.name, version, wrong=wrong)
            pair = {"theirs": lambda repeats: ask(repeats)["seconds"], "ours": timed(ours)}
            times = by_turns(pair, turns, repeats)
            return Outcome(peer.name, version, times["theirs"], times["ours"])
    except Silent as silence:
        return Outcome(peer.name, missing=str(silence))


Ask = Callable[[int | None], dict[str, Any]]


@contextmanager
def running(peer: Peer, problem: Path, sums: Path) -> Iterator[Ask]:
    """The peer's process; ask(None) waits until it is ready, ask(n) for the seconds of n rounds."""
    python = PYTHON if peer.installs else sys.executable
    command = [str(python), str(HERE / "peers" / peer.script), str(problem), str(sums), *peer.arguments]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            env=os.environ | _QUIET, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield lambda repeats: _answer(process, repeats, errors)
            _no_more_turns(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its workers: the session is its own


def _answer(process: subprocess.Popen, repeats: int | None, errors: IO[str]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    watchdog = threading.Timer(_PATIENCE, process.kill)
    watchdog.start()
    try:
        if repeats is not None:
            process.stdin.write(f"{repeats}\n")
            process.stdin.flush()
        for line in process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
    except BrokenPipeError:
        pass
    finally:
        watchdog.cancel()
    errors.seek(0)
    raise Silent(reason(errors.read()))


def _no_more_turns(process: subprocess.Popen) -> None:
    """The script leaves its loop and, given time, ends by itself."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)
