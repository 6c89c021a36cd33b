"""A job on the coordinator's disk: its whole state in one file, so that a resumed job is bit-identical."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.evaluation import Measured
from fedsofim.core.phase import Phase
from fedsofim.core.programs import upload_shapes
from fedsofim.deploy.clients import Client
from fedsofim.deploy.job_state import FalseSum, JobState
from fedsofim.deploy.order import PAIRS, Order
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.server import start_job
from fedsofim.deploy.steps import phases_of
from fedsofim.deploy.wire import Arrays, Job
from fedsofim.errors import InputError
from fedsofim.files import write_whole
from fedsofim.formats import CHECKPOINT as FORMAT
from fedsofim.formats import check_format

#: The files of a job's folder, beside the certificate.
CHECKPOINT, PROGRESS, OUTCOME = "checkpoint.npz", "progress.json", "outcome.json"


def save(now: JobState, path: Path) -> None:
    """The whole job in one file, on disk before anything else happens."""
    meta = {
        "format": FORMAT.writes,
        "order": asdict(now.order),
        "job": now.job.text(),
        "clients": [asdict(c) for c in now.clients],
        "phase": now.phase,
        "round": now.round,
        "measured": [asdict(m) for m in now.measured],
        "absent": {str(round): list(names) for round, names in now.absent.items()},
        "late": {name: list(rounds) for name, rounds in now.late.items()},
        "attempt": now.attempt,
        "false_sums": [asdict(found) for found in now.false_sums],
    }
    arrays: Arrays = {"meta": np.asarray(json.dumps(meta))}
    for name, tree in (("params", now.params), ("state", now.state)):
        arrays |= {f"{name}{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    for phase, means in now.released.items():
        arrays |= {f"{phase}_{key}": np.asarray(value) for key, value in means.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(to_bytes(arrays)))


def restore(path: Path) -> JobState:
    """A job as it was saved."""
    if not path.is_file():
        raise InputError(f"{path}: there is no checkpoint to resume from; start without --resume")
    try:
        return _restored(from_bytes(path.read_bytes()))
    except ImportError as error:
        raise InputError(
            f"{path}: the job needs {error.name or 'a package'}, which is not installed here; install it, then resume"
        ) from error
    except InputError as error:  # of a method or a model that is not here, for example
        raise InputError(f"{path}: the job cannot be taken up again: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # a damaged file can fail in any of the libraries that read it
        raise InputError(
            f"{path}: not a checkpoint of this version, or a damaged one ({type(error).__name__}: {error})"
        ) from error


def _restored(arrays: Arrays) -> JobState:
    meta = json.loads(str(arrays["meta"]))
    check_format(FORMAT, meta, "it")
    pairs = {name: tuple((k, v) for k, v in meta["order"].get(name, ())) for name in PAIRS}
    order = Order(**meta["order"] | pairs)
    clients = tuple(_client(c) for c in meta["clients"])
    job = Job.read(meta["job"])
    fresh = start_job(order, clients)
    trees = {n: _tree(arrays, n, t) for n, t in (("params", fresh.params), ("state", fresh.state))}
    if not 0 <= meta["round"] <= job.rounds:
        raise ValueError("its round makes no sense")
    _check_choices(job, fresh.job)
    absent = {int(round): tuple(map(str, names)) for round, names in meta.get("absent", {}).items()}
    measured = tuple(Measured(**{**m, "clients": tuple(m["clients"])}) for m in meta.get("measured", []))
    at = replace(fresh, job=job, phase=Phase(meta["phase"]), round=meta["round"], absent=absent, **trees)
    false_sums = tuple(_false_sum(found) for found in meta.get("false_sums", []))
    late = {str(name): tuple(map(int, rounds)) for name, rounds in meta.get("late", {}).items()}
    at = replace(at, measured=measured, attempt=int(meta.get("attempt", 0)), false_sums=false_sums, late=late)
    if not 0 <= at.attempt <= len(false_sums):
        raise ValueError("its count of attempts makes no sense")
    return replace(at, released=_released(arrays, at))


def _client(c: dict[str, Any]) -> Client:
    allows = c.get("allows")
    return Client(**{**c, "shape": tuple(c["shape"]), "allows": None if allows is None else tuple(allows)})


def _false_sum(found: dict[str, Any]) -> FalseSum:
    present, accused = (tuple(map(str, found[key])) for key in ("present", "accused"))
    return FalseSum(phase=Phase(found["phase"]), round=int(found["round"]), present=present, accused=accused)


def _check_choices(job: Job, planned: Job) -> None:
    """A recipe may choose otherwise in another version; a job goes on as it was begun, or not at all."""
    fixed = ("method", "settings", "model", "model_settings", "rounds", "clip", "weights", "trust", "preparation")
    for name in (*fixed, "evaluations", "unit", "places"):
        if getattr(job, name) != getattr(planned, name):
            raise ValueError(f"its job was begun with other {name} than this version chooses")


def _released(arrays: Arrays, at: JobState) -> dict[Phase, dict[str, np.ndarray]]:
    """What the preparation released before the phase that the job is at."""
    found: dict[Phase, dict[str, np.ndarray]] = {}
    for phase in phases_of(at.programs.before(at.phase)):
        shapes = upload_shapes(at.plan.programs[phase])
        found[phase] = {key: arrays[f"{phase}_{key}"] for key in shapes}
        if any(found[phase][k].shape != s.shape or found[phase][k].dtype != s.dtype for k, s in shapes.items()):
            raise ValueError(f"its {phase} have another form")
    return found


def _tree(arrays: Arrays, name: str, like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    found = [arrays[f"{name}{i}"] for i in range(len(leaves))]
    for have, want in zip(found, leaves, strict=True):
        if have.shape != np.shape(want) or have.dtype != np.asarray(want).dtype:
            raise ValueError(f"its {name} have another form")
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in found])
