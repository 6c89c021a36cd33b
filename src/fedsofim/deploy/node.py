"""What a node does with a request: derive its cost, check the operator's policy, charge, release. No Flower here.

The cost comes from the node's own audit of the method's program and from the noise the node itself will add; the
server's word is used for nothing but what to compute.
"""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.audit import Inputs, Program
from fedsofim.core.budget import stated
from fedsofim.core.keys import key_of
from fedsofim.core.phase import Phase
from fedsofim.core.preparation import prepared
from fedsofim.core.records import in_blocks
from fedsofim.core.site import MAX_SITES
from fedsofim.data.meaning import digest_of
from fedsofim.data.schema import plain_schema
from fedsofim.deploy.account import Ask, Opened
from fedsofim.deploy.allowances import allowance
from fedsofim.deploy.execute import Secrets, run, run_masked
from fedsofim.deploy.holding import held
from fedsofim.deploy.lines import Line
from fedsofim.deploy.mask_keys import check_keys, own_mask_key
from fedsofim.deploy.noise import fresh_secret, laid_out, request_secret
from fedsofim.deploy.packing import from_bytes, to_bytes, tree_from_bytes, tree_to_bytes
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.pricing import check_job, check_terms, hidden, masking, priced
from fedsofim.deploy.records import Data, read_data
from fedsofim.deploy.stopping import check_going, unless_stopped
from fedsofim.deploy.whom import check_places
from fedsofim.deploy.wire import Arrays, Job, Programs, Request, incoming, incoming_released, programs_of
from fedsofim.errors import InputError, Refused

Tell = Callable[[Opened], None]


def hello(policy: Policy) -> dict[str, Any]:
    """The public facts a server needs to plan: a node's name, its number of records, and their form."""
    data = read_data(policy)
    standing = policy.account.standing()
    return {
        "node": policy.name,
        "size": data.units,  # of what the policy protects: how many records a person has is not told
        "unit": policy.unit,
        "shape": list(data.x.shape[1:]),
        "classes": policy.classes,
        "ledger": standing.ledger,
        "version": version("fedsofim"),
        "allows": {"epsilon": stated(allowance(policy)), "delta": policy.delta},
        **({} if policy.secure_sum_min_clients == 0 else {"mask_key": own_mask_key(policy)}),  # public
        **({} if data.held_out is None else {"held_out": data.held_out.units}),
        **({} if policy.schema is None else {"schema": plain_schema(policy.schema)}),  # public
    }


def consider(policy: Policy, job: Job, anew: Request | None = None, digest: str = "") -> dict[str, Any]:
    """Would the whole job be allowed? Asked before any node spends anything; promises nothing, costs nothing.

    Args:
        policy: This node's.
        job: The job.
        anew: A question of the job whose sum came out false and that is to be asked anew; then the answer is about it
            and what was not charged yet of the job.
        digest: Of that question, as the server says; if this node was charged for it, it is free.
    """
    check_going(policy.ledger)
    check_job(policy, job)  # before anything is built
    check_keys(policy, job)
    data = read_data(policy)
    lines: list[Line] = []
    charged = policy.account.charged_rounds(job.id) if anew is not None else set()
    for phase in _programs(policy, job, data, Phase.ROUND).by_phase:
        programs = _programs(policy, job, data, phase)
        for round in range(job.times(phase)):
            request = Request(job, phase, round, {})
            if anew is not None and (anew.phase, anew.round) == (phase, round):
                request = anew
                if policy.account.has_charged(digest):
                    continue
            elif (str(phase), round) in charged:
                continue
            check_terms(policy, request)
            lines += priced(policy, request, programs, data.units, data.seen_in(phase).units).lines
    return {"epsilon": stated(policy.account.check(lines, cap=policy.epsilon, delta=policy.delta))}


def answer(policy: Policy, request: Request, tell: Tell = lambda opened: None) -> Arrays:
    """The upload, charged and stored; or Refused with the reason, and nothing has left. `tell` hears of the charge."""
    with unless_stopped(policy.ledger):
        check_terms(policy, request)  # before anything is built
        with held(policy.ledger, request.digest()):
            return _answer(policy, request, tell)


def _answer(policy: Policy, request: Request, tell: Tell = lambda opened: None) -> Arrays:
    data = read_data(policy)
    programs = _programs(policy, request.job, data, request.phase)
    price = priced(policy, request, programs, data.units, data.seen_in(request.phase).units)
    check_keys(policy, request.job)
    program = programs.by_phase[request.phase]
    how = masking(policy, request, program, price.shares) if price.shares is not None else None
    inputs = _inputs(policy, request, programs, data)  # all before the charge: what cannot run costs nothing
    account, ask, bounds = policy.account, _ask(request, program, data), policy.work.bounds
    opened = account.open_ask(
        ask, price.lines, cap=policy.epsilon, delta=policy.delta, fresh_secret=fresh_secret(), bounds=bounds
    )
    tell(opened)
    if opened.reply is not None:
        return from_bytes(opened.reply)
    secrets = Secrets(request_secret(opened.secret, ask.digest), opened.secret)
    parcels: Arrays = {}
    if how is not None:
        how, parcels = hidden(policy, request, how, secrets.own)
        upload, memory = run_masked(program, inputs, how, secrets), ()
    else:
        upload, memory = run(program, inputs, price.stds, secrets)
    reply = to_bytes({f"upload{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(upload))} | parcels)
    account.close_ask(opened.number, reply, tree_to_bytes(memory), bounds.stored)
    return from_bytes(reply)


def _programs(policy: Policy, job: Job, data: Data, phase: Phase) -> Programs:
    """The job's programs for the records that a phase is about, if it is about such records at all."""
    if job.schema != digest_of(policy.schema):
        raise Refused("the job is about tables of another schema than this node's; start a new job")
    if tuple(data.x.shape[1:]) != job.shape or policy.classes != job.classes:
        raise Refused(
            f"the job is about records of shape {list(job.shape)} in {job.classes} classes; this node's have shape "
            f"{list(data.x.shape[1:])} in {policy.classes}"
        )
    count = data.seen_in(phase).units
    check_places(job, count)
    return programs_of(job, count, policy.work.local_steps)


def _ask(request: Request, program: Program, data: Data) -> Ask:
    return Ask(
        job=request.job.id,
        terms=request.job.text(),
        data=data.fingerprint,
        phase=request.phase,
        round=request.round,
        digest=request.digest(),
        in_order=any(laid_out(site.noise) for site in program.sites),
    )


def _inputs(policy: Policy, request: Request, programs: Programs, data: Data) -> Inputs:
    params, state = incoming(programs, request.phase, request.arrays)
    seen = data.seen_in(request.phase)
    x, y = seen.laid(_seen(request, programs, seen.x), request.job.places)
    records = in_blocks(x, y, [np.arange(seen.units)])
    return Inputs(
        params=jax.tree.map(jnp.asarray, params),
        state=jax.tree.map(jnp.asarray, state),
        memory=_memory(policy, request, programs, params) if request.phase is Phase.ROUND else (),
        key=key_of(0),  # never drawn from: execute.py brings the noise
        index=jnp.int32(0),
        size=jnp.float32(seen.units),
        round=jnp.int32(request.round),
        noise_std=jnp.float32(request.job.noise_std),
        stds=jnp.zeros(MAX_SITES, jnp.float32),  # nor these: the exact ones go to execute.py
        records=jax.tree.map(jnp.asarray, records),
    )


def _seen(request: Request, programs: Programs, x: np.ndarray) -> np.ndarray:
    """The node's records as the phase sees them: each through every step before it, by what was released for them.

    The server may send any finite numbers: a map takes each record by itself, and what comes out is clipped. A number
    that overflows is no error, since that could tell of a record: the record counts as zeros.
    """
    steps = programs.before(request.phase)
    released = incoming_released(programs, request.phase, request.arrays)
    with np.errstate(all="ignore"):
        try:
            apply = prepared(steps, released, request.job.mean_stds)
        except (ArithmeticError, np.linalg.LinAlgError):  # of the request's arrays alone: no record was looked at
            names = ", ".join(released)
            raise InputError(f"what the request says was released ({names}) makes no map of records") from None
        return apply(x)


def _memory(policy: Policy, request: Request, programs: Programs, params: Any) -> Any:
    """What this client kept from the round before; its start in the first."""
    start = programs.method.memory(params)
    if request.round == 0 or not jax.tree.leaves(start):
        return jax.tree.map(jnp.asarray, start)
    kept = policy.account.memory(request.job.id, request.round - 1)
    if kept is None:
        raise Refused(
            f"this node did not take part in round {request.round}, whose memory round {request.round + 1} needs"
        )
    return jax.tree.map(jnp.asarray, tree_from_bytes(kept, start))
