"""Run an experiment's grid, one line on disk per finished run.

A line is written and synced before the next run starts, so a kill at any moment loses at most the run in flight;
the same call then goes on with what is missing. Equal runs are bit-identical, so a resumed grid ends in the same rows.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedsofim import models
from fedsofim.core.plan import Plan
from fedsofim.core.summary import privacy_summary
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, statistics_of
from fedsofim.experiments.grid import Experiment, Partition, Point, labels_of, points
from fedsofim.experiments.journal import GRID, RUNS, append, mend, only_process, read_runs, to_text
from fedsofim.experiments.kept_models import model_folder, save_point
from fedsofim.experiments.reading import read_datasets
from fedsofim.experiments.record_digests import KEY, digests_of, is_public, kept_key, told_without_key
from fedsofim.experiments.versions import code_of
from fedsofim.experiments.whom import Whom
from fedsofim.files import as_folder, write_text
from fedsofim.formats import RUNS as FORMAT
from fedsofim.progress import progress_bar
from fedsofim.recipes import settings_in
from fedsofim.simulation import sweep, training
from fedsofim.simulation.environment import environment_here
from fedsofim.simulation.metrics import baseline_of, metrics_of
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.simulator import all_finite
from fedsofim.simulation.training import Given, choices_for


class Conduct(NamedTuple):
    """How a grid is run; nothing here changes a row."""

    source: Path | None = None  # of features known by name
    models: bool = False  # keep every run's model too
    again: bool = False  # run anew what another version of the engine made
    say: Callable[[str], None] = lambda words: None


def run_experiment(experiment: Experiment, out: Path, folder: Path = Path(), conduct: Conduct = Conduct()) -> int:
    """Run what is not finished yet; the number of runs done now. `folder` is where relative datasets start."""
    data = read_datasets(experiment.datasets, folder, experiment.reading, conduct.source)
    as_folder(out)
    with only_process(out):
        mend(out / RUNS)
        rows = read_runs(out)
        digests = digests_of(data, rows, kept_key(out))
        _say_bare(told_without_key(data, digests), conduct)
        todo = points(experiment, data, digests)
        _write_grid(experiment, out, todo, data)
        missing = unfinished(todo, rows, out, conduct)
        splits = _Splits({d.name: d for d in data.values()})
        with progress_bar(f"{experiment.name}, {len(todo)} runs", len(todo)) as progress:
            for done, point in enumerate(missing, start=len(todo) - len(missing) + 1):
                append(out / RUNS, run_point(point, splits(point), out if conduct.models else None))
                progress.at(done)
    return len(missing)


def _say_bare(names: list[str], conduct: Conduct) -> None:
    if names:
        conduct.say(
            f"the rows that are here state a digest of {', '.join(names)} without a key: whoever has them can try what "
            "a record says. Another folder (--out) has it keyed; this one goes on as it began"
        )


def unfinished(todo: list[Point], rows: list[dict[str, Any]], out: Path, conduct: Conduct) -> list[Point]:
    """The runs to do: those without a row, and those whose row a changed method made. Others are said and kept."""
    last = {row["id"]: row for row in rows}
    changed, older, missing = [], [], []
    for point in todo:
        row = last.get(point.id)
        kinds = {} if row is None else _differs(row, point)
        changed += [point] if "method" in kinds else []
        older += [point] if kinds and "method" not in kinds else []
        lacks = conduct.models and not model_folder(out, point).is_dir()
        if row is None or "method" in kinds or (kinds and conduct.again) or lacks:
            missing.append(point)
    if changed:
        conduct.say(
            f"{len(changed)} rows were made by another version of their method and are run again: {_named(changed)}"
        )
    if older:
        what = "are run again" if conduct.again else "count as finished; --again runs them anew"
        conduct.say(f"{len(older)} rows were made by another version of the engine and {what}: {_named(older)}")
    known, now = {point.id for point in todo}, {(p.dataset, p.label): p.digest for p in todo}
    strange = [
        r for r in rows if r["id"] not in known and now.get((r["dataset"], r["label"]), r["digest"]) != r["digest"]
    ]
    if strange:
        conduct.say(
            f"{len(strange)} rows do not belong to these records and are ignored, so their runs are done again. Either "
            f"the records have changed, or {out / KEY} is another file than the one those rows were made with: by it "
            "equal records are recognised. If you have a copy of that file, put it back"
        )
    return missing


def _differs(row: dict[str, Any], point: Point) -> set[str]:
    """Which code has changed since a row was made; a row from before that was written down counts as the engine's."""
    if "code" not in row:
        return {"engine"}
    return {kind for kind, digest_ in code_of(point.method).items() if row["code"].get(kind) != digest_}


def _named(found: list[Point]) -> str:
    names = list(dict.fromkeys(f"{p.label} at epsilon {p.epsilon:g}" for p in found))
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def run_point(point: Point, split: Split, out: Path | None = None) -> dict[str, Any]:
    """One run as plain data: what was asked, what came out, what it cost, where it ran. `out`: keep its model there."""
    plan, hyper = planned(point, split)
    began = time.perf_counter()
    seen, made = prepare(plan, split, point.seed)
    params, trace = sweep.simulate_with(plan, seen, point.seed, hyper)
    seconds = time.perf_counter() - began
    z = np.asarray(plan.model.logits(params, jnp.asarray(seen.dataset.x_test)))
    found = metrics_of(split.dataset, z)
    finite = all_finite(params) and found.values[plan.task.metric] is not None
    if out is not None:
        save_point(out, point, plan, split, params, made, trace)
    return {
        "format": FORMAT.writes,
        "id": point.id,
        **point.plain(),
        "code": code_of(point.method),
        "rounds": plan.rounds,
        "clip": plan.clip,
        "weights": plan.weights,
        "used": settings_in(_chosen(point, split), point.method, point.settings),
        "preparation": [str(step) for step in plan.preparation],
        "partition": point.place or point.partition.label,
        "metric": plan.task.metric,
        plan.task.metric: [round(float(a), 4) if math.isfinite(a) else None for a in trace.score],
        "loss": [round(float(v), 6) if math.isfinite(v) else None for v in trace.loss],
        "finite": finite,
        "predictions": to_text(plan.task.decided(z)) if plan.task.by_class else None,
        "metrics": {key: found.summary()[key] for key in ("measures", "recall", "groups")} if finite else None,
        "privacy": privacy_summary(plan),
        "seconds": round(seconds, 4),
        "environment": environment_here(),
    }


def _chosen(point: Point, split: Split) -> Any:
    model = models.unless_head(point.model, point.model_settings)
    budget = point.budget_for(split)
    return choices_for(split, budget, recipe=point.recipe, trust=point.trust, model=model, weights=point.weights)


def planned(point: Point, split: Split) -> tuple[Plan, np.ndarray]:
    """The plan of a run, and the numbers of its method that are not compiled in."""
    fixed, numbers, hyper = sweep.divided(
        settings_in(_chosen(point, split), point.method, point.settings), point.method
    )
    given = Given(
        method=sweep.sweepable(point.method, fixed, numbers),
        rounds=point.rounds,
        clip=point.clip,
        weights=point.weights,
        model=models.unless_head(point.model, point.model_settings),
        preparation=None if point.standardize is None else point.standardize.steps(),
        participants=point.whom.participants,
        batch_rate=point.whom.batch_rate,
        client_rate=point.whom.client_rate,
    )
    return training.planned(split, point.budget_for(split), recipe=point.recipe, trust=point.trust, given=given)[
        0
    ], hyper


class _Splits:
    """The current dataset dealt out; one at a time, since the grid visits each once."""

    def __init__(self, data: dict[str, Dataset]) -> None:
        self.data, self.key, self.split = data, None, None

    def __call__(self, point: Point) -> Split:
        key = (point.dataset, point.partition, point.whom)
        if key != self.key or self.split is None:
            self.key, self.split = key, point.deal(self.data[point.dataset])
        return self.split


def _write_grid(experiment: Experiment, out: Path, todo: list[Point], data: dict[str, Dataset]) -> None:
    """What belongs to this experiment, for whoever reads the folder: run ids, test labels, who holds what."""
    places = labels_of(experiment.partitions)
    grid = {
        "format": FORMAT.writes,
        "experiment": experiment.plain(),
        "ids": [point.id for point in todo],
        "points": [_point(point) for point in todo],
        "tasks": {d.name: d.task.plain() for d in data.values()},
        "baselines": {d.name: baseline_of(d) for d in data.values()},
        "tested": {d.name: len(d.y_test) for d in data.values()},
        "labels": {d.name: to_text(d.y_test) for d in data.values() if d.task.by_class},
        "classes": {d.name: list(map(str, d.class_names)) for d in data.values()},
        "groups": {d.name: {column: _coded(v) for column, v in d.groups.items()} for d in data.values()},
        "partitions": [
            _dealt(d, p, place, is_public(name), experiment.whoms)
            for name, d in data.items()
            for p, place in places.items()
        ],
        "notes": {d.name: d.notes | {"digest": p.digest} for p in todo for d in data.values() if d.name == p.dataset},
    }
    write_text(out / GRID, json.dumps(grid, default=str))


def _point(point: Point) -> dict[str, Any]:
    """What a run is called: a report of an unfinished grid says which are missing."""
    return {"dataset": point.dataset, "partition": point.place, "label": point.label, "seed": point.seed,
            "epsilon": point.plain()["epsilon"]}  # fmt: skip


def _coded(values: np.ndarray) -> dict[str, Any]:
    known, codes = np.unique(values, return_inverse=True)
    return {"values": known.tolist(), "codes": to_text(codes)}


def _dealt(data: Dataset, partition: Partition, place: str, public: bool, whoms: Sequence[Whom]) -> dict[str, Any]:
    """Who holds how much. How many of which class is an exact function of labels that runs protect, so it is told of
    public records only; and where persons are protected, nobody's number of records is told."""
    split = partition.deal(data)
    sizes = list(split.sizes) if public or all(whom.unit == "record" for whom in whoms) else None
    about = {"dataset": data.name, "partition": place, "clients": len(split.parts), "sizes": sizes}
    if not public:
        return about
    stats = statistics_of(split)
    return about | {
        "counts": stats.counts.tolist(),
        "kl": [round(float(k), 6) for k in stats.kl],
        "absent": stats.absent.tolist(),
    }
