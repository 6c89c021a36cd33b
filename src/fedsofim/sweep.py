"""Many settings of one method in one compiled program: the settings travel in the server's state.

A method's numbers are normally constants of its program, so each setting compiles anew, and compiling takes longer
than running. Here they are inputs. The ledger is read from this program as from any other, and since a step size
does not change what is released, every setting costs the same.
"""

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import methods, simulate
from fedsofim.data.partition import Split
from fedsofim.plan import Plan
from fedsofim.privacy import Budget
from fedsofim.release import MAX_SITES
from fedsofim.round import Carry, Federation, Method, OneGradient, Setup
from fedsofim.simulate import Static, Trace
from fedsofim.train import plan_for

_LOGITS = 2**24  # numbers in the largest array of a sweep


def score(data: Split, name: str, settings: list[dict[str, Any]], budget: Budget | None, rounds: int,
          seed: int = 0, clip: float = 10.0) -> np.ndarray:  # fmt: skip
    """Final accuracy on `data`'s test part of each of the settings; NaN where parameters overflowed."""
    out = np.full(len(settings), np.nan)
    groups: dict[tuple, list[int]] = {}
    for i, given in enumerate(settings):
        groups.setdefault(parts(given)[:2], []).append(i)
    for (fixed, numbers), rows in groups.items():
        plan = plan_for(data, sweepable(name, fixed, numbers), budget, rounds, clip=clip)
        out[rows] = _score_group(plan, data, [parts(settings[i])[2] for i in rows], seed)
    return out


@lru_cache(maxsize=256)
def sweepable(name: str, fixed: tuple[tuple[str, Any], ...], numbers: tuple[str, ...]) -> Method:
    """A method whose `numbers` are read from the state (hyper, its own state) instead of being constants."""

    def build(hyper: Any) -> Method:
        return methods.factory(name)(**dict(fixed), **{n: hyper[i] for i, n in enumerate(numbers)})

    plain = build([0.5] * len(numbers))  # any legal numbers: only the method's shape is taken from it

    def client(door: Any, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        return build(state[0]).client(door, params, state[1], memory)

    def server(mean: Any, state: Any, params: Any, facts: Any) -> tuple[Any, Any]:
        params, inner = build(state[0]).server(mean, state[1], params, facts)
        return params, (state[0], inner)

    def init(params: Any) -> Any:
        return jnp.full(len(numbers), 0.5, jnp.float32), plain.init(params)

    def one_shot(mean: Any, state: Any) -> Any:
        setup = build(state[0]).setup
        assert setup is not None
        return state[0], setup.server(mean, state[1])

    pooled = type(plain.client) is OneGradient
    setup = None if plain.setup is None else Setup(plain.setup.client, one_shot)
    return Method(name, plain.client if pooled else client, server, init, plain.memory, setup, plain.note)


def parts(settings: dict[str, Any]) -> tuple[tuple, tuple[str, ...], np.ndarray]:
    """What is compiled in, the names of the numbers that are not, and those numbers.

    >>> parts({"lr": 0.5, "warmup": 10})
    ((('warmup', 10),), ('lr',), array([0.5], dtype=float32))
    """
    numbers = tuple(sorted(k for k, v in settings.items() if isinstance(v, float)))
    fixed = tuple(sorted((k, v) for k, v in settings.items() if k not in numbers))
    return fixed, numbers, np.array([settings[n] for n in numbers], np.float32)


def simulate_with(plan: Plan, data: Split, seed: int, hyper: np.ndarray) -> tuple[Any, Trace]:
    """`simulate` for a sweepable method with these numbers: all settings, budgets and seeds share one program."""
    init_key, noise_key = jax.random.split(jax.random.key(seed))
    clients = simulate.federation(plan, data, noise_key, plan.pooled)
    carry = begin(plan, clients, data, init_key, jnp.asarray(hyper))
    test = (jnp.asarray(data.data.x_test), jnp.asarray(data.data.y_test))
    ts = jnp.arange(plan.rounds, dtype=jnp.int32)
    carry, measured = simulate._advance(_static(plan, 1), clients, test, plan.rounds, carry, ts)
    accuracy, loss = (np.asarray(m) for m in measured)
    return carry.params, Trace(np.arange(1, plan.rounds + 1), accuracy, loss)


def begin(plan: Plan, clients: Federation, data: Split, key: jax.Array, hyper: jax.Array) -> Carry:
    """What a run starts from, with its numbers in the state; one-shot releases come after they are there."""

    def init(params: Any) -> Any:
        return hyper, plan.method.init(params)[1]

    return simulate.start(replace(plan, method=plan.method._replace(init=init)), clients, data, key)


def _static(plan: Plan, every: int) -> Static:
    facts = plan.facts._replace(noise_std=0.0)
    return Static(plan.method, plan.model, plan.program, facts, plan.pooled, every)


def _score_group(plan: Plan, data: Split, values: list[np.ndarray], seed: int) -> np.ndarray:
    """Final accuracies; a method's one-shot release does not depend on its numbers, so it is made once."""
    init_key, noise_key = jax.random.split(jax.random.key(seed))
    clients = simulate.federation(plan, data, noise_key, plan.pooled)
    plain = replace(plan, method=plan.method._replace(setup=None))
    carry = simulate.start(plain, clients, data, init_key)
    mean = None
    if plan.setup is not None:
        mean = simulate.one_shot(plan, plan.setup, MAX_SITES, data, carry.params, noise_key)
    test = (jnp.asarray(data.data.x_test), jnp.asarray(data.data.y_test))
    static = _static(plan, plan.rounds)
    # settings side by side make wide matrix products of narrow ones; how many is bounded by the logits' memory
    width = max(1, min(len(values), _LOGITS // (len(data.data.y_train) * plan.classes)))
    padded = values + [values[-1]] * (-len(values) % width)
    pieces = [jnp.asarray(np.stack(padded[i : i + width])) for i in range(0, len(padded), width)]
    final = [np.asarray(_finals(static, clients, test, mean, carry, hyper)) for hyper in pieces]
    return np.concatenate(final)[: len(values)].astype(float)


@partial(jax.jit, static_argnums=0)
def _finals(static: Static, clients: Any, test: Any, mean: Any, carry: Any, hyper: jax.Array) -> jax.Array:
    """Accuracies after the last round, one per row of settings."""
    return jax.vmap(lambda h: _final(static, clients, test, mean, carry, h))(hyper)


def _final(static: Static, clients: Any, test: Any, mean: Any, carry: Any, hyper: jax.Array) -> jax.Array:
    """Accuracy after the last round under one setting."""
    begin = carry._replace(state=(hyper, carry.state[1]))
    if static.method.setup is not None:
        begin = begin._replace(state=static.method.setup.server(mean, begin.state))
    ts = jnp.arange(static.every, dtype=jnp.int32)
    end, (accuracy, loss) = simulate._advance(static, clients, test, static.every, begin, ts)
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((end.params, loss[-1]))]
    return jnp.where(jnp.stack(finite).all(), accuracy[-1], jnp.float32(math.nan))
