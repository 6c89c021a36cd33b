"""A federation's model, from the checkpoint of its job: kept, used and exported like a simulated run's."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsofim.core.prepared import Prepared
from fedsofim.core.summary import privacy_summary
from fedsofim.data.columns import feature_names
from fedsofim.data.meaning import differences
from fedsofim.data.schema import Schema
from fedsofim.deploy.checkpoint import restore
from fedsofim.deploy.job_state import JobState
from fedsofim.errors import InputError
from fedsofim.simulation.environment import versions
from fedsofim.trained.model import Trained, name_of


def trained_of_job(checkpoint: Path, schema: Schema | None = None) -> Trained:
    """The model of a finished job, with the schema that its nodes read their tables by.

    `schema`: of nodes that had none, where arrays were made of tables by hand.
    """
    now = restore(checkpoint)
    own = now.clients[0].described
    if own is not None and schema is not None and (said := differences(own, schema)):
        raise InputError(f"{checkpoint}: the nodes had another schema than the one given: of the latter, {said}")
    schema = schema or own  # they mean the same: the given one says how this site writes its tables
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
        name=name_of(now.plan.model),
        settings=dict(now.plan.model.settings),
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
    result = {"private_evaluation": [{"said": str(m), **asdict(m)} for m in now.measured]} if now.measured else {}
    return {"training": training, "privacy": privacy_summary(now.plan), "result": result, "versions": versions()}
