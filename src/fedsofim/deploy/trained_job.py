"""A federation's model, from the checkpoint of its job: kept, used and exported like a simulated run's."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsofim.core.models import HEAD
from fedsofim.core.prepared import Prepared
from fedsofim.core.summary import privacy_summary
from fedsofim.data.columns import feature_names
from fedsofim.data.schema import Schema
from fedsofim.deploy.checkpoint import restore
from fedsofim.deploy.job_state import JobState
from fedsofim.errors import InputError
from fedsofim.simulation.environment import versions
from fedsofim.trained.model import Trained


def trained_of_job(checkpoint: Path, schema: Schema | None = None) -> Trained:
    """The model of a finished job. `schema` is what its nodes read their tables by, if they did."""
    now = restore(checkpoint)
    if not now.finished:
        raise InputError(
            f"{checkpoint}: the job is at round {now.round} of {now.job.rounds}; let it finish "
            "with fedsofim serve --resume"
        )
    labels = tuple(range(now.job.classes))
    columns: tuple[str, ...] = ()
    if schema is not None:
        labels, columns = _described(checkpoint, now, schema)
    return Trained(
        params=now.params,
        model=now.plan.model,
        name=HEAD,
        shape=tuple(now.job.shape),
        labels=labels,
        prepared=Prepared(steps=now.plan.preparation, released=now.released, stds=now.job.mean_stds),
        columns=columns,
        schema=schema,
        facts=_facts(now),
    )


def _described(checkpoint: Path, now: JobState, schema: Schema) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The schema's classes and features, which must be as many as the job's."""
    if schema.label is None or not schema.label.classes:
        raise InputError(
            f"{checkpoint}: the schema lists no classes; the nodes number them in its order, so they must stand"
        )
    columns = feature_names(schema)
    if len(schema.label.classes) != now.job.classes or (len(columns),) != tuple(now.job.shape):
        raise InputError(
            f"{checkpoint}: the schema has {len(columns)} features and {len(schema.label.classes)} classes, the job "
            f"has {list(now.job.shape)} and {now.job.classes}; give the schema that the nodes had"
        )
    return schema.label.classes, columns


def _facts(now: JobState) -> dict[str, Any]:
    chosen = now.choices
    training = {
        "data": f"the nodes {', '.join(c.name for c in now.clients)}",
        "records": sum(c.size for c in now.clients),
        "partition": "each node its own records",
        "clients": len(now.clients),
        "method": chosen.method,
        "settings": dict(chosen.settings),
        "recipe": chosen.recipe,
        "rounds": now.job.rounds,
        "clip": now.job.clip,
        "weights": now.job.weights,
        "job": now.job.id,
        "order": asdict(now.order),
    }
    return {"training": training, "privacy": privacy_summary(now.plan), "result": {}, "versions": versions()}
