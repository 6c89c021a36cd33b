"""`fedsofim compare --dry-run`: what would run, at what epsilon and for about how long, before anything does."""

import statistics
from pathlib import Path
from typing import Any

from fedsofim.core.summary import spent_in_words
from fedsofim.errors import InputError
from fedsofim.experiments.grid import Experiment, Point, points
from fedsofim.experiments.journal import read_runs
from fedsofim.experiments.reading import read_datasets
from fedsofim.experiments.record_digests import digests_of, known_key
from fedsofim.experiments.runner import Conduct, planned, unfinished
from fedsofim.progress import progress_bar


def rehearse(experiment: Experiment, out: Path, folder: Path, conduct: Conduct) -> list[str]:
    """Lines that say it: every different run is planned and priced, none is run."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; expected a folder, or a name that is free")
    data = read_datasets(experiment.datasets, folder, experiment.reading, conduct.source)
    rows = read_runs(out)
    todo = points(experiment, data, digests_of(data, rows, known_key(out)))
    missing = unfinished(todo, rows, out, conduct)
    by_name = {d.name: d for d in data.values()}
    lines = [f"{experiment.name}: {len(todo)} runs, {len(todo) - len(missing)} of them finished in {out}"]
    cells = list({_cell(p): p for p in missing}.items())
    with progress_bar("pricing", len(cells)) as progress:
        for done, (cell, point) in enumerate(cells, start=1):
            plan = planned(point, point.deal(by_name[point.dataset]))[0]
            seeds = sum(_cell(p) == cell for p in missing)
            lines.append(
                f"  {seeds} x {point.label} on {point.dataset}, {point.place}: {spent_in_words(plan)}, "
                f"{plan.rounds} rounds, {plan.releases} releases"
            )
            progress.at(done)
    return [*lines, _time(missing, rows)]


def _cell(point: Point) -> tuple[Any, ...]:
    return point.dataset, point.place, point.label, point.epsilon


def _time(missing: list[Point], rows: list[dict[str, Any]]) -> str:
    """From the rows that are there: nothing is known of a machine that has done none."""
    if not missing:
        return "nothing is left to do"
    known = {r["label"]: [] for r in rows} if rows else {}
    for r in rows:
        known[r["label"]].append(r["seconds"])
    if not known:
        return f"{len(missing)} runs to do; how long they take is known once the first ones are finished"
    typical = statistics.median(s for seconds in known.values() for s in seconds)
    seconds = sum(statistics.median(known.get(p.label, [typical])) for p in missing)
    return f"{len(missing)} runs to do: about {_words(seconds)}, by the {len(rows)} finished ones, compiling apart"


def _words(seconds: float) -> str:
    """
    >>> _words(40), _words(600), _words(9000)
    ('40 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
