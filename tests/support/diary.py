"""A method whose parameters are a diary: row 0 is what its setup released, row t+1 the mean upload of round t.

So whoever runs it sees every release of a run, of any client program, through the public interface alone.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.budget import Budget
from fedsofim.core.method import Method, Setup
from fedsofim.core.models import Model
from fedsofim.core.plan import Plan, make_plan
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split
from fedsofim.simulation.simulator import simulate


def silent(sizes: tuple[int, ...], features: int) -> Split:
    """Records that say nothing: what is released of them is noise."""
    return _dealt(sizes, np.zeros((sum(sizes), features), np.float32))


def one_hot(sizes: tuple[int, ...]) -> Split:
    """Every record is a unit vector of its own: a sum of them tells who took part."""
    return _dealt(sizes, np.eye(sum(sizes), dtype=np.float32))


def _dealt(sizes: tuple[int, ...], x: np.ndarray) -> Split:
    labels = np.arange(len(x)) % 2
    data = Dataset.of("silent", x_train=x, y_train=labels, x_test=x[:2], y_test=labels[:2])
    return Split(data, tuple(np.split(np.arange(len(x)), np.cumsum(sizes)[:-1])), "silent")


def diarist(client: Callable, setup: Callable | None, rounds: int, numbers: int) -> tuple[Method, Model]:
    """The method and the model of client(door) -> upload and setup(door) -> upload, vectors of so many numbers."""

    def write(mean: Any, state: Any, params: Any, facts: Any) -> tuple[Any, Any]:
        first, t = state
        return params.at[0].set(first).at[t + 1].set(mean), (first, t + 1)

    once = None if setup is None else Setup(lambda door, params: setup(door), lambda mean, state: (mean, state[1]))
    method = Method(
        "diarist",
        lambda door, params, state, memory: (client(door), memory),
        write,
        init=lambda params: (jnp.zeros(numbers, jnp.float32), jnp.int32(0)),
        setup=once,
    )
    model = Model(
        lambda key, shape, classes: jnp.zeros((rounds + 1, numbers), jnp.float32),
        lambda params, x, y: jnp.sum(params) * jnp.sum(x),
        lambda params, x: jnp.zeros((len(x), 2), jnp.float32),
    )
    return method, model


def diary_plan(
    data: Split, client: Callable, budget: Budget, rounds: int = 1, *, numbers: int, setup: Any = None, **more: Any
) -> Plan:
    method, model = diarist(client, setup, rounds, numbers)
    shape = data.dataset.x_train.shape[1:]
    return make_plan(method, model, sizes=data.sizes, shape=shape, classes=2, budget=budget, rounds=rounds, **more)


def read_diary(plan: Plan, data: Split, seed: int = 0) -> np.ndarray:
    """(rounds + 1, numbers): everything that the clients' mean told the server."""
    return np.asarray(simulate(plan, data, seed, every=plan.rounds)[0], np.float64)


def nothing(x: jax.Array, y: jax.Array) -> jax.Array:
    return 0 * x
