"""Submit a job and follow it: a progress bar from the job's own files, and an error that says what to do next.

Whatever stops a job is told within seconds: the SuperLink gone, the disk full, nodes that do not come.
"""

import contextlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

from fedsofim.deploy.checkpoint import CHECKPOINT, OUTCOME, PROGRESS
from fedsofim.deploy.job_lock import wait_until_free
from fedsofim.deploy.order import Conduct, Order, to_config
from fedsofim.deploy.processes import link_answers, link_of, run_status, submit
from fedsofim.deploy.registration import register
from fedsofim.errors import InputError
from fedsofim.progress import progress_bar

_LOOK = 0.5  # seconds between looks at the job's folder
_KNOCK = 4.0  # seconds between looks whether the SuperLink is there
_ASK = 8.0  # seconds without news until it is asked whether the run is alive: a question is a process of its own
_STARTS = 3  # how often a run is submitted whose process never came up
_NEVER_CAME = "the server's process did not come up"
_ROOM = 1_000_000  # bytes that a disk must have left, or it counts as full


def follow(server: Path, order: Order, conduct: Conduct) -> None:
    """Start the run and show it until it ends."""
    job = Path(conduct.folder)
    wait_until_free(job, conduct.patience)
    _check_link(server)
    (job / OUTCOME).unlink(missing_ok=True)
    (job / PROGRESS).unlink(missing_ok=True)
    for said in register(server):
        print(said, flush=True)
    try:
        outcome = _submitted(server, order, conduct)
    except KeyboardInterrupt:
        print(f"\nnot followed any more; the run goes on. Its progress is in {job / PROGRESS}")
        raise
    if "failed" in outcome:
        begun = (job / CHECKPOINT).exists()
        again = "the same command with --resume" if begun else "the same command again; nothing was begun"
        raise InputError(f"{outcome['failed']}. When that is settled: {again}")
    for counted in outcome.get("measured", ()):
        print(counted, flush=True)
    print(f"finished: {job / 'checkpoint.npz'} (model), {job / 'certificate.txt'}", flush=True)


def _submitted(server: Path, order: Order, conduct: Conduct) -> dict[str, Any]:
    """How the run ended. One whose process never came up is submitted again.

    Flower gives a run's process 30 s from its start to its first sign of life; on a busy machine that is not enough,
    and then the run is over before anything was asked of anybody.
    """
    what = order.method or f"the recipe {order.recipe}"
    for start in range(_STARTS):
        run = submit(server, to_config(order, conduct))
        print(f"run {run} submitted: {what}, {order.clients} nodes", flush=True)
        outcome = _watch(server, Path(conduct.folder), run)
        if outcome.get("failed") != _NEVER_CAME:
            return outcome
        if start + 1 < _STARTS:
            print(f"{_NEVER_CAME}; once more", flush=True)
    return {"failed": f"{_NEVER_CAME} in {_STARTS} starts; the SuperLink's log says why, or its machine is too busy"}


def _check_link(server: Path) -> None:
    script = server / "start-superlink.sh"
    if script.is_file() and "deploy.flower.front" not in script.read_text(encoding="utf-8", errors="replace"):
        raise InputError(
            f"{script} starts the SuperLink without the front for nodes, as older versions did. Who reaches its port "
            "could run code on this machine. Take over the script and flwr/config.toml of a new federation init"
        )
    if not link_answers(server):
        raise InputError(f"no SuperLink answers at {link_of(server)}; start it: {server / 'start-superlink.sh'}")


def _watch(server: Path, job: Path, run: int) -> dict[str, Any]:
    """How the run ended. How many rounds it has is known when the nodes have introduced themselves, not before."""
    asked, seen, bar, said = time.monotonic(), 0, None, ""
    knocked = began = asked
    done: dict[str, Any] = {}
    away: dict[str, Any] = {}
    with contextlib.ExitStack() as shown:
        while True:
            before, done = done, _facts(job / PROGRESS)
            if done != before:
                asked = time.monotonic()
            if (waiting := done.get("waiting", "")) and waiting != said:
                print(waiting, flush=True)
                said = waiting
            if isinstance(found := done.get("why"), dict) and found != away:
                away = found
                for line in _away(done, found):
                    print(line, flush=True)
            if bar is None and "rounds" in done:
                print(done.get("job", ""), flush=True)
                bar = shown.enter_context(progress_bar("rounds", done["rounds"]))
            if bar is not None and done.get("round", 0) > seen:
                seen = done["round"]
                bar.at(seen)
                if not bar.shown:
                    print(f"round {seen}/{done['rounds']} {done.get('text', '')}", flush=True)
            if outcome := _facts(job / OUTCOME):
                return outcome
            if not done and not said and time.monotonic() - began > _ASK:
                said = "the SuperLink has not started the server's process yet; waiting for it"
                print(said, flush=True)
            if time.monotonic() - knocked > _KNOCK:
                knocked = time.monotonic()
                if not link_answers(server):
                    return {"failed": f"the SuperLink at {link_of(server)} is gone; start it again: "
                                      f"{server / 'start-superlink.sh'}"}  # fmt: skip
            if time.monotonic() - asked > _ASK:
                asked = time.monotonic()
                if run_status(server, run).startswith("finished") and not (job / OUTCOME).exists():
                    return {"failed": _silent_end(job)}
            time.sleep(_LOOK)


def _away(done: dict[str, Any], why: dict[str, Any]) -> list[str]:
    """Without whom the last round was averaged."""
    if not why:
        return [f"round {done.get('round')}: all clients are back"]
    return [f"round {done.get('round')} went on without {name}: {reason}" for name, reason in sorted(why.items())]


def _silent_end(job: Path) -> str:
    """Why a server's process may have ended without leaving its reason."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(job if job.exists() else job.parent).free < _ROOM:
            return f"the disk of {job} is full, so the job could not be kept and its process ended; make room"
    if not (job / PROGRESS).exists():
        return _NEVER_CAME
    return f"the server's process ended without a word in {job}; the SuperLink's log says why"


def _facts(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}
