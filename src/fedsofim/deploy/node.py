"""What a node does with a request: derive its cost, check the operator's policy, charge, release. No Flower here.

The cost comes from the node's own audit of the method's program and from the noise the node itself will add; the
server's word is used for nothing but what to compute.
"""

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.audit import Inputs, Program
from fedsofim.core.door import MAX_SITES
from fedsofim.core.feature_moments import standardizer
from fedsofim.data.npz import read_arrays
from fedsofim.deploy.account import Account, Ask, Line, finite
from fedsofim.deploy.execute import Secrets, run, run_masked
from fedsofim.deploy.noise import fresh_secret, laid_out
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.pricing import check_terms, masking, priced
from fedsofim.deploy.wire import (
    Arrays,
    Job,
    Programs,
    Request,
    from_bytes,
    incoming,
    programs,
    to_bytes,
    tree_from_bytes,
    tree_to_bytes,
)
from fedsofim.errors import InputError, Refused


class DataProblem(InputError):
    """Something about the records themselves: never told to the server."""


class Data(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    fingerprint: str


def hello(policy: Policy) -> dict[str, Any]:
    """The public facts a server needs to plan: a node's name, its number of records, and their form."""
    data = read_data(policy)
    return {
        "node": policy.name,
        "size": len(data.y),
        "shape": list(data.x.shape[1:]),
        "classes": policy.classes,
        "version": version("fedsofim"),
    }


def consider(policy: Policy, job: Job) -> dict[str, Any]:
    """Would the whole job be allowed? Asked before any node spends anything; promises nothing, costs nothing."""
    data = read_data(policy)
    settled = _settled(policy, job, data)
    lines: list[Line] = []
    for phase in settled.by_phase:
        for round in range(job.rounds if phase == "round" else 1):
            request = Request(job, phase, round, {})
            check_terms(policy, request)
            lines += priced(policy, request, settled, len(data.y)).lines
    return {"epsilon": finite(Account(policy.ledger).check(lines, policy.epsilon, policy.delta))}


def answer(policy: Policy, request: Request) -> Arrays:
    """The upload, charged and stored; or Refused with the reason, and nothing has left."""
    check_terms(policy, request)
    data = read_data(policy)
    settled = _settled(policy, request.job, data)
    price = priced(policy, request, settled, len(data.y))
    program = settled.by_phase[request.phase]
    how = masking(policy, request, program, price.shares) if price.shares is not None else None
    inputs = _inputs(policy, request, settled, data)  # all before the charge: what cannot run costs nothing
    account = Account(policy.ledger)
    opened = account.open_ask(_ask(request, program, data), price.lines, policy.epsilon, policy.delta, fresh_secret())
    if opened.reply is not None:
        return from_bytes(opened.reply)
    secrets = Secrets(fresh_secret(), opened.secret)
    if how is not None:
        upload, memory = run_masked(program, inputs, how, secrets), ()
    else:
        upload, memory = run(program, inputs, price.stds, secrets)
    reply = to_bytes({f"upload{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(upload))})
    account.close_ask(opened.number, reply, tree_to_bytes(memory))
    return from_bytes(reply)


def _settled(policy: Policy, job: Job, data: Data) -> Programs:
    """The job's programs for these records, if it is about such records at all."""
    if tuple(data.x.shape[1:]) != job.shape or policy.classes != job.classes:
        raise Refused(
            f"the job is about records of shape {list(job.shape)} in {job.classes} classes; this node's have shape "
            f"{list(data.x.shape[1:])} in {policy.classes}"
        )
    return programs(job, len(data.y))


def _ask(request: Request, program: Program, data: Data) -> Ask:
    job, in_order = request.job, any(laid_out(site.noise) for site in program.sites)
    return Ask(job.id, job.text(), data.fingerprint, request.phase, request.round, request.digest(), in_order)


def read_data(policy: Policy) -> Data:
    """The node's records, checked; what is wrong with them is for the operator's eyes only."""
    try:
        found = read_arrays(policy.data)
        x, y = np.asarray(found["x"], np.float32), np.asarray(found["y"])
    except (InputError, KeyError, ValueError):  # whose texts may quote a record
        raise DataProblem(f"{policy.data}: expected a readable .npz file with arrays of numbers x and y") from None
    if x.ndim != 2 or y.shape != (len(x),) or len(x) == 0 or not np.issubdtype(y.dtype, np.integer):
        form = f"x is {x.shape}, y is {y.dtype}{y.shape}"
        raise DataProblem(f"{policy.data}: {form}; expected x (records x features) and one whole label for each record")
    if outside := int(np.sum((y < 0) | (y >= policy.classes))):
        raise DataProblem(f"{policy.data}: {outside} labels lie outside 0..{policy.classes - 1}")
    y = y.astype(np.int32)
    digest = hashlib.sha256(np.ascontiguousarray(x).tobytes() + y.tobytes()).hexdigest()
    return Data(x, y, digest)


def _inputs(policy: Policy, request: Request, settled: Programs, data: Data) -> Inputs:
    params, state = incoming(settled, request.phase, request.arrays)
    x = data.x
    if settled.standardize is not None and request.phase != "moments":
        x = standardizer(settled.standardize, _moments(request.arrays, x.shape[1:]))(x)
    records = pack(x, data.y, [np.arange(len(data.y))])
    return Inputs(
        params=jax.tree.map(jnp.asarray, params),
        state=jax.tree.map(jnp.asarray, state),
        memory=_memory(policy, request, settled, params) if request.phase == "round" else (),
        key=jax.random.key(0),  # never drawn from: execute.py brings the noise
        index=jnp.int32(0),
        size=jnp.float32(len(data.y)),
        round=jnp.int32(request.round),
        noise_std=jnp.float32(request.job.noise_std),
        stds=jnp.zeros(MAX_SITES, jnp.float32),  # nor these: the exact ones go to execute.py
        records=jax.tree.map(jnp.asarray, records),
    )


def _memory(policy: Policy, request: Request, settled: Programs, params: Any) -> Any:
    """What this client kept from the round before; its start in the first."""
    start = settled.method.memory(params)
    if request.round == 0 or not jax.tree.leaves(start):
        return jax.tree.map(jnp.asarray, start)
    kept = Account(policy.ledger).memory(request.job.id, request.round - 1)
    if kept is None:
        raise Refused(
            f"this node did not take part in round {request.round}, whose memory round {request.round + 1} needs"
        )
    return jax.tree.map(jnp.asarray, tree_from_bytes(kept, start))


def _moments(arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    found = {k: arrays.get(f"moments_{k}") for k in ("first", "second")}
    for name, value in found.items():
        if value is None or value.shape != shape or not np.all(np.isfinite(value)):
            raise InputError(
                f"the request's array moments_{name} is missing or of the wrong form; expected {list(shape)}"
            )
    return found  # type: ignore[return-value]
