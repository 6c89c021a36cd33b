"""A job on the coordinator's disk: its whole state in one file, so that a resumed job is bit-identical."""

import json
import zipfile
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.phase import Phase
from fedsofim.deploy.clients import Client
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import Order
from fedsofim.deploy.server import start_job
from fedsofim.deploy.wire import Arrays, Job, from_bytes, to_bytes
from fedsofim.errors import InputError
from fedsofim.files import write_whole

#: The files of a job's folder, beside the certificate.
CHECKPOINT, PROGRESS, OUTCOME = "checkpoint.npz", "progress.json", "outcome.json"


def save(now: JobState, path: Path) -> None:
    """The whole job in one file, on disk before anything else happens."""
    meta = {
        "order": asdict(now.order),
        "job": now.job.text(),
        "clients": [asdict(c) for c in now.clients],
        "phase": now.phase,
        "round": now.round,
    }
    arrays: Arrays = {"meta": np.asarray(json.dumps(meta))}
    for name, tree in (("params", now.params), ("state", now.state)):
        arrays |= {f"{name}{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    arrays |= {f"moments_{k}": np.asarray(v) for k, v in (now.moments or {}).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(to_bytes(arrays)))


def restore(path: Path) -> JobState:
    """A job as it was saved."""
    if not path.is_file():
        raise InputError(f"{path}: there is no checkpoint to resume from; start without --resume")
    try:
        return _restored(from_bytes(path.read_bytes()))
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not a checkpoint of this version, or a damaged one ({error})") from error


def _restored(arrays: Arrays) -> JobState:
    meta = json.loads(str(arrays["meta"]))
    order = Order(**{**meta["order"], "settings": tuple((k, v) for k, v in meta["order"]["settings"])})
    clients = tuple(Client(**{**c, "shape": tuple(c["shape"])}) for c in meta["clients"])
    job = Job.read(meta["job"])
    fresh = start_job(order, clients)
    trees = {n: _tree(arrays, n, t) for n, t in (("params", fresh.params), ("state", fresh.state))}
    moments = {k: arrays[f"moments_{k}"] for k in ("first", "second") if f"moments_{k}" in arrays}
    if not 0 <= meta["round"] <= job.rounds:
        raise ValueError("its round makes no sense")
    return replace(fresh, job=job, moments=moments or None, phase=Phase(meta["phase"]), round=meta["round"], **trees)


def _tree(arrays: Arrays, name: str, like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    found = [arrays[f"{name}{i}"] for i in range(len(leaves))]
    for have, want in zip(found, leaves, strict=True):
        if have.shape != np.shape(want) or have.dtype != np.asarray(want).dtype:
            raise ValueError(f"its {name} have another form")
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in found])
