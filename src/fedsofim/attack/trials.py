"""The real client code, thousands of times: every trial is a client of its own in one vectorised call, as clients are
in the simulator, with its own key, parameters, state and memory.

Trials come in pairs that share their keys: one in the world "+", one in "-". In every round the client is asked three
times at the same parameters: with its noise, which is what it uploads, and without noise in either world, which is what
the attacker computes for itself. From these come z and m of scoring.py, one of each for every array of an upload.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.attack.scoring import Seen
from fedsofim.attack.setting import Engine, reading_all
from fedsofim.attack.worlds import Worlds, ask, carried, laid_out, quiet_steps
from fedsofim.core.audit import Program
from fedsofim.core.keys import key_of
from fedsofim.core.phase import Phase
from fedsofim.core.pooled import can_pool
from fedsofim.core.records import Records
from fedsofim.progress import SILENT, Progress

SIDE_BY_SIDE = 1024  # pairs in one call


class Laid(NamedTuple):
    """All clients' records: in their own world, and in the other."""

    own: Records
    other: Records


def observe(engine: Engine, worlds: Worlds, pairs: int, seed: int = 0, progress: Progress = SILENT) -> Seen:
    """What an attacker sees of so many pairs of runs."""
    at_once = min(pairs, SIDE_BY_SIDE)
    play = _Play(engine, worlds, at_once)
    key = key_of(seed)
    found = []
    for chunk in range(-(-pairs // at_once)):
        found.append(play.chunk(jax.random.fold_in(key, chunk)))
        progress.at(min(pairs, (chunk + 1) * at_once))
    z, m = (np.concatenate([f[i] for f in found], axis=1)[:, :pairs] for i in (0, 1))
    return Seen(z[0], z[1], m[0], m[1])


class _Play:
    """One engine in both worlds, compiled once."""

    def __init__(self, engine: Engine, worlds: Worlds, pairs: int) -> None:
        self.engine, self.pairs, self.clients = engine, pairs, 2 * pairs
        self.laid, self.two = _laid(worlds, pairs), _laid(worlds, 1)
        self.signs = jnp.repeat(jnp.array([1.0, -1.0], jnp.float32), pairs)
        self.held = None if engine.setting.own_server else questions(engine, worlds)
        programs = engine.programs(self.clients)
        self.once = {p: jax.jit(self._asked(programs[p], p)) for p in engine.phases if p is not Phase.ROUND}
        self.rounds = jax.jit(self._rounds(programs[Phase.ROUND]))

    def chunk(self, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
        """z and m as (world, pair, channel)."""
        engine, laid, channels = self.engine, self.laid, []
        carry = carried(engine, Phase.ROUND, engine.start, self.clients)
        for number, phase in enumerate(engine.phases):
            keys = jax.vmap(lambda i, k=jax.random.fold_in(key, number): jax.random.fold_in(k, i))(
                jnp.tile(jnp.arange(self.pairs, dtype=jnp.int32), 2)
            )
            if phase is Phase.ROUND:
                z, m = self.rounds(laid, keys, carry)
            else:
                given = carried(engine, phase, engine.start, self.clients)
                z, m, uploads, _ = self.once[phase](laid, keys, given, jnp.int32(0))
                carry, laid = self._after(phase, uploads, carry, laid)
            channels.append((np.asarray(z, np.float64), np.asarray(m, np.float64)))
        both = (np.concatenate([c[i] for c in channels], axis=1) for i in (0, 1))
        z, m = (a.reshape(2, self.pairs, -1) for a in both)
        return z, m

    def _asked(self, program: Program, phase: Phase) -> Any:
        """(z, m, uploads, memories) of one question to every client."""
        engine = self.engine
        noise_std = jnp.float32(quiet_steps(engine))
        stds = jnp.asarray(engine.stds[phase])
        # where all clients are asked the same, two of them tell what all would say without noise
        few = 1 if self.held is not None and can_pool(engine.setting.method) and len(engine.phases) == 1 else self.pairs
        whole = reading_all(program if few == self.pairs else engine.programs(2)[phase])

        def silently(laid: Laid, keys: Any, carry: Any, t: Any) -> Any:
            if few == self.pairs:
                return [ask(whole, r, jnp.zeros_like(stds), keys, carry, t, noise_std)[0] for r in laid]
            two_keys, two_carries = jax.tree.map(lambda a: a[:: self.clients - 1], (keys, carry))
            two = [ask(whole, r, jnp.zeros_like(stds), two_keys, two_carries, t, noise_std)[0] for r in self.two]
            return jax.tree.map(lambda u: jnp.repeat(u, self.pairs, axis=0), two)

        def asked(laid: Laid, keys: Any, carry: Any, t: Any) -> tuple[Any, Any, Any, Any]:
            t = engine.round_seen(t)
            uploads, memory = ask(program, laid.own, stds, keys, carry, t, noise_std)
            own, other = silently(laid, keys, carry, t)
            leaves = [jax.tree.leaves(tree) for tree in (uploads, own, other)]
            z, m = zip(*[_projected(u, a, b, self.signs) for u, a, b in zip(*leaves, strict=True)], strict=True)
            return jnp.stack(z, 1), jnp.stack(m, 1), uploads, memory

        return asked

    def _rounds(self, program: Program) -> Any:
        """All rounds: (z, m) with a channel for every round and array of an upload."""
        engine, asked, held = self.engine, self._asked(program, Phase.ROUND), self.held
        method, rounds = engine.setting.method, engine.setting.rounds
        facts = engine.plan.facts._replace(noise_std=jnp.float32(quiet_steps(engine)))

        def one(carry: Any, t: Any, laid: Laid, keys: Any) -> tuple[Any, tuple[Any, Any]]:
            if held is not None:
                now = jax.tree.map(lambda h: jnp.broadcast_to(h[t], (self.clients, *h.shape[1:])), held)
                carry = (now, *carry[1:])
            z, m, uploads, memory = asked(laid, keys, carry, t)
            params, state = jax.vmap(lambda u, s, p: method.server(u, s, p, facts))(uploads, carry[1], carry[0])
            return (params, state, memory), (z, m)

        def run(laid: Laid, keys: Any, carry: Any) -> tuple[Any, Any]:
            steps = jnp.arange(rounds, dtype=jnp.int32)
            _, (z, m) = jax.lax.scan(lambda c, t: one(c, t, laid, keys), carry, steps)
            return tuple(jnp.moveaxis(a, 0, 1).reshape(self.clients, -1) for a in (z, m))  # type: ignore[return-value]

        return run

    def _after(self, phase: Phase, uploads: Any, carry: Any, laid: Laid) -> tuple[Any, Laid]:
        """What a one-shot release does to the rounds after it."""
        setting = self.engine.setting
        if Phase.ROUND not in self.engine.phases:
            return carry, laid
        if phase is Phase.SETUP and setting.method.setup is not None:
            state = jax.jit(jax.vmap(setting.method.setup.server))(uploads, carry[1])
            return (carry[0], state, carry[2]), laid
        (step,) = setting.preparation  # setting.py takes no more than one
        std = self.engine.plan.mean_std(phase)
        maps = [step.fitted(_row(uploads, i), std) for i in range(self.clients)]

        def mapped(records: Records) -> Records:
            x = np.asarray(records.x)
            return records._replace(x=np.stack([apply(rows) for apply, rows in zip(maps, x, strict=True)]))

        return carry, Laid(*map(mapped, laid))


def _row(uploads: Mapping[str, Any], i: int) -> dict[str, np.ndarray]:
    return {k: np.asarray(v[i]) for k, v in uploads.items()}


def _laid(worlds: Worlds, pairs: int) -> Laid:
    (xp, yp), (xm, ym) = worlds.records(True), worlds.records(False)

    def repeated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.concatenate([np.repeat(first[None], pairs, 0), np.repeat(second[None], pairs, 0)])

    return Laid(
        laid_out(repeated(xp, xm), repeated(yp, ym)),
        laid_out(repeated(xm, xp), repeated(ym, yp)),
    )


def _projected(upload: Any, own: Any, other: Any, signs: Any) -> tuple[jax.Array, jax.Array]:
    """z and m of every client in one array of its upload, in units that cannot underflow."""
    upload, own, other = (a.reshape(len(signs), -1) for a in (upload, own, other))
    apart = (own - other) * signs[:, None].astype(own.dtype)
    unit = jnp.maximum(jnp.max(jnp.abs(apart), axis=1), 1e-30)
    direction = apart / unit[:, None]
    length = jnp.sqrt(jnp.sum(jnp.square(direction), axis=1))
    direction = direction / jnp.maximum(length, 1e-30)[:, None]
    return jnp.sum((upload - (own + other) / 2) * direction, axis=1), length * unit


# --- what the attacker's server asks ------------------------------------------------------------------------

_STEPS = 10.0 ** np.arange(-6, 3, 0.05)
_QUIETER = 0.9  # of the canary's full size


def questions(engine: Engine, worlds: Worlds) -> Any:
    """Parameters for every round, held where the canary is loudest; in the last round it is a little quieter.

    The last one costs hardly any power against honest noise. Against noise that comes back it is what tells: two
    releases with one noise and two different sums give their difference away.
    """
    start, rounds = engine.start, engine.setting.rounds
    held = jax.tree.map(lambda p: jnp.broadcast_to(p, (rounds, *p.shape)), start)
    if rounds == 1 or Phase.ROUND not in engine.phases:
        return held
    quieter = _quieter(engine, worlds, start)
    return held if quieter is None else jax.tree.map(lambda h, q: h.at[-1].set(q), held, quieter)


def _quieter(engine: Engine, worlds: Worlds, start: Any) -> Any:
    """Parameters at which the canary has about `_QUIETER` of its size; None if no small step finds any."""
    at = np.concatenate([[0.0], _STEPS, -_STEPS]).astype(np.float32)
    clients = 2 * len(at)
    program = reading_all(engine.programs(clients)[Phase.ROUND])
    laid = _laid(worlds, len(at))
    given = carried(engine, Phase.ROUND, start, clients)
    stds = jnp.zeros_like(jnp.asarray(engine.stds[Phase.ROUND]))
    keys, noise_std = jax.random.split(key_of(0), clients), jnp.float32(quiet_steps(engine))

    @jax.jit  # records and carries are its inputs: constants of that size would be computed with while compiling
    def answers(params: Any, own: Records, rest: tuple) -> Any:
        return ask(program, own, stds, keys, (params, *rest), jnp.int32(0), noise_std)[0]

    def asked(params: Any) -> Any:
        return answers(params, laid.own, given[1:])

    apart = jax.tree.map(lambda u: u[0] - u[len(at)], asked(given[0]))
    if jax.tree.structure(apart) != jax.tree.structure(start):
        return None
    size = float(jnp.sqrt(sum(jnp.sum(jnp.square(a)) for a in jax.tree.leaves(apart))))
    if not size > 0 or any(a.shape != p.shape for a, p in zip(*map(jax.tree.leaves, (apart, start)), strict=True)):
        return None
    moved = jax.tree.map(lambda p, a: p + jnp.tensordot(jnp.asarray(at), a / size, 0), start, apart)
    uploads = asked(jax.tree.map(lambda m: jnp.concatenate([m, m]), moved))
    halves = [
        np.asarray(u[: len(at)] - u[len(at) :], np.float64).reshape(len(at), -1) for u in jax.tree.leaves(uploads)
    ]
    sizes = np.linalg.norm(np.concatenate(halves, axis=1), axis=1)
    ratio = sizes / sizes[0]
    best = int(np.argmin(np.abs(ratio - _QUIETER)))
    return jax.tree.map(lambda m: m[best], moved) if 0.75 < ratio[best] < 0.97 else None
