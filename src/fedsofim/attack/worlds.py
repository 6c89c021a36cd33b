"""Two data sets that differ in one record, the canary: "+" and "-".

The attacker may choose both, so it takes the pair that the releases tell apart best. Many records are tried in the
canary's place (directions, lengths and labels), every one is asked without noise through the real client program, and
the pair whose releases lie farthest apart, in units of the noise, is taken. A gradient's worst pair lies 2c apart: the
clipped gradients ±c·u. A second moment's lies sqrt(2)·c² apart: two records at right angles.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.attack.setting import Engine, reading_all
from fedsofim.core.audit import Inputs, Program
from fedsofim.core.keys import key_of
from fedsofim.core.phase import Phase
from fedsofim.core.records import Records, in_blocks

_LENGTHS = 2.0 ** np.arange(-4, 13.01, 0.25)
_TIED = 1e-3  # of the best distance: shorter and longer canaries that are as good


@dataclass(frozen=True)
class Worlds:
    """The client's other records, and the canary in the world "+" and in "-"."""

    x: np.ndarray  # (records, features), the last of them the canary's place
    y: np.ndarray
    plus: tuple[np.ndarray, int]
    minus: tuple[np.ndarray, int]

    def records(self, plus: bool) -> tuple[np.ndarray, np.ndarray]:
        """One client's records in a world."""
        x, y = self.x.copy(), self.y.copy()
        x[-1], y[-1] = self.plus if plus else self.minus
        return x, y


def others(records: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """The records that both worlds share, of ordinary size and at right angles to the first two features."""
    random = np.random.default_rng(0)
    x = random.normal(size=(records, features)).astype(np.float32) * 0.5
    x[:, :2] = 0.0
    return x, (np.arange(records) % 2).astype(np.int32)


def loudest(engine: Engine) -> Worlds:
    """The pair of worlds that differ most in what is released, over all attacked phases and rounds."""
    x, y = others(engine.setting.records, engine.setting.features)
    canaries_x, canaries_y = _candidates(engine.setting.features)
    laid = laid_out(np.repeat(x[None], len(canaries_y), 0), np.repeat(y[None], len(canaries_y), 0))
    laid.x[:, -1], laid.y[:, -1] = canaries_x, canaries_y
    squares = np.zeros((len(canaries_y), len(canaries_y)))
    for phase in engine.phases:
        clean, noisy = _answers(engine, phase, laid)
        variance = max(float(np.mean(np.square(noisy - clean))), 1e-300)
        squares += phase.times(engine.setting.rounds) * _distances(clean) / variance
    plus, minus = _pair(squares, np.linalg.norm(canaries_x, axis=1))
    return Worlds(x, y, (canaries_x[plus], int(canaries_y[plus])), (canaries_x[minus], int(canaries_y[minus])))


def _candidates(features: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of many lengths along the first two features and along all of them, both ways, with both labels."""
    axes = np.eye(features)[:2]
    directions = np.concatenate([axes, np.full((1, features), features**-0.5)])
    directions = np.concatenate([directions, -directions])
    x = (_LENGTHS[:, None, None] * directions).reshape(-1, features)
    return np.concatenate([x, x]).astype(np.float32), np.repeat([0, 1], len(x)).astype(np.int32)


def _distances(uploads: np.ndarray) -> np.ndarray:
    squares = np.sum(uploads**2, axis=1)
    return np.maximum(squares[:, None] + squares[None] - 2 * uploads @ uploads.T, 0.0)


def _pair(squares: np.ndarray, lengths: np.ndarray) -> tuple[int, int]:
    """Of the pairs that are as good as the best, one of middling length: clipped for certain, and not wild."""
    good = np.argwhere(squares >= (1 - _TIED) * squares.max())
    sizes = np.log(lengths[good])
    middle = np.median(sizes)
    order = np.abs(sizes - middle).sum(axis=1) + np.abs(sizes[:, 0] - sizes[:, 1])
    plus, minus = good[int(np.argmin(order))]
    return int(plus), int(minus)


# --- clients side by side -----------------------------------------------------------------------------------


def laid_out(x: np.ndarray, y: np.ndarray) -> Records:
    """The records of many clients, (clients, records, features), as the simulator lays them out."""
    clients, each = y.shape
    parts = list(np.arange(clients * each).reshape(clients, each))
    return in_blocks(x.reshape(clients * each, -1), y.reshape(-1), parts, size=None)


def ask(program: Program, records: Records, stds: Any, keys: Any, given: Any, t: Any, noise_std: Any) -> Any:
    """(uploads, memories) of all clients at once; `given` are each client's own (params, state, memory)."""
    clients = len(keys)
    size = jnp.float32(records.x.shape[0] * records.x.shape[1] / clients)

    def client(index: Any, key: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        params, state, memory = carry
        return program(
            Inputs(
                params=params,
                state=state,
                memory=memory,
                key=key,
                index=index,
                size=size,
                round=t,
                noise_std=noise_std,
                stds=stds,
                records=records,
            )
        )

    return jax.vmap(client)(jnp.arange(clients, dtype=jnp.int32), keys, given)


def carried(engine: Engine, phase: Phase, params: Any, clients: int) -> tuple[Any, Any, Any]:
    """What each of many clients begins a phase with: parameters, the server's state, its memory."""
    method = engine.setting.method
    rest = (method.init(params), method.memory(params)) if phase is Phase.ROUND else ((), ())
    return jax.tree.map(lambda a: jnp.broadcast_to(jnp.asarray(a), (clients, *jnp.shape(a))), (params, *rest))


def _answers(engine: Engine, phase: Phase, records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Every client's upload in a phase as one row: without noise, and with it."""
    clients = len(records.owner)
    program = engine.programs(clients)[phase]
    given = carried(engine, phase, engine.start, clients)
    keys = jax.random.split(key_of(1), clients)

    def rows(program: Program, stds: np.ndarray) -> np.ndarray:
        uploads, _ = jax.jit(ask, static_argnums=0)(
            program, records, jnp.asarray(stds), keys, given, jnp.int32(0), jnp.float32(quiet_steps(engine))
        )
        leaves = [np.asarray(leaf, np.float64).reshape(clients, -1) for leaf in jax.tree.leaves(uploads)]
        return np.concatenate(leaves, axis=1)

    clean = rows(reading_all(program), np.zeros_like(engine.stds[phase]))
    return clean, rows(program, engine.stds[phase])


def quiet_steps(engine: Engine) -> float:
    """The noise that the attacker's server says the average has: so much that automatic steps hardly move.

    A client believes its server in this, and it is public: the privacy of what leaves may not depend on it.
    """
    return engine.plan.noise_std if engine.setting.own_server else 1e4 * engine.plan.noise_std
