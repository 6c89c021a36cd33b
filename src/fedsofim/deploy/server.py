"""The coordinator's side of a job, without Flower: plan, ask, check what comes back, step.

One rule about missing clients: every round is averaged over all clients of the job or not at all. Noise, weights
and step sizes were planned for that many; and a round that some nodes answered can be asked again for free, since a
node returns the release it stored.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.audit import Program
from fedsofim.core.budget import Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.mechanisms import Independent
from fedsofim.core.models import softmax_head
from fedsofim.core.plan import Plan, Trust, Weights
from fedsofim.deploy.secure_sum import Shares, step_of, unmasked
from fedsofim.deploy.wire import Arrays, Job, Phase, Programs, Request, outgoing, programs
from fedsofim.errors import InputError
from fedsofim.methods import make, resolve

_ABSURD = 1000.0  # times the median norm of the round


@dataclass(frozen=True)
class Order:
    """What the coordinator wants trained. epsilon inf means without noise: a rehearsal."""

    method: str = "fedsofim"
    settings: tuple[tuple[str, str], ...] = ()
    epsilon: float = 1.0
    delta: float = 1e-5
    rounds: int = 70
    clip: float = 10.0
    clients: int = 3
    weights: Weights = "uniform"
    trust: Trust = "local"
    standardize: float = 0.0  # share of the budget for private feature moments; 0: none
    seed: int = 0


@dataclass(frozen=True)
class Client:
    """A node as it introduced itself."""

    name: str
    size: int
    shape: tuple[int, ...]
    classes: int


@dataclass(frozen=True)
class Progress:
    """Everything the next round depends on: a checkpoint holds it all, so a resumed job is bit-identical."""

    order: Order
    job: Job
    clients: tuple[Client, ...]  # in the order of their names
    params: Any
    state: Any
    moments: dict[str, Any] | None
    phase: Phase
    round: int  # the next to be asked, from 0

    @property
    def finished(self) -> bool:
        return self.phase == "round" and self.round >= self.job.rounds

    @property
    def programs(self) -> Programs:
        return programs(self.job, max(c.size for c in self.clients))

    @property
    def plan(self) -> Plan:
        return plan_of(self.order, self.clients)

    def request(self) -> Request:
        arrays = outgoing(self.programs, self.phase, self.params, self.state, self.moments)
        return Request(self.job, self.phase, self.round, arrays)


# --- beginning ----------------------------------------------------------------------------------------------


def client_of(hello: Mapping[str, Any]) -> Client:
    """A node as it introduces itself."""
    try:
        shape = tuple(map(int, hello["shape"]))
        client = Client(str(hello["node"]), int(hello["size"]), shape, int(hello["classes"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("a node's introduction cannot be read; do all run the same version?") from error
    if client.size < 1 or client.classes < 1 or not shape or min(shape) < 1:
        raise InputError(f"{client.name} states size {client.size}, shape {list(shape)}; expected at least one record")
    return client


def clients_of(hellos: Sequence[Mapping[str, Any]], order: Order) -> tuple[Client, ...]:
    """The nodes of a job, checked against each other."""
    found = sorted(map(client_of, hellos), key=lambda c: c.name)
    names = [c.name for c in found]
    for name in set(names):
        if names.count(name) > 1:
            raise InputError(f"two nodes call themselves {name}; give each a name of its own in its policy")
    if len(found) != order.clients:
        raise InputError(f"{len(found)} nodes are here ({', '.join(names)}); the job is for {order.clients}")
    for c in found[1:]:
        if (c.shape, c.classes) != (found[0].shape, found[0].classes):
            raise InputError(
                f"{found[0].name} has records of shape {list(found[0].shape)} in {found[0].classes} classes, {c.name} "
                f"of shape {list(c.shape)} in {c.classes}; expected the same everywhere"
            )
    return tuple(found)


@lru_cache(maxsize=8)  # one method object for the life of a job, so that its step is compiled once
def plan_of(order: Order, clients: tuple[Client, ...]) -> Plan:
    """The priced plan: shapes and sizes only."""
    budget = Budget(order.epsilon, order.delta) if order.epsilon != math.inf else None
    epsilon = order.epsilon if budget else None
    return plan(
        make(order.method, dict(order.settings), epsilon),
        softmax_head(),
        sizes=[c.size for c in clients],
        shape=clients[0].shape,
        classes=clients[0].classes,
        budget=budget,
        rounds=order.rounds,
        clip=order.clip,
        weights=order.weights,
        trust=order.trust,
        standardize=FeatureMoments(share=order.standardize) if order.standardize else None,
    )


def begin(order: Order, clients: tuple[Client, ...]) -> Progress:
    """A new job at its first request. Equal seeds start from equal parameters, the simulator's too."""
    settled = plan_of(order, clients)
    _check_trust(order, settled)
    epsilon = order.epsilon if settled.budget else None
    job = Job(
        id=uuid.uuid4().hex,
        method=order.method,
        settings=resolve(order.method, dict(order.settings), epsilon),
        rounds=order.rounds,
        clip=order.clip,
        clients=len(clients),
        classes=clients[0].classes,
        shape=clients[0].shape,
        stds={p: _stds(settled, found) for p, found in _by_phase(settled).items()},
        noise_std=settled.noise_std,
        standardize=asdict(settled.standardize) if settled.standardize else None,
        trust=order.trust,
        weights=order.weights,
        peers=tuple((c.name, c.size) for c in clients) if order.trust == "secure-sum" else (),
    )
    init_key, _ = jax.random.split(jax.random.key(order.seed))
    params = settled.model.init(init_key, clients[0].shape, clients[0].classes)
    phase: Phase = next(p for p in ("moments", "setup", "round") if p in _by_phase(settled))
    return Progress(order, job, clients, params, settled.method.init(params), None, phase, 0)


def _check_trust(order: Order, settled: Plan) -> None:
    """Only what the nodes can do under masks: one gradient a round, with noise."""
    plain = settled.pooled and settled.setup is None and settled.moments is None and settled.budget is not None
    if order.trust == "secure-sum" and not (plain and len(settled.sizes) >= 2):
        raise InputError(
            f"{order.method}: a secure sum needs at least 2 clients, noise, and a method that releases one gradient a "
            "round and nothing else; use trust local"
        )


def with_params(progress: Progress, params: Any) -> Progress:
    """The job from other initial parameters, of the same form."""
    wanted, given = (jax.tree.map(lambda a: (np.shape(a), np.asarray(a).dtype), t) for t in (progress.params, params))
    if wanted != given:
        raise InputError(f"the initial parameters are {given}; expected {wanted}")
    params = jax.tree.map(jnp.asarray, params)
    return replace(progress, params=params, state=progress.plan.method.init(params))


def _by_phase(settled: Plan) -> dict[Phase, Program]:
    pairs: dict[Phase, Program | None] = {"moments": settled.moments, "setup": settled.setup, "round": settled.program}
    return {phase: program for phase, program in pairs.items() if program is not None}


def _stds(settled: Plan, program: Program) -> list[float]:
    """Noise std of each release, in the order of the program."""
    if settled.budget is None:
        return [0.0] * len(program.sites)
    return [1.0 if c.charged == 0 else settled.multipliers[c.site] * c.clip for c in program.charges]


# --- what comes back ----------------------------------------------------------------------------------------


def faults(progress: Progress, uploads: Mapping[str, Arrays]) -> dict[str, str]:
    """What is wrong with the uploads received, by the name of the node; empty if all can be averaged."""
    wanted = _upload_shapes(progress)
    masked = progress.job.trust == "secure-sum"  # then each upload by itself looks like noise
    found = {name: why for name, arrays in uploads.items() if (why := _fault(arrays, wanted))}
    norms = {name: _norm(arrays) for name, arrays in uploads.items() if name not in found and not masked}
    middle = float(np.median(list(norms.values()))) if len(norms) >= 3 else math.inf
    for client in progress.clients:
        norm, largest = norms.get(client.name, 0.0), _largest(progress, client)
        if norm > _ABSURD * max(middle, 1e-30):
            why = f"{_ABSURD:g} times the round's median {middle:.3g}"
            found[client.name] = f"its upload has norm {norm:.3g}, more than {why}"
        elif norm > largest:
            found[client.name] = f"its upload has norm {norm:.3g}; clip and noise allow no more than {largest:.3g}"
    return found


def _largest(progress: Progress, client: Client) -> float:
    """What an upload's norm cannot reasonably exceed, where it is one clipped gradient with fresh noise."""
    plain = progress.phase == "round" and progress.plan.pooled
    site = progress.programs.by_phase["round"].sites[0]
    if not plain or type(site.noise) is not Independent or site.sample < 1:
        return math.inf
    noise = progress.job.stds["round"][0] * site.noise.scale * (math.sqrt(_dim(progress.params)) + 10)  # 10 sigma
    return 1.001 * (site.clip + noise / client.size)


def _upload_shapes(progress: Progress) -> dict[str, Any]:
    program = progress.programs.by_phase[progress.phase]
    specs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in program.jaxpr.jaxpr.outvars]
    upload, _ = jax.tree.unflatten(program.outputs, specs)
    if progress.job.trust == "secure-sum":
        return {"upload0": jax.ShapeDtypeStruct((_dim(upload),), np.uint64)}
    return {f"upload{i}": s for i, s in enumerate(jax.tree.leaves(upload))}


def _fault(arrays: Arrays, wanted: Mapping[str, Any]) -> str | None:
    if set(arrays) != set(wanted):
        return f"it sent arrays {sorted(arrays)}; expected {sorted(wanted)}"
    for name, want in wanted.items():
        have = arrays[name]
        if have.dtype != want.dtype or have.shape != want.shape:
            return f"its {name} is {have.dtype}{list(have.shape)}; expected {want.dtype}{list(want.shape)}"
        if np.isnan(have).any():
            return f"its {name} holds NaN"
        if np.isinf(have).any():
            return f"its {name} holds infinity"
    return None


def _norm(arrays: Arrays) -> float:
    return math.sqrt(sum(float(np.sum(np.square(a, dtype=np.float64))) for a in arrays.values()))


# --- the step -----------------------------------------------------------------------------------------------


def advance(progress: Progress, uploads: Mapping[str, Arrays]) -> Progress:
    """The job after averaging one upload of every client; anything less is an error."""
    names = [c.name for c in progress.clients]
    wrong = faults(progress, uploads)
    if wrong or set(uploads) != set(names):
        missing = sorted(set(names) - set(uploads))
        raise InputError(f"a round needs a sound upload of every client; missing: {missing}, wrong: {wrong}")
    settled = progress.plan
    mean = _mean(progress, [uploads[name] for name in names], settled.client_weights)
    if progress.phase == "moments":
        moments = {k: np.asarray(v) for k, v in mean.items()}
        following: Phase = "setup" if settled.setup is not None else "round"
        return replace(progress, moments=moments, phase=following)
    if progress.phase == "setup":
        assert settled.method.setup is not None
        return replace(progress, state=settled.method.setup.server(mean, progress.state), phase="round")
    params, state = _step(settled.method, settled.facts, mean, progress.state, progress.params)
    return replace(progress, params=params, state=state, round=progress.round + 1)


def _dim(tree: Any) -> int:
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(tree))


def _secure_mean(progress: Progress, uploads: Sequence[Arrays]) -> Any:
    """The weighted mean from masked uploads; if their masks did not cancel, an error and no step."""
    (site,) = progress.programs.by_phase["round"].sites
    leaves, structure = jax.tree.flatten(progress.params)
    shares = Shares.of(progress.job.peers, progress.job.weights)
    std = shares.std(progress.job.stds["round"][0], site.query.ratio * site.clip, _dim(progress.params))
    total = unmasked([u["upload0"] for u in uploads], step_of(std))
    largest = site.clip + std * math.sqrt(len(shares.names)) * (math.sqrt(len(total)) + 10)
    if np.linalg.norm(total) > largest:
        raise InputError("the masks do not cancel: some node was asked another question, or answered falsely")
    parts = np.split(total, np.cumsum([math.prod(np.shape(leaf)) for leaf in leaves])[:-1])
    shaped = [jnp.asarray(p.reshape(np.shape(leaf)), leaf.dtype) for p, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def _mean(progress: Progress, uploads: Sequence[Arrays], weights: np.ndarray) -> Any:
    if progress.job.trust == "secure-sum":
        return _secure_mean(progress, uploads)
    program = progress.programs.by_phase[progress.phase]
    upload, _ = jax.tree.unflatten(program.outputs, list(range(program.outputs.num_leaves)))
    leaves = [np.stack([u[f"upload{i}"] for u in uploads]) for i in range(len(jax.tree.leaves(upload)))]
    means = [jnp.tensordot(jnp.asarray(weights, leaf.dtype), jnp.asarray(leaf), 1) for leaf in leaves]
    return jax.tree.unflatten(jax.tree.structure(upload), means)


def _step(method: Any, facts: Any, mean: Any, state: Any, params: Any) -> tuple[Any, Any]:
    noise_std = jnp.float32(facts.noise_std)
    return _jitted(method, facts._replace(noise_std=0.0), noise_std, mean, state, params)


@partial(jax.jit, static_argnums=(0, 1))
def _jitted(method: Any, facts: Any, noise_std: Any, mean: Any, state: Any, params: Any) -> tuple[Any, Any]:
    return method.server(mean, state, params, facts._replace(noise_std=noise_std))
