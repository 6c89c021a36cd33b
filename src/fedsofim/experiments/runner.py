"""Run an experiment's grid, one line on disk per finished run.

A line is written and synced before the next run starts, so a kill at any moment loses at most the run in flight;
the same call then goes on with what is missing. Equal runs are bit-identical, so a resumed grid ends in the same rows.
"""

import importlib.metadata
import json
import math
import os
import platform
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import native
from fedsofim.core.models import HEAD, make_model
from fedsofim.core.plan import Plan
from fedsofim.core.summary import privacy_summary
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, statistics
from fedsofim.experiments.grid import Experiment, Point, digest, points, read_dataset
from fedsofim.experiments.journal import GRID, RUNS, append, mend, only_process, read_runs, to_text
from fedsofim.files import write_text
from fedsofim.progress import progress_bar
from fedsofim.recipes import settings_in
from fedsofim.simulation import sweep, training
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.simulator import all_finite
from fedsofim.simulation.training import Given, choices_for


def run_experiment(experiment: Experiment, out: Path, folder: Path = Path()) -> int:
    """Run what is not finished yet; the number of runs done now. `folder` is where relative datasets start."""
    data = {name: read_dataset(name, folder) for name in experiment.datasets}
    todo = points(experiment, data)
    out.mkdir(parents=True, exist_ok=True)
    with only_process(out):
        _write_grid(experiment, out, todo, data)
        mend(out / RUNS)
        finished = {run["id"] for run in read_runs(out)}
        missing = [point for point in todo if point.id not in finished]
        splits = _Splits({d.name: d for d in data.values()})
        with progress_bar(f"{experiment.name}, {len(todo)} runs", len(todo)) as progress:
            for done, point in enumerate(missing, start=len(todo) - len(missing) + 1):
                append(out / RUNS, run_point(point, splits(point)))
                progress.at(done)
    return len(missing)


def run_point(point: Point, split: Split) -> dict[str, Any]:
    """One run as plain data: what was asked, what came out, what it cost, and where it ran."""
    plan, hyper = planned(point, split)
    began = time.perf_counter()
    seen, _ = prepare(plan, split, point.seed)
    params, trace = sweep.simulate_with(plan, seen, point.seed, hyper)
    seconds = time.perf_counter() - began
    predicted = np.asarray(plan.model.logits(params, jnp.asarray(seen.dataset.x_test))).argmax(axis=-1)
    return {
        "id": point.id,
        **point.plain(),
        "rounds": plan.rounds,
        "clip": plan.clip,
        "weights": plan.weights,
        "preparation": [str(step) for step in plan.preparation],
        "partition": point.partition.label,
        "accuracy": [round(float(a), 4) for a in trace.accuracy],
        "loss": [round(float(v), 6) if math.isfinite(v) else None for v in trace.loss],
        "finite": all_finite(params),
        "predictions": to_text(predicted),
        "privacy": privacy_summary(plan),
        "seconds": round(seconds, 4),
        "environment": environment(),
    }


def planned(point: Point, split: Split) -> tuple[Plan, np.ndarray]:
    """The plan of a run, and the numbers of its method that are not compiled in."""
    chosen = choices_for(split, point.budget, recipe=point.recipe, trust=point.trust, head=point.model == HEAD)
    fixed, numbers, hyper = sweep.divided(settings_in(chosen, point.method, point.settings), point.method)
    given = Given(
        method=sweep.sweepable(point.method, fixed, numbers),
        rounds=point.rounds,
        clip=point.clip,
        weights=point.weights,
        model=None if point.model == HEAD else make_model(point.model),
    )
    return training.planned(split, point.budget, recipe=point.recipe, trust=point.trust, given=given)[0], hyper


class _Splits:
    """The current dataset dealt out; one at a time, since the grid visits each once."""

    def __init__(self, data: dict[str, Dataset]) -> None:
        self.data, self.key, self.split = data, None, None

    def __call__(self, point: Point) -> Split:
        key = (point.dataset, point.partition)
        if key != self.key or self.split is None:
            self.key, self.split = key, point.partition.deal(self.data[point.dataset])
        return self.split


def _write_grid(experiment: Experiment, out: Path, todo: list[Point], data: dict[str, Dataset]) -> None:
    """What belongs to this experiment, for whoever reads the folder: run ids, test labels, who holds what."""
    grid = {
        "experiment": experiment.plain(),
        "ids": [point.id for point in todo],
        "labels": {d.name: to_text(d.y_test) for d in data.values()},
        "partitions": [_dealt(d, p) for d in data.values() for p in experiment.partitions],
        "notes": {d.name: d.notes | {"digest": digest(d)} for d in data.values()},
    }
    write_text(out / GRID, json.dumps(grid, default=str))


def _dealt(data: Dataset, partition: Any) -> dict[str, Any]:
    stats = statistics(data.y_train, partition.deal(data).parts, data.classes)
    return {
        "dataset": data.name,
        "partition": partition.label,
        "counts": stats.counts.tolist(),
        "kl": [round(float(k), 6) for k in stats.kl],
        "absent": stats.absent.tolist(),
    }


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
