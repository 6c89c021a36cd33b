"""The coordinator's side of a job, without Flower: start it, and step from one question to the next.

A round is averaged over all clients of the job or not at all, unless the order says how many are enough (presence.py).
A round that some nodes answered can be asked again for free, since a node returns the release it stored.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import models
from fedsofim.core.keys import key_of
from fedsofim.core.models import HEAD
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.core.step_tables import as_tables
from fedsofim.deploy.clients import Client, check_same_unit
from fedsofim.deploy.counting import check_counting, counted, next_question
from fedsofim.deploy.job_state import FalseSum, JobState, choices_of, plan_of
from fedsofim.deploy.noise import is_plain
from fedsofim.deploy.order import Order
from fedsofim.deploy.presence import check_presence, fewest, noise_std_of, weights_of
from fedsofim.deploy.steps import PREPARING, phases_of
from fedsofim.deploy.unmasking import Exchange, FalseSumError, OpenSum, open_sum_of, unmasked
from fedsofim.deploy.uploads import faults, mean, mean_of_sum
from fedsofim.deploy.wire import Arrays, Job
from fedsofim.errors import InputError, expect_whole
from fedsofim.methods import resolve


def check_order(order: Order) -> None:
    """An error if the order is senseless, before any node is asked: started with clients of some size."""
    expect_whole("clients", order.clients, 1)
    if models.unless_head(order.model, dict(order.model_settings)) is not None:
        order = replace(order, model=HEAD, model_settings=())  # it could be made; it may be for records of another form
    allowed = (order.budget.epsilon, order.budget.delta) if order.from_nodes else None
    size = 1 if order.unit == "client" else 100
    start_job(
        order,
        tuple(
            Client(name=f"{i}", size=size, shape=(8,), classes=2, unit=order.unit, allows=allowed)
            for i in range(order.clients)
        ),
    )


def start_job(order: Order, clients: tuple[Client, ...]) -> JobState:
    """A new job at its first question. Equal seeds start from equal parameters, the simulator's too."""
    check_same_unit(clients, order.unit)
    plan = plan_of(order, clients)
    _check_trust(plan)
    check_counting(plan)
    check_presence(order, plan)
    init_key, _ = jax.random.split(key_of(order.seed))
    params = plan.model.init(init_key, plan.shape, plan.classes)
    return JobState(
        order=order,
        job=_terms(order, plan, clients),
        clients=clients,
        params=params,
        state=plan.method.init(params),
        released={},
        phase=next(iter(plan.programs)),
        round=0,
    )


def _terms(order: Order, plan: Plan, clients: tuple[Client, ...]) -> Job:
    """The terms under which the nodes are asked."""
    chosen = choices_of(order, clients)
    return Job(
        id=uuid.uuid4().hex,
        method=chosen.method,
        settings=resolve(chosen.method, dict(chosen.settings), order.budget.epsilon),
        model=models.spelled(order.model),
        model_settings=_listed(models.resolve(order.model, dict(order.model_settings))),
        rounds=plan.rounds,
        clip=plan.clip,
        clients=len(clients),
        classes=clients[0].classes,
        shape=clients[0].shape,
        stds={phase: plan.stds(phase) for phase in plan.programs},
        own_stds={c.name: {phase: plan.stds(phase, i) for phase in plan.programs} for i, c in enumerate(clients)}
        if plan.each
        else {},
        noise_std=plan.noise_std,
        preparation=as_tables(plan.preparation),
        mean_stds={phase: plan.mean_std(phase) for phase in phases_of(plan.preparation)},
        schema=clients[0].digest,
        evaluations=plan.programs[Phase.EVALUATION].charges[0].releases if Phase.EVALUATION in plan.programs else 0,
        evaluation_share=order.evaluate_share if order.privately else 0.0,
        trust=order.trust,
        weights=plan.weights,
        peers=tuple((c.name, c.size) for c in clients) if order.trust == "secure-sum" else (),
        ledgers={c.name: c.ledger for c in clients} if order.trust == "secure-sum" else {},
        mask_keys={c.name: c.mask_key for c in clients} if order.trust == "secure-sum" else {},
        min_clients=order.min_sum or 0,
        unit=plan.unit,
        places=order.places or 0,
    )


def _listed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives them back, which has no tuples."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}


def _check_trust(plan: Plan) -> None:
    """Only what the nodes can do under masks: one gradient a round and the sums of a preparation, with fresh noise."""
    if plan.trust != "secure-sum":
        return
    sites = [program.sites for program in plan.programs.values()]
    once = all(len(s) == 1 and is_plain(s[0].noise) for s in sites)
    plain = plan.pooled and once and Phase.SETUP not in plan.programs and plan.budget.private
    if not (plain and len(plan.sizes) >= 2):
        raise InputError(
            f"{plan.method.name}: a secure sum needs at least 2 clients, noise, and a method that releases one "
            "gradient a round and nothing else; use trust local"
        )


def with_params(now: JobState, params: Any) -> JobState:
    """The job from other initial parameters, of the same form."""
    wanted, given = (jax.tree.map(lambda a: (np.shape(a), np.asarray(a).dtype), t) for t in (now.params, params))
    if wanted != given:
        raise InputError(f"the initial parameters are {given}; expected {wanted}")
    params = jax.tree.map(jnp.asarray, params)
    return replace(now, params=params, state=now.plan.method.init(params))


# --- the step -----------------------------------------------------------------------------------------------


def step(now: JobState, uploads: Mapping[str, Arrays], exchange: Exchange | None = None) -> JobState:
    """The job after averaging one upload of every client, or of as many as are enough; anything less is an error.

    A secure sum that can do without some clients takes their help to be opened: `exchange` asks them.
    """
    check_uploads(now, uploads)
    opening = open_sum_of(now, uploads)
    if opening is not None:
        return step_open(now, opening, exchange)
    present = [c.name for c in now.clients if c.name in uploads]
    return _after(now, mean(now, [uploads[name] for name in present], weights_of(now, present)), present)


def step_open(now: JobState, opening: OpenSum, exchange: Exchange | None) -> JobState:
    """The job after an open sum is unmasked with the help of its clients."""
    if exchange is None:
        raise InputError("this sum can do without some clients, and needs their help to be opened; ask them")
    return _after(now, mean_of_sum(now, unmasked(opening, exchange), opening.present), opening.present)


def thrown_away(now: JobState, error: FalseSumError) -> JobState:
    """The job when a sum came out false: the next attempt is another question, so that no old mask or noise returns."""
    found = FalseSum(phase=now.phase, round=now.request().round, present=error.present, accused=error.accused)
    return replace(now, attempt=now.attempt + 1, false_sums=(*now.false_sums, found))


def check_uploads(now: JobState, uploads: Mapping[str, Arrays]) -> None:
    """An error unless these are sound uploads of enough clients."""
    names = [c.name for c in now.clients]
    wrong, missing = faults(now, uploads), sorted(set(names) - set(uploads))
    if wrong or set(uploads) - set(names) or len(uploads) < fewest(now):
        needed = "every client" if fewest(now) == len(names) else f"{fewest(now)} clients"
        raise InputError(f"a round needs a sound upload of {needed}; missing: {missing}, wrong: {wrong}")


def _after(now: JobState, average: Any, present: Sequence[str]) -> JobState:
    after, missing = _stepped(now, average, present), {c.name for c in now.clients} - set(present)
    after = replace(after, attempt=0)
    if not missing or now.phase is not Phase.ROUND:
        return after
    return replace(after, absent={**now.absent, now.round: tuple(sorted(missing))})


def _stepped(now: JobState, average: Any, present: Sequence[str]) -> JobState:
    method = now.plan.method
    if now.phase in PREPARING:
        means = {key: np.asarray(value) for key, value in average.items()}
        return replace(now, released={**now.released, now.phase: means}, phase=_next_phase(now))
    if now.phase is Phase.SETUP:
        assert method.setup is not None
        return replace(now, state=method.setup.server(average, now.state), phase=_next_phase(now))
    if now.phase is Phase.EVALUATION:
        return counted(now, average, present)
    facts = now.plan.facts
    noise_std = jnp.float32(noise_std_of(now, present))
    params, state = _jitted(method, facts._replace(noise_std=0.0), noise_std, average, now.state, now.params)
    return next_question(replace(now, params=params, state=state, round=now.round + 1))


def _next_phase(now: JobState) -> Phase:
    phases = list(now.plan.programs)
    return phases[phases.index(now.phase) + 1]


@partial(jax.jit, static_argnums=(0, 1))
def _jitted(method: Any, facts: Any, noise_std: Any, average: Any, state: Any, params: Any) -> tuple[Any, Any]:
    return method.server(average, state, params, facts._replace(noise_std=noise_std))
