"""Run an experiment's grid, one line on disk per finished run.

A line is written and synced before the next run starts, so a kill at any moment loses at most the run in flight;
the same call then goes on with what is missing. Equal runs are bit-identical, so a resumed grid ends in the same rows.
"""

import base64
import fcntl
import importlib.metadata
import json
import math
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import native
from fedsofim.core.summary import privacy_summary
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, statistics
from fedsofim.errors import InputError
from fedsofim.experiments.grid import Cell, Experiment, cells, digest, read_dataset
from fedsofim.files import write_whole
from fedsofim.simulation import sweep
from fedsofim.simulation.training import plan_for

RUNS, GRID, LOCK = "runs.jsonl", "grid.json", ".lock"


def run_experiment(experiment: Experiment, out: Path, bar: Callable[..., Any], folder: Path = Path()) -> int:
    """Run what is not finished yet; the number of runs done now. `folder` is where relative datasets start."""
    data = {name: read_dataset(name, folder) for name in experiment.datasets}
    todo = cells(experiment, data)
    out.mkdir(parents=True, exist_ok=True)
    with only_process(out):
        _write_grid(experiment, out, todo, data)
        mend(out / RUNS)
        finished = {run["id"] for run in read_runs(out)}
        missing = [cell for cell in todo if cell.id not in finished]
        splits = _Splits({d.name: d for d in data.values()})
        with bar(f"{experiment.name}, {len(todo)} runs", len(todo)) as advance:
            for done, cell in enumerate(missing, start=len(todo) - len(missing) + 1):
                append(out / RUNS, run_cell(cell, splits(cell)))
                if advance is not None:
                    advance(done)
    return len(missing)


def run_cell(cell: Cell, data: Split) -> dict[str, Any]:
    """One run as plain data: what was asked, what came out, what it cost, and where it ran."""
    fixed, numbers, hyper = sweep.parts(cell.settings)
    method = sweep.sweepable(cell.method, fixed, numbers)
    plan = plan_for(data, method, cell.budget, cell.rounds, clip=cell.clip, trust=cell.trust, weights=cell.weights)
    began = time.perf_counter()
    params, trace = sweep.simulate_with(plan, data, cell.seed, hyper)
    seconds = time.perf_counter() - began
    predicted = np.asarray(plan.model.logits(params, jnp.asarray(split.dataset.x_test))).argmax(axis=-1)
    return {
        "id": cell.id,
        **asdict(cell),
        "partition": cell.partition.label,
        "accuracy": [round(float(a), 4) for a in trace.accuracy],
        "loss": [round(float(v), 6) if math.isfinite(v) else None for v in trace.loss],
        "finite": finite(params),
        "predictions": pack(predicted),
        "privacy": privacy_summary(plan),
        "seconds": round(seconds, 4),
        "environment": environment(),
    }


class _Splits:
    """The current dataset dealt out; one at a time, since the grid visits each once."""

    def __init__(self, data: dict[str, Dataset]) -> None:
        self.data, self.key, self.split = data, None, None

    def __call__(self, cell: Cell) -> Split:
        key = (cell.dataset, cell.partition)
        if key != self.key or self.split is None:
            self.key, self.split = key, cell.partition.deal(self.data[cell.dataset])
        return self.split


# --- files --------------------------------------------------------------------------------------------------


def append(path: Path, run: dict[str, Any]) -> None:
    """One line, on disk when this returns."""
    with path.open("ab") as file:
        file.write(json.dumps(run).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def mend(path: Path) -> None:
    """Cut off what a killed process left of its last line."""
    if path.exists():
        os.truncate(path, _whole_bytes(path))


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """The finished runs of a folder; a half-written last line does not count."""
    path = folder / RUNS
    if not path.exists():
        return []
    lines = path.read_bytes()[: _whole_bytes(path)].splitlines()
    return [json.loads(line) for line in lines if line]


def _whole_bytes(path: Path) -> int:
    """Length of the part that consists of whole lines."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


def _write_grid(experiment: Experiment, out: Path, todo: list[Cell], data: dict[str, Dataset]) -> None:
    """What belongs to this experiment, for whoever reads the folder: run ids, test labels, who holds what."""
    grid = {
        "experiment": asdict(experiment),
        "ids": [cell.id for cell in todo],
        "labels": {d.name: pack(d.y_test) for d in data.values()},
        "partitions": [_dealt(d, p) for d in data.values() for p in experiment.partitions],
        "notes": {d.name: d.notes | {"digest": digest(d)} for d in data.values()},
    }
    write_whole(out / GRID, lambda file: file.write(json.dumps(grid, default=str).encode()))


def _dealt(data: Dataset, partition: Any) -> dict[str, Any]:
    stats = statistics(data.y_train, partition.deal(data).parts, data.classes)
    return {
        "dataset": data.name,
        "partition": partition.label,
        "counts": stats.counts.tolist(),
        "kl": [round(float(k), 6) for k in stats.kl],
        "absent": stats.absent.tolist(),
    }


@contextmanager
def only_process(out: Path) -> Iterator[None]:
    """Two processes appending to one folder would mix their rows; the lock goes when its process does."""
    with (out / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{out}: another process is writing there; wait for it or choose another --out") from None
        yield


def pack(values: np.ndarray) -> str:
    """Small whole numbers as text.

    >>> unpack(pack(np.array([3, 1, 2]))).tolist()
    [3, 1, 2]
    """
    return base64.b64encode(zlib.compress(np.asarray(values, "<u2").tobytes(), 9)).decode()


def unpack(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u2").astype(np.int32)


@lru_cache(maxsize=1)
def environment() -> dict[str, Any]:
    """Versions and machine, recorded with every run."""
    packages = ("fedsofim", "jax", "jaxlib", "numpy", "optax", "scipy")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "backend": jax.default_backend(),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "clipped sums": f"XLA ({native.why_not()})" if native.why_not() else "fused",
    }
