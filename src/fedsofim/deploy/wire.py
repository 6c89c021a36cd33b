"""What travels between server and node: a job's terms as JSON, a request about it, and the reply.

Both sides build the same programs from the terms, each from the methods and models installed on it: a server can name
one, never send one. Only what the client's program reads is sent: the parameters, and of the server's state the leaves
that the program uses.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from fedsofim import methods, models
from fedsofim.core.accounting import STDS
from fedsofim.core.audit import Inputs, Program
from fedsofim.core.evaluation import Evaluation
from fedsofim.core.method import Method
from fedsofim.core.models import HEAD, Model
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Trust, Weights
from fedsofim.core.preparation import Step, width_of
from fedsofim.core.programs import (
    MOST_RELEASES,
    Public,
    input_shapes,
    read_programs,
    record_shapes,
    shape_after,
    upload_shapes,
)
from fedsofim.core.records import block_shape
from fedsofim.core.site import LARGEST_CLIP, SMALLEST_CLIP
from fedsofim.deploy.execute import confirm_alone
from fedsofim.deploy.installed import check_numbers, is_installed
from fedsofim.deploy.sane import are_settings, are_stds, is_name, plain
from fedsofim.deploy.secure_sum import as_peers
from fedsofim.deploy.steps import check_mean_stds, steps_of
from fedsofim.errors import InputError, Refused, is_number, is_whole
from fedsofim.protection import UNITS

Arrays = dict[str, np.ndarray]
_LARGEST = 10**6  # rounds and clients: what is beyond would only keep a node busy
MOST_ATTEMPTS = 16  # how often a job may ask for one sum anew


@dataclass(frozen=True, kw_only=True)
class Job:
    """The terms of one training job, fixed for its life. `stds`: noise std of each release site, by phase.

    `shape` is that of the nodes' own records. `preparation` is what they go through before the rounds (steps.py), and
    `mean_stds` the noise std of a coordinate of each released mean, by phase: public, and part of the maps.
    """

    id: str
    method: str
    settings: dict[str, Any]
    rounds: int
    clip: float
    clients: int
    classes: int
    shape: tuple[int, ...]
    stds: Mapping[Phase, list[float]]
    noise_std: float
    own_stds: Mapping[str, Mapping[Phase, list[float]]] = field(default_factory=dict)  # by client, if budgets differ
    model: str = HEAD
    model_settings: dict[str, Any] = field(default_factory=dict)
    preparation: list[dict[str, Any]] = field(default_factory=list)
    mean_stds: Mapping[Phase, float] = field(default_factory=dict)
    evaluations: int = 0  # how often right answers are counted at the nodes,
    evaluation_share: float = 0.0  # and the part of the budget's mu² for all of it
    schema: str = ""  # digest of what the nodes' tables mean (data/meaning.py)
    trust: str = "local"
    weights: str = "uniform"
    peers: tuple[tuple[str, int], ...] = ()  # under secure sum: every client's name and size
    ledgers: Mapping[str, str] = field(default_factory=dict)  # and the identity of the ledger that holds its secret
    mask_keys: Mapping[str, str] = field(default_factory=dict)  # and a digest of its public mask key
    min_clients: int = 0  # and how many of them a sum can do with; 0: all are needed
    unit: str = "record"  # whom epsilon protects,
    places: int = 0  # and how many records of one count (core/unit.py); 0: each record is one

    @property
    def evaluation(self) -> Evaluation | None:
        return Evaluation(times=self.evaluations, share=self.evaluation_share) if self.evaluations else None

    def stds_of(self, name: str) -> Mapping[Phase, list[float]]:
        """The noise stds of one client: its own, where budgets are unequal."""
        if self.own_stds and name not in self.own_stds:
            raise Refused(f"the job has no noise for {name[:64]}; it is for {', '.join(self.own_stds)[:200]}")
        return self.own_stds.get(name, self.stds)

    def times(self, phase: Phase) -> int:
        """How often a phase is asked for."""
        return phase.times(self.rounds, self.evaluations)

    def text(self) -> str:
        """Canonical JSON: equal terms are equal texts."""
        stated = asdict(self)
        if not self.mask_keys:  # terms of before nodes stated their keys: their text, and so their digests, stay
            del stated["mask_keys"]
        return json.dumps(stated, sort_keys=True)

    @staticmethod
    def read(text: str) -> "Job":
        """Terms as received; everything is checked, since a server may send anything."""
        try:
            given = plain(text)
            job = Job(**{**given, "shape": tuple(given["shape"]), "peers": as_peers(given["peers"])})
        except InputError as error:
            raise InputError(f"the job's terms cannot be read: {error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise InputError("the job's terms cannot be read; do server and node run the same version?") from error
        _check(job)
        return job


def _check(job: Job) -> None:
    def whole(*values: Any) -> bool:
        return all(isinstance(v, int) and not isinstance(v, bool) and v >= 1 for v in values)

    def number(value: Any, low: float = 0.0, high: float = STDS[1]) -> bool:
        return is_number(value) and low <= value <= high  # also refuses NaN

    right = (
        is_name(job.id)
        and isinstance(job.method, str) and isinstance(job.model, str)
        and are_settings(job.settings) and are_settings(job.model_settings)
        and whole(job.rounds, job.clients, job.classes, *job.shape) and len(job.shape) >= 1
        and job.rounds <= _LARGEST and job.clients <= _LARGEST and job.classes * math.prod(job.shape) <= 1000 * _LARGEST
        and number(job.clip, SMALLEST_CLIP, LARGEST_CLIP) and number(job.noise_std)
        and are_stds(job.stds) and isinstance(job.own_stds, dict) and all(map(are_stds, job.own_stds.values()))
        and all(map(is_name, job.own_stds)) and len(job.own_stds) in (0, job.clients)
        and (job.trust == "local" or not job.own_stds)
        and job.trust in get_args(Trust) and job.weights in get_args(Weights)
        and (job.trust == "local" or len(job.peers) == job.clients)
        and isinstance(job.schema, str)
        and (job.evaluations == 0 or (whole(job.evaluations) and job.evaluations <= job.rounds
                                      and is_number(job.evaluation_share) and 0 < job.evaluation_share < 1))
        and is_whole(job.min_clients) and 0 <= job.min_clients <= job.clients
        and job.unit in UNITS and is_whole(job.places) and 0 <= job.places <= _LARGEST
        and (job.places == 0) == (job.unit == "record")
        and isinstance(job.ledgers, dict) and all(isinstance(k, str) for k in job.ledgers.values())
        and isinstance(job.mask_keys, dict) and all(isinstance(k, str) for k in job.mask_keys.values())
    )  # fmt: skip
    if not right:
        raise InputError(
            f"the job's terms make no sense: expected a plain name, whole counts, a clip from {SMALLEST_CLIP:g} to "
            f"{LARGEST_CLIP:g}, and noise stds of 0 to {STDS[1]:g}"
        )
    steps = steps_of(job.preparation)
    check_mean_stds(job.mean_stds, steps)
    if job.classes * width_of(steps, math.prod(job.shape)) > 1000 * _LARGEST:
        raise InputError("the job's terms make no sense: its preparation gives more features than anybody can use")
    kinds: tuple[tuple[Literal["method", "model"], str], ...] = (("method", job.method), ("model", job.model))
    for kind, name in kinds:
        if not is_installed(name, kind):
            raise Refused(f"the {kind} {name[:64]!r} is not installed here; a job names a {kind}, it never brings one")


class Request(NamedTuple):
    """One question to one node. `round` counts from 0; the one-shot phases have round 0.

    `attempt` counts how often the sum of this round was asked for before and came out false. Another attempt is another
    question: with other masks, other noise and a charge of its own.
    """

    job: Job
    phase: Phase
    round: int
    arrays: Arrays
    attempt: int = 0

    def digest(self) -> str:
        """Of everything asked: equal questions have equal digests."""
        anew = f"attempt {self.attempt}\n" if self.attempt else ""
        hasher = hashlib.sha256(f"{self.job.text()}\n{self.phase}\n{self.round}\n{anew}".encode())
        for name, array in sorted(self.arrays.items()):
            hasher.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            hasher.update(np.ascontiguousarray(array).tobytes())
        return hasher.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Programs:
    """A job's audited programs, and the shapes they take for a client of so many records."""

    method: Method
    model: Model
    by_phase: Mapping[Phase, Program]
    shapes: Inputs  # of the rounds
    preparation: tuple[Step, ...]
    public: Public

    def before(self, phase: Phase) -> tuple[Step, ...]:
        """The steps that records have gone through when a phase is asked for."""
        asked = [step.phase for step in self.preparation]
        return self.preparation[: asked.index(phase)] if phase in asked else self.preparation

    def inputs(self, phase: Phase) -> Inputs:
        if phase is Phase.ROUND:
            return self.shapes
        records = record_shapes(self.public, shape_after(self.before(phase), self.public.shape))
        return replace(self.shapes, state=(), memory=(), records=records)


def programs_of(job: Job, size: int, most: int = MOST_RELEASES) -> Programs:
    """Built from the installed method and model, of at most so many releases: a node believes its own code."""
    return _programs(job.text(), size, most)


@lru_cache(maxsize=8)
def _programs(text: str, size: int, most: int) -> Programs:
    job = Job.read(text)  # again: whoever made the job, only what is installed is ever made
    method, model = methods.make(job.method, job.settings), models.make(job.model, job.model_settings)
    steps = steps_of(job.preparation)
    public = Public(
        shape=job.shape,
        classes=job.classes,
        blocks=block_shape([size]),
        clients=job.clients,
        rounds=job.rounds,
        clip=job.clip,
        evaluation=job.evaluation,
        places=job.places or None,
    )
    check_numbers(model, shape_after(steps, job.shape), job.classes)
    programs = Programs(
        method=method,
        model=model,
        by_phase=read_programs(method, model, steps, public, most),
        shapes=input_shapes(method, model, public, steps),
        preparation=steps,
        public=public,
    )
    for phase, program in programs.by_phase.items():
        confirm_alone(program, programs.inputs(phase))
    return programs


def used_state(programs: Programs) -> list[int]:
    """Which leaves of the server's state the client's program reads; only those are sent."""
    jaxpr = programs.by_phase[Phase.ROUND].jaxpr.jaxpr
    used = {v for eqn in jaxpr.eqns for v in eqn.invars if not hasattr(v, "val")} | set(jaxpr.outvars)
    start = len(jax.tree.leaves(programs.shapes.params))
    count = len(jax.tree.leaves(programs.shapes.state))
    return [i for i in range(count) if jaxpr.invars[start + i] in used]


Released = Mapping[Phase, Mapping[str, np.ndarray]]


def outgoing(programs: Programs, phase: Phase, params: Any, state: Any, released: Released) -> Arrays:
    """The arrays of a request, named; among them what the preparation released before this phase."""
    arrays = {f"params{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(params))}
    if phase is Phase.ROUND:
        leaves = jax.tree.leaves(state)
        arrays |= {f"state{i}": np.asarray(leaves[i]) for i in used_state(programs)}
    for step in programs.before(phase):
        if step.phase is not None:
            arrays |= {f"{step.phase}_{key}": np.asarray(v) for key, v in released[step.phase].items()}
    return arrays


def check_arrays(programs: Programs, phase: Phase, arrays: Arrays) -> None:
    """Exactly the arrays that the phase needs: what else came would only be hashed, kept and never read."""
    needed = {f"params{i}" for i in range(len(jax.tree.leaves(programs.inputs(phase).params)))}
    needed |= {f"state{i}" for i in used_state(programs)} if phase is Phase.ROUND else set()
    for step in programs.before(phase):
        if step.phase is not None:
            needed |= {f"{step.phase}_{key}" for key in upload_shapes(programs.by_phase[step.phase])}
    if unknown := sorted(set(arrays) - needed):
        raise InputError(f"the request brings {len(unknown)} arrays that nobody reads, such as {unknown[0][:40]!r}")


def incoming(programs: Programs, phase: Phase, arrays: Arrays) -> tuple[Any, Any]:
    """(params, state) from a request's arrays; leaves of the state that no client reads are zeros."""
    check_arrays(programs, phase, arrays)
    shapes = programs.inputs(phase)
    params = [_finite(arrays, f"params{i}", s) for i, s in enumerate(jax.tree.leaves(shapes.params))]
    wanted = used_state(programs) if phase is Phase.ROUND else []
    state = [
        _finite(arrays, f"state{i}", s) if i in wanted else np.zeros(s.shape, s.dtype)
        for i, s in enumerate(jax.tree.leaves(shapes.state))
    ]
    return jax.tree.unflatten(jax.tree.structure(shapes.params), params), jax.tree.unflatten(
        jax.tree.structure(shapes.state), state
    )


def incoming_released(programs: Programs, phase: Phase, arrays: Arrays) -> dict[Phase, dict[str, np.ndarray]]:
    """What the preparation released before a phase, from a request's arrays: of the form its programs give, finite."""
    released: dict[Phase, dict[str, np.ndarray]] = {}
    for step in programs.before(phase):
        if step.phase is not None:
            shapes = upload_shapes(programs.by_phase[step.phase])
            released[step.phase] = {k: _finite(arrays, f"{step.phase}_{k}", s) for k, s in shapes.items()}
    return released


def _finite(arrays: Arrays, name: str, wanted: Any) -> np.ndarray:
    found = arrays.get(name)
    if found is None or found.shape != wanted.shape or found.dtype != wanted.dtype:
        have = "missing" if found is None else f"{found.dtype}{list(found.shape)}"
        raise InputError(f"the request's array {name} is {have}; expected {wanted.dtype}{list(wanted.shape)}")
    if not np.all(np.isfinite(found)):
        raise InputError(f"the request's array {name} holds NaN or infinity; expected finite numbers")
    return found
