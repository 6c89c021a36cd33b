"""Run a planned federation on this machine: the whole run is compiled, all clients of a round at once."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import native, records
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

    @staticmethod
    def of(plan: Plan, pooled: bool, every: int) -> "Static":
        """Of a plan, without its noise: seeds and budgets share one program."""
        return Static(plan.method, plan.model, plan.program, plan.facts._replace(noise_std=0.0), pooled, every)


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
    native.prepare()
    init_key, noise_key = keys(seed)
    pooled = plan.pooled and pool
    clients = federation(plan, data, noise_key, pooled)
    carry = start(plan, clients, data, init_key)
    return run_rounds(Static.of(plan, pooled, every), clients, data, carry, progress)


def run_rounds(
    static: Static, clients: Federation, data: Split, carry: Carry, progress: Callable[[int], None] | None = None
) -> tuple[Any, Trace]:
    """All rounds of a run, some to a call of one compiled program: the final parameters and the trace."""
    rounds = static.facts.rounds
    test = jax.device_put((data.data.x_test, data.data.y_test))
    measured = unmeasured(rounds)
    for first in range(0, rounds, _ROUNDS_A_CALL):
        end = min(first + _ROUNDS_A_CALL, rounds)
        carry, measured = jax.block_until_ready(
            advance(static, clients, test, carry, measured, np.int32(first), np.int32(end))
        )
        if progress is not None:
            progress(end)
    return carry.params, _trace(measured, static.every)


def keys(seed: int) -> tuple[jax.Array, jax.Array]:
    """The two keys of a run: of the initial parameters, and of all noise."""
    return _keys(np.int64(seed))


@jax.jit
def _keys(seed: jax.Array) -> tuple[jax.Array, jax.Array]:
    init_key, noise_key = jax.random.split(jax.random.key(seed))
    return init_key, noise_key


def federation(
    plan: Plan, data: Split, key: jax.Array, pooled: bool, laid: records.Records | None = None
) -> Federation:
    """All clients with the noise the plan calls for; `laid` are the records, where they are laid out already."""
    stds = plan.stds(plan.program)
    return Federation(
        records=layout(plan, data, pooled) if laid is None else laid,
        sizes=_float32([1.0] if pooled else plan.sizes),
        weights=_float32(plan.client_weights),
        stds=_float32(stds * plan.noise_gain if pooled else stds),
        noise_std=_float32(plan.noise_std),
        key=key,
    )


def _float32(numbers: Any) -> jax.Array:
    """Numbers of the host on the device. Not by `jnp.asarray`, which compiles a program for every shape."""
    return jax.device_put(np.asarray(numbers, np.float32))


def layout(plan: Plan, data: Split, pooled: bool) -> records.Records:
    """The records as the executor reads them."""
    x, y = data.data.x_train, data.data.y_train
    if not pooled:
        return jax.device_put(records.pack(x, y, data.parts))
    a = plan.client_weights / np.asarray(plan.sizes)
    wide = plan.program.sites[0].query.wide
    return jax.device_put(records.flat(x, y, data.parts, a.tolist()) if wide else _weighted(x, y, data, a))


def start(plan: Plan, clients: Federation, data: Split, key: jax.Array) -> Carry:
    """What a run starts from: initial parameters, state and memory, after any one-shot releases."""
    return set_up(plan, clients, data, initial(plan, data, key))


def initial(plan: Plan, data: Split, key: jax.Array) -> Carry:
    """Initial parameters, the server's state before any release, and every client's memory."""
    params = parameters(plan, data, key)
    return Carry(params, *_state(plan.method, len(plan.sizes), params))


def parameters(plan: Plan, data: Split, key: jax.Array) -> Any:
    """The model's initial parameters."""
    return _parameters(plan.model, data.data.x_train.shape[1:], plan.classes, key)


# Two programs, since methods share the first. Outside of a program every operation would be compiled on its own.


@partial(jax.jit, static_argnums=(0, 1, 2))
def _parameters(model: Model, shape: tuple[int, ...], classes: int, key: jax.Array) -> Any:
    return model.init(key, shape, classes)


@partial(jax.jit, static_argnums=(0, 1))
def _state(method: Method, clients: int, params: Any) -> tuple[Any, Any]:
    """The server's, and a row of memory for each client."""
    rows = jax.tree.map(lambda m: jnp.broadcast_to(m, (clients, *m.shape)), method.memory(params))
    return method.init(params), rows


def set_up(plan: Plan, clients: Federation, data: Split, carry: Carry) -> Carry:
    """The start after the method's one-shot releases, if it has any."""
    if plan.method.setup is None or plan.setup is None:
        return carry
    mean = one_shot(plan, plan.setup, MAX_SITES, data, carry.params, clients.key)
    return carry._replace(state=plan.method.setup.server(mean, carry.state))


def one_shot(plan: Plan, program: Program, offset: int, data: Split, params: Any, key: jax.Array) -> Any:
    """The weighted mean of the uploads of a program that runs once, before the rounds."""
    clients = Federation(
        records=layout(plan, data, pooled=False),
        sizes=_float32(plan.sizes),
        weights=_float32(plan.client_weights),
        stds=_float32(plan.stds(program, offset)),
        noise_std=_float32(plan.noise_std),
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
    init_key, noise_key = keys(seed)
    params = parameters(plan, data, init_key)
    released = one_shot(plan, plan.moments, 2 * MAX_SITES, data, params, noise_key)
    return apply_moments(data, plan.standardize, released)


class Measured(NamedTuple):
    """On the test set after each round; 0 where it was not measured."""

    accuracy: Any
    loss: Any


def unmeasured(rounds: int) -> Measured:
    """No round measured yet."""
    return Measured(np.zeros(rounds, np.float32), np.zeros(rounds, np.float32))


@partial(jax.jit, static_argnums=0, donate_argnums=(3, 4))
def advance(
    static: Static, clients: Federation, test: tuple, carry: Carry, measured: Measured, first: Any, end: Any
) -> tuple[Carry, Measured]:
    """The rounds from `first` up to `end`, measured after every `static.every`-th and after the last of the run.

    Which rounds is an input: a shorter last piece of a run is the same compiled program.
    """

    def body(t: jax.Array, now: tuple[Carry, Measured]) -> tuple[Carry, Measured]:
        carry, measured = now
        carry = federated_round(static.method, static.program, static.facts, static.pooled, clients, carry, t)
        due = ((t + 1) % static.every == 0) | (t + 1 == static.facts.rounds)
        found = jax.lax.cond(due, lambda p: Measured(*evaluate(static.model, p, *test)), _nothing, carry.params)
        return carry, jax.tree.map(lambda m, v: jax.lax.dynamic_update_index_in_dim(m, v, t, 0), measured, found)

    return jax.lax.fori_loop(first, end, body, (carry, measured))


def _nothing(params: Any) -> Measured:
    return Measured(jnp.float32(0), jnp.float32(0))


def _trace(measured: Measured, every: int) -> Trace:
    rounds = len(measured.loss)
    numbers = np.arange(1, rounds + 1)
    due = (numbers % every == 0) | (numbers == rounds)
    return Trace(numbers[due], *(np.asarray(m)[due] for m in measured))


def _weighted(x: np.ndarray, y: np.ndarray, data: Split, a: np.ndarray) -> records.Records:
    """Blocks of all clients as if of one client, each record with its client's weight."""
    laid = records.pack(x, y, data.parts)
    weight = laid.weight * a[laid.owner][:, None].astype(x.dtype)
    return laid._replace(weight=weight, owner=np.zeros_like(laid.owner))


def finite(params: Any) -> bool:
    """Is every number finite?"""
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in jax.tree.leaves(params))


def check_finite(params: Any) -> None:
    """A run that overflowed is an error to report, not a result."""
    if not finite(params):
        raise InputError("the parameters are no longer finite: the steps were too large; lower lr (or server_lr)")
