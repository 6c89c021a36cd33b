"""Two clients with a few records, and the inputs of their programs: the same shapes for every fuzzed program."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.audit import Inputs
from fedsofim.core.door import Facts
from fedsofim.core.records import Records, in_blocks
from fedsofim.core.site import MAX_SITES

ROUNDS, CLIENTS, FEATURES, CLASSES = 2, 2, 3, 2
SIZES = (3, 2)
FACTS = Facts(rounds=ROUNDS, clients=CLIENTS, clip=1.0, noise_std=0.0)

#: What the one record that neighbours differ in may be: its features and its label.
REPLACEMENTS = (
    ((0.3, -0.2, 0.5), 0),
    ((2.0, 1.0, -1.0), 1),
    ((4e2, -3e2, 9e2), 0),
    ((-4e2, 3e2, -9e2), 0),
    ((-3e15, 1e15, 2e15), 1),
    ((2e-21, -1e-21, 1e-21), 1),  # its square is 0 in float32
)
BROKEN = (float("nan"), float("inf"), 1.0)  # a record that must not spoil the sum of the others


def records_with(features: tuple[float, ...] | None = None, label: int = 0, *, seed: int = 0) -> Records:
    """Everyone's records, drawn by a seed; the first of client 0 may be put in."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(sum(SIZES), FEATURES)).astype(np.float32)
    y = random.integers(0, CLASSES, sum(SIZES)).astype(np.int32)
    if features is not None:
        x[0], y[0] = features, label
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    return Records(*(jnp.asarray(a) for a in in_blocks(x, y, parts, size=max(SIZES))))


@lru_cache(maxsize=1)
def opposites() -> tuple[Records, Records]:
    """Two record sets that differ in all: signs, sizes and labels, so that what depends on records shows."""
    one, other = records_with(seed=1), records_with(seed=2)
    here = one.weight > 0
    return (
        one._replace(x=jnp.abs(one.x), y=here.astype(jnp.int32)),
        other._replace(x=-2 * jnp.abs(other.x), y=jnp.zeros_like(other.y)),
    )


@lru_cache(maxsize=1)
def neighbours() -> Records:
    """Record sets that differ in one record, one above the other; the last has a record that is not finite."""
    sets = [records_with(features, label) for features, label in (*REPLACEMENTS, (BROKEN, 1))]
    return Records(*(jnp.stack(column) for column in zip(*sets, strict=True)))


class Public(NamedTuple):
    """What is public and not of the program, in one round."""

    round: Any
    params: Any
    state: Any
    memory: Any  # a row for each client


@lru_cache(maxsize=1)
def public() -> Public:
    """A row for each round."""
    random = np.random.default_rng(100)

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(size=shape).astype(np.float32))

    rounds = jnp.arange(ROUNDS, dtype=jnp.int32)
    return Public(rounds, draw(ROUNDS, FEATURES + 1, CLASSES), draw(ROUNDS, 3), draw(ROUNDS, CLIENTS, 3))


def first_round() -> Public:
    return jax.tree.map(lambda a: a[0], public())


def inputs(now: Public, index: Any, size: Any, memory: Any, key: Any, records: Records, stds: Any) -> Inputs:
    """What the program of client `index` takes; `key` is the run's."""
    return Inputs(
        params=now.params,
        state=now.state,
        memory=memory,
        key=jax.random.fold_in(key, index),
        index=index,
        size=size,
        round=now.round,
        noise_std=jnp.float32(0.5),
        stds=stds,
        records=records,
    )


def first_client(key: Any, records: Records, stds: Any) -> Inputs:
    """What client 0 takes in round 0."""
    now = first_round()
    return inputs(now, jnp.int32(0), jnp.float32(SIZES[0]), now.memory[0], key, records, stds)


@lru_cache(maxsize=1)
def shapes() -> Inputs:
    """The same as shapes only, as the audit takes them."""
    given = first_client(jax.random.key(0), records_with(), jnp.zeros(MAX_SITES, jnp.float32))
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), given)
