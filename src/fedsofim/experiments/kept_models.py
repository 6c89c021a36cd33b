"""The models of a grid's runs, each in a folder of its own: what `fedsofim compare --models` keeps."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsofim import models
from fedsofim.core.budget import in_words
from fedsofim.core.plan import Plan
from fedsofim.core.prepared import Prepared
from fedsofim.data.partition import Split
from fedsofim.experiments.grid import Point
from fedsofim.simulation.run import Run
from fedsofim.simulation.simulator import Trace
from fedsofim.simulation.training import choices_for
from fedsofim.trained.folder import save_model

MODELS = "models"


def model_folder(out: Path, point: Point) -> Path:
    """Where a run's model is: its name for people, and its id, which no other run has."""
    words = f"{point.dataset}-{point.place}-{point.label}-epsilon-{in_words(point.epsilon)}-seed-{point.seed}"
    return out / MODELS / f"{slug(words)}-{point.id}"


def slug(words: str) -> str:
    """A file's name.

    >>> slug("a/q.csv, dirichlet(0.5)")
    'a-q.csv-dirichlet-0.5'
    """
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", words).strip("-")


def save_point(out: Path, point: Point, plan: Plan, split: Split, params: Any, made: Prepared, trace: Trace) -> None:
    """Keep a run's model, as `run.save` would."""
    model = models.unless_head(point.model, point.model_settings)
    chosen = choices_for(
        split, point.budget_for(split), recipe=point.recipe, trust=point.trust, model=model, weights=point.weights
    )
    run = Run(
        plan=replace(plan, method=plan.method._replace(settings=tuple(point.settings.items()))),
        split=split,
        seed=point.seed,
        params=params,
        trace=trace,
        seconds=0.0,
        chosen=chosen,
        prepared=made,
    )
    save_model(run.model, model_folder(out, point), force=True)
