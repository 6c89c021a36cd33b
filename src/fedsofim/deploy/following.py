"""Submit a job and follow it: a progress bar from the job's own files, and an error that says what to do next."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from fedsofim.deploy.checkpoint import OUTCOME, PROGRESS
from fedsofim.deploy.order import Conduct, Order, to_config
from fedsofim.deploy.processes import register, run_status, submit
from fedsofim.errors import InputError
from fedsofim.progress import progress_bar

_LOOK = 0.5  # seconds between looks at the job's folder
_ASK = 15.0  # seconds between questions to the SuperLink whether the run is alive


def follow(server: Path, order: Order, conduct: Conduct) -> None:
    """Start the run and show it until it ends."""
    job = Path(conduct.folder)
    if not (server / "flwr" / "config.toml").is_file():
        raise InputError(f"{server}: not a server folder; `fedsofim federation init` writes one")
    (job / OUTCOME).unlink(missing_ok=True)
    register(server)
    run = submit(server, to_config(order, conduct))
    what = order.method or f"the recipe {order.recipe}"
    print(f"run {run} submitted: {what}, {order.clients} nodes", flush=True)
    try:
        outcome = _watch(server, job, run)
    except KeyboardInterrupt:
        print(f"\nnot followed any more; the run goes on. Its progress is in {job / PROGRESS}")
        raise
    if "failed" in outcome:
        raise InputError(f"{outcome['failed']}. When that is settled: the same command with --resume")
    print(f"finished: {job / 'checkpoint.npz'} (model), {job / 'certificate.txt'}", flush=True)


def _watch(server: Path, job: Path, run: int) -> dict[str, Any]:
    """How the run ended. How many rounds it has is known when the nodes have introduced themselves, not before."""
    asked, seen, bar = time.monotonic(), 0, None
    with contextlib.ExitStack() as shown:
        while True:
            done = _facts(job / PROGRESS)
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
            if time.monotonic() - asked > _ASK:
                asked = time.monotonic()
                if run_status(server, run).startswith("finished") and not (job / OUTCOME).exists():
                    return {"failed": "the server process ended without a word; its log is the SuperLink's"}
            time.sleep(_LOOK)


def _facts(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
