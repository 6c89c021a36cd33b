"""Run a planned federation on this machine: the whole run is compiled, all clients of a round at once."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import records
from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.ledger import Program
from fedsofim.models import Model, evaluate
from fedsofim.plan import Plan
from fedsofim.release import MAX_SITES, Facts
from fedsofim.round import Carry, Federation, Method, ask_each, federated_round
from fedsofim.standardize import apply_moments

_ROUNDS_A_CALL = 10  # of the compiled program; between calls there is progress to show, and Ctrl-C works


class Trace(NamedTuple):
    """What was measured on the test set after each evaluated round."""

    rounds: np.ndarray
    accuracy: np.ndarray  # percent
    loss: np.ndarray


class Static(NamedTuple):
    """The part of a run that is compiled in: pure functions and flags."""

    method: Method
    model: Model
    program: Program
    facts: Facts
    pooled: bool
    every: int


def simulate(
    plan: Plan,
    data: Split,
    seed: int = 0,
    *,
    every: int = 1,
    pool: bool = True,
    progress: Callable[[int], None] | None = None,
) -> tuple[Any, Trace]:
    """Train by the plan; the final parameters and the trace. Equal seeds give bit-identical results.

    `pool=False` runs each client apart even where their mean could be computed at once (same law, other draws).
    `progress` is told the number of finished rounds now and then.
    """
    init_key, noise_key = jax.random.split(jax.random.key(seed))
    pooled = plan.pooled and pool
    clients = federation(plan, data, noise_key, pooled)
    carry = start(plan, clients, data, init_key)
    test = (jnp.asarray(data.data.x_test), jnp.asarray(data.data.y_test))
    static = Static(plan.method, plan.model, plan.program, plan.facts._replace(noise_std=0.0), pooled, every)
    pieces = []
    for first in range(0, plan.rounds, _ROUNDS_A_CALL):
        ts = jnp.arange(first, min(first + _ROUNDS_A_CALL, plan.rounds), dtype=jnp.int32)
        carry, measured = _advance(static, clients, test, plan.rounds, carry, ts)
        pieces.append(jax.tree.map(np.asarray, measured))
        if progress is not None:
            progress(int(ts[-1]) + 1)
    return carry.params, _trace([np.concatenate(p) for p in zip(*pieces, strict=True)], every, plan.rounds)


def federation(plan: Plan, data: Split, key: jax.Array, pooled: bool) -> Federation:
    """The records laid out for the executor, with the noise the plan calls for."""
    x, y = data.data.x_train, data.data.y_train
    stds = plan.stds(plan.program)
    weights = plan.client_weights
    if pooled:
        a = weights / np.asarray(plan.sizes)
        wide = plan.program.sites[0].query.wide
        laid = records.flat(x, y, data.parts, a.tolist()) if wide else _weighted(x, y, data, a)
        sizes, stds = np.ones(1), stds * plan.noise_gain
    else:
        laid, sizes = records.pack(x, y, data.parts), np.asarray(plan.sizes)
    return Federation(
        records=jax.tree.map(jnp.asarray, laid),
        sizes=jnp.asarray(sizes, jnp.float32),
        weights=jnp.asarray(weights, jnp.float32),
        stds=jnp.asarray(stds, jnp.float32),
        noise_std=jnp.float32(plan.noise_std),
        key=key,
    )


def start(plan: Plan, clients: Federation, data: Split, key: jax.Array) -> Carry:
    """Initial parameters, the server's state after any one-shot releases, and every client's memory."""
    params = plan.model.init(key, data.data.x_train.shape[1:], plan.classes)
    state = plan.method.init(params)
    if plan.method.setup is not None and plan.setup is not None:
        state = plan.method.setup.server(one_shot(plan, plan.setup, MAX_SITES, data, params, clients.key), state)
    memory = plan.method.memory(params)
    rows = jax.tree.map(lambda m: jnp.broadcast_to(m, (len(plan.sizes), *m.shape)), memory)
    return Carry(params, state, rows)


def one_shot(plan: Plan, program: Program, offset: int, data: Split, params: Any, key: jax.Array) -> Any:
    """The weighted mean of the uploads of a program that runs once, before the rounds."""
    laid = jax.tree.map(jnp.asarray, records.pack(data.data.x_train, data.data.y_train, data.parts))
    clients = Federation(
        records=laid,
        sizes=jnp.asarray(plan.sizes, jnp.float32),
        weights=jnp.asarray(plan.client_weights, jnp.float32),
        stds=jnp.asarray(plan.stds(program, offset)),
        noise_std=jnp.float32(plan.noise_std),
        key=jax.random.fold_in(key, len(plan.sizes) + offset),  # apart from every client's key of the rounds
    )
    return _ask_once(program, clients, params)


@partial(jax.jit, static_argnums=0)
def _ask_once(program: Program, clients: Federation, params: Any) -> Any:
    return ask_each(program, clients, Carry(params, (), ()), jnp.int32(0))[0]


def standardized(plan: Plan, data: Split, seed: int) -> Split:
    """The data as its clients map it after releasing their feature moments; unchanged if the plan has none."""
    if plan.moments is None or plan.standardize is None:
        return data
    init_key, noise_key = jax.random.split(jax.random.key(seed))
    params = plan.model.init(init_key, data.data.x_train.shape[1:], plan.classes)
    released = one_shot(plan, plan.moments, 2 * MAX_SITES, data, params, noise_key)
    return apply_moments(data, plan.standardize, released)


@partial(jax.jit, static_argnums=(0, 3), donate_argnums=4)
def _advance(static: Static, clients: Federation, test: tuple, last: int, carry: Carry, ts: jax.Array):
    """Some rounds as one compiled scan, measured after every `static.every`-th and after the last of the run."""

    def body(carry: Carry, t: jax.Array):
        carry = federated_round(static.method, static.program, static.facts, static.pooled, clients, carry, t)
        due = ((t + 1) % static.every == 0) | (t + 1 == last)
        measured = jax.lax.cond(due, lambda p: evaluate(static.model, p, *test), _unmeasured, carry.params)
        return carry, measured

    return jax.lax.scan(body, carry, ts)


def _unmeasured(params: Any) -> tuple[jax.Array, jax.Array]:
    return jnp.float32(0), jnp.float32(0)


def _trace(measured: list[np.ndarray], every: int, rounds: int) -> Trace:
    numbers = np.arange(1, rounds + 1)
    due = (numbers % every == 0) | (numbers == rounds)
    return Trace(numbers[due], *(m[due] for m in measured))


def _weighted(x: np.ndarray, y: np.ndarray, data: Split, a: np.ndarray) -> records.Records:
    """Blocks of all clients as if of one client, each record with its client's weight."""
    laid = records.pack(x, y, data.parts)
    weight = laid.weight * a[laid.owner][:, None].astype(x.dtype)
    return laid._replace(weight=weight, owner=np.zeros_like(laid.owner))


def check_finite(params: Any) -> None:
    """A run that overflowed is an error to report, not a result."""
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(params)):
        raise InputError("the parameters are no longer finite: the steps were too large; lower lr (or server_lr)")
