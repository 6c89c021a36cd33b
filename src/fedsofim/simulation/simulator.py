"""Run a planned federation on this machine: the whole run is compiled, all clients of a round at once."""

import math
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import native
from fedsofim.core.audit import Program
from fedsofim.core.cohort import Carry, Cohort
from fedsofim.core.each_client import stds_of_each
from fedsofim.core.keys import key_of_words, words_of
from fedsofim.core.method import Method
from fedsofim.core.models import Model, evaluate
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.core.pooled import noise_gain, pool, whose
from fedsofim.core.programs import upload_shapes
from fedsofim.core.records import Records, in_blocks
from fedsofim.core.round import Rules, ask_each, federated_round
from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.progress import SILENT, Progress
from fedsofim.simulation.turns import in_groups, in_pieces
from fedsofim.tasks import Task

_ROUNDS_A_CALL = 10  # of the compiled program; between calls there is progress to show, and Ctrl-C works
_NUMBERS = 2**25  # of all clients' uploads side by side, at most
# Added to the number of clients: a one-shot phase's key, apart from every client's. Any numbers would do; published
# results were drawn with these.
_STREAM = {Phase.SETUP: 64, Phase.MOMENTS: 128, Phase.SCALES: 192}


class Trace(NamedTuple):
    """What was measured on the test set after each evaluated round."""

    rounds: np.ndarray
    score: np.ndarray  # the task's one number: accuracy in percent, or RMSE
    loss: np.ndarray

    @property
    def accuracy(self) -> np.ndarray:
        """The same where it is one."""
        return self.score


class Static(NamedTuple):
    """The part of a run that is compiled in."""

    rules: Rules
    model: Model
    every: int  # how many rounds from one evaluation to the next
    task: Task = Task()

    @staticmethod
    def of(plan: Plan, pooled: bool, every: int) -> "Static":
        """Of a plan, without its noise: seeds and budgets share one program."""
        facts = plan.facts._replace(noise_std=0.0)
        return Static(Rules(plan.method, plan.program, facts, pooled), plan.model, every, plan.task)


Watch = Callable[[int, float, float], None]  # round, the task's one number, loss


def simulate(plan: Plan, split: Split, seed: int = 0, **how: Any) -> tuple[Any, Trace]:
    """Train by the plan; the final parameters and the trace."""
    end, trace = simulate_to_end(plan, split, seed, **how)
    return end.params, trace


def simulate_to_end(
    plan: Plan,
    split: Split,
    seed: int = 0,
    *,
    every: int = 1,
    apart: bool = False,
    progress: Progress = SILENT,
    watch: Watch | None = None,
) -> tuple[Carry, Trace]:
    """The same with the server's state at the end. Equal seeds give bit-identical results.

    `apart` asks each client by itself even where all could be asked in one call (same law, other draws). `watch` is
    told what was measured, soon after each evaluated round.
    """
    native.prepare()
    init_key, noise_key = keys(seed)
    pooled = plan.pooled and not apart
    cohort = cohort_of(plan, split, noise_key, pooled)
    carry = set_up(plan, cohort, split, start(plan, split, init_key))
    return run_rounds(Static.of(plan, pooled, every), cohort, split, carry, progress, watch)


def run_rounds(
    static: Static,
    cohort: Cohort,
    split: Split,
    carry: Carry,
    progress: Progress = SILENT,
    watch: Watch | None = None,
) -> tuple[Carry, Trace]:
    """All rounds of a run, some to a call of one compiled program: the end and the trace."""
    rounds = static.rules.facts.rounds
    test = jax.device_put((split.dataset.x_test, split.dataset.y_test))
    measured = unmeasured(rounds)
    for first in range(0, rounds, _ROUNDS_A_CALL):
        end = min(first + _ROUNDS_A_CALL, rounds)
        carry, measured = jax.block_until_ready(
            rounds_between(static, cohort, test, carry, measured, np.int32(first), np.int32(end))
        )
        progress.at(end)
        if watch is not None:
            _tell(watch, _trace(measured, static.every), first, end)
    return carry, _trace(measured, static.every)


def _tell(watch: Watch, trace: Trace, first: int, end: int) -> None:
    for t, score, loss in zip(*trace, strict=True):
        if first < t <= end:
            watch(int(t), float(score), float(loss))


def keys(seed: int) -> tuple[jax.Array, jax.Array]:
    """The two keys of a run: of the initial parameters, and of all noise."""
    return _keys(words_of(seed))


@jax.jit
def _keys(words: jax.Array) -> tuple[jax.Array, jax.Array]:
    init_key, noise_key = jax.random.split(key_of_words(words))
    return init_key, noise_key


def a_seed_nobody_knows() -> int:
    """64 bits of the operating system's entropy."""
    return secrets.randbits(64) - 2**63


# --- the clients --------------------------------------------------------------------------------------------


def cohort_of(plan: Plan, split: Split, key: jax.Array, pooled: bool, laid: Records | None = None) -> Cohort:
    """All clients with the noise the plan calls for; `laid` are the records, where they are laid out already."""
    stds = plan.stds_by_site(Phase.ROUND)
    if len(plan.members) > 1:
        return in_groups(plan, split, key, pooled)
    laid = layout(plan, split, pooled) if laid is None else laid
    return Cohort(
        records=laid,
        sizes=_float32(plan.attendance * np.asarray([1.0] if pooled else plan.sizes)),  # in expectation
        weights=_float32(plan.client_weights),
        stds=_float32(stds * plan.noise_gain if pooled else stds_of_each(plan, Phase.ROUND)),
        noise_std=_float32(plan.noise_std),
        key=key,
        whose=jax.device_put(whose(plan.sizes, laid)) if pooled and plan.attendance < 1 else None,
    )


def layout(plan: Plan, split: Split, pooled: bool) -> Records:
    """The records as a round reads them."""
    x, y, parts = split.laid()
    if not pooled:
        return jax.device_put(in_blocks(x, y, parts))
    return jax.device_put(pool(x, y, parts, plan.factors, plan.program.sites[0].query.tile))


def _float32(numbers: Any) -> jax.Array:
    """Numbers of the host on the device. Not by `jnp.asarray`, which compiles a program for every shape."""
    return jax.device_put(np.asarray(numbers, np.float32))


# --- the start ----------------------------------------------------------------------------------------------


def start(plan: Plan, split: Split, key: jax.Array) -> Carry:
    """What a run starts from before any release: parameters, the server's state, every client's memory."""
    params = start_parameters(plan, split, key)
    groups = len(plan.members)
    rows = (len(plan.sizes),) if groups == 1 else (groups, max(len(m) for m in plan.members))
    return Carry(params, *_start_state(plan.method, rows, params))


def start_parameters(plan: Plan, split: Split, key: jax.Array) -> Any:
    """The model's parameters before round 1, for prepared records."""
    return _start_parameters(plan.model, plan.shape, plan.classes, key)


# Two programs, since methods share the first. Outside of a program every operation would be compiled on its own.


@partial(jax.jit, static_argnums=(0, 1, 2))
def _start_parameters(model: Model, shape: tuple[int, ...], classes: int, key: jax.Array) -> Any:
    return model.init(key, shape, classes)


@partial(jax.jit, static_argnums=(0, 1))
def _start_state(method: Method, clients: tuple[int, ...], params: Any) -> tuple[Any, Any]:
    """The server's, and a row of memory for each client; by group, where groups take turns."""
    rows = jax.tree.map(lambda m: jnp.broadcast_to(m, (*clients, *m.shape)), method.memory(params))
    return method.init(params), rows


def set_up(plan: Plan, cohort: Cohort, split: Split, carry: Carry) -> Carry:
    """The start after the method's one-shot release, if it has one."""
    if plan.method.setup is None:
        return carry
    mean = ask_once(plan, Phase.SETUP, split, carry.params, cohort.key)
    return carry._replace(state=plan.method.setup.server(mean, carry.state))


def ask_once(plan: Plan, phase: Phase, split: Split, params: Any, key: jax.Array) -> Any:
    """The weighted mean of the uploads of a phase that happens once, before the rounds.

    Every client draws noise of its own; where the clients share it, each has so much less that the mean's is right.
    Where all uploads at once would not fit, some clients after others.
    """
    program, key = plan.programs[phase], jax.random.fold_in(key, len(plan.sizes) + _STREAM[phase])
    share = plan.gain(phase) / noise_gain(plan.factors, shared=False)
    stds = plan.stds_by_site(phase) * share if plan.shared(phase) else stds_of_each(plan, phase)
    numbers = sum(math.prod(s.shape) for s in jax.tree.leaves(upload_shapes(program)))
    pieces = in_pieces(split, plan.sizes, plan.client_weights, stds, at_once=max(1, _NUMBERS // numbers))
    fixed: dict[str, Any] = {"noise_std": _float32(plan.noise_std)}
    if len(pieces) == 1:
        return _ask_once(program, Cohort(**pieces[0], **fixed, key=key), params)
    keys = [jax.random.fold_in(key, number) for number in range(len(pieces))]
    means = [_ask_once(program, Cohort(**p, **fixed, key=k), params) for p, k in zip(pieces, keys, strict=True)]
    return jax.tree.map(lambda *parts: sum(parts), *means)


@partial(jax.jit, static_argnums=0)
def _ask_once(program: Program, cohort: Cohort, params: Any) -> Any:
    return ask_each(program, cohort, Carry(params, (), ()), jnp.int32(0))[0]


# --- the rounds ---------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """On the test set after each round; 0 where it was not measured."""

    score: Any
    loss: Any


def unmeasured(rounds: int) -> Measured:
    """No round measured yet."""
    return Measured(np.zeros(rounds, np.float32), np.zeros(rounds, np.float32))


@partial(jax.jit, static_argnums=0, donate_argnums=(3, 4))
def rounds_between(
    static: Static, cohort: Cohort, test: tuple, carry: Carry, measured: Measured, first: Any, end: Any
) -> tuple[Carry, Measured]:
    """The rounds from `first` up to `end`, measured after every `static.every`-th and after the last of the run.

    Which rounds is an input: a shorter last piece of a run is the same compiled program.
    """

    def body(t: jax.Array, now: tuple[Carry, Measured]) -> tuple[Carry, Measured]:
        carry, measured = now
        carry = federated_round(static.rules, cohort, carry, t)
        due = ((t + 1) % static.every == 0) | (t + 1 == static.rules.facts.rounds)
        found = jax.lax.cond(due, lambda p: _measured(static, p, test), _not_measured, carry.params)
        return carry, jax.tree.map(lambda m, v: jax.lax.dynamic_update_index_in_dim(m, v, t, 0), measured, found)

    return jax.lax.fori_loop(first, end, body, (carry, measured))


def _measured(static: Static, params: Any, test: tuple) -> Measured:
    x, y = test
    return Measured(*evaluate(static.model, params, x, y, static.task))


def _not_measured(params: Any) -> Measured:
    return Measured(jnp.float32(0), jnp.float32(0))


def _trace(measured: Measured, every: int) -> Trace:
    rounds = len(measured.loss)
    numbers = np.arange(1, rounds + 1)
    due = (numbers % every == 0) | (numbers == rounds)
    return Trace(numbers[due], *(np.asarray(m)[due] for m in measured))


def all_finite(params: Any) -> bool:
    """Is every number finite?"""
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in jax.tree.leaves(params))


def check_finite(params: Any) -> None:
    """A run that overflowed is an error to report, not a result."""
    if not all_finite(params):
        raise InputError(overflowed("parameters"))


def overflowed(what: str) -> str:
    """Return the message for a run whose numbers outgrew their type."""
    return f"the {what} are no longer finite: the steps were too large; lower lr (or server_lr)"
