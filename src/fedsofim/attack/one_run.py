"""Many canaries in one training: a whole run attacked at the cost of one run.

Every client holds one canary for each feature, x = (0, .., length, .., 0), whose label a fair coin decides: with two
classes the two labels' gradients point exactly against each other, and canaries of different features hardly meet. The
method's own server trains on what the clients upload. The attacker sees all uploads and parameters, and computes for
itself, at the parameters of each round, what each canary's two possible gradients would have been: D their difference,
M their mean. Its score of a canary is Σ_t <n·upload_t - Σ M, D> for a client of n records, the likelihood ratio for
independent noise.

As training goes on the canaries are learned and their gradients fall below the clip, so this finds less than the attack
that repeats runs (trials.py); and what guesses within one run can prove is less still (guesses.py). What a client keeps
between rounds is not followed here: against methods with a memory the attack is weaker, though never wrong.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.attack.bounds import estimated
from fedsofim.attack.guesses import epsilon_of_guesses, guessed, mu_of_guesses
from fedsofim.attack.scoring import Scores
from fedsofim.attack.setting import CLASSES, Setting, honest, loud_start, reading_all
from fedsofim.attack.verdicts import Verdict, check_effort
from fedsofim.attack.worlds import ask, laid_out
from fedsofim.core.audit import Program
from fedsofim.core.keys import key_of
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan, make_plan
from fedsofim.core.programs import Public, read_programs
from fedsofim.core.records import Records, block_shape
from fedsofim.errors import InputError

_GUESSED = 0.2  # part of the canaries that the attacker dares to guess


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """A training with canaries: so many clients, each with a canary per feature."""

    setting: Setting
    clients: int = 20
    canaries: int = 200  # of each client
    length: float = 2.0  # of a canary, in clips: longer ones are learned sooner
    noise: float = 1.0  # times the noise that was priced: other than 1 is a broken engine

    @property
    def plan(self) -> Plan:
        s = self.setting
        return make_plan(
            s.method,
            s.model,
            sizes=[self.canaries] * self.clients,
            shape=(self.canaries,),
            classes=CLASSES,
            budget=s.budget,
            rounds=s.rounds,
            clip=s.clip,
        )


def attack_one_run(run: OneRun, *, confidence: float = 0.99, seed: int = 0, what: str = "") -> Verdict:
    """Train once, guess every canary's coin, and bound what was promised by how many guesses were right."""
    check_effort(run.clients * run.canaries, confidence)
    if run.setting.preparation:
        raise InputError("one run is attacked without --standardize: it would move the canaries; leave one of them out")
    began = time.perf_counter()
    claim = honest(replace(run.setting, phases=())).claim
    coins = np.random.default_rng(seed).choice(np.array([-1, 1]), size=(run.clients, run.canaries))
    scores = np.asarray(_trained(run, coins, seed), np.float64).ravel()
    coins = coins.ravel()
    guesses = guessed(scores, coins, _GUESSED)
    mu_lower = mu_of_guesses(guesses, 1 - confidence)
    epsilon_any = epsilon_of_guesses(guesses, claim.delta, 1 - confidence)
    found = _paired(scores, coins)
    return Verdict(
        what=what or f"{run.setting.method.name} (one run)",
        claim=claim,
        confidence=confidence,
        trials=len(coins),
        releases=run.clients * run.plan.releases,
        scores=found,
        estimate=estimated(found.plus, found.minus, confidence),
        mu_lower=mu_lower,
        epsilon_any=epsilon_any,
        broken=mu_lower > claim.mu if claim.mu is not None else epsilon_any > claim.epsilon,
        seconds=time.perf_counter() - began,
    )


def _paired(scores: np.ndarray, coins: np.ndarray) -> Scores:
    """As many scores of either kind."""
    plus, minus = scores[coins > 0], scores[coins < 0]
    pairs = min(len(plus), len(minus))
    return Scores(plus[:pairs], minus[:pairs])


# --- the training -------------------------------------------------------------------------------------------


def _trained(run: OneRun, coins: np.ndarray, seed: int) -> jax.Array:
    """Scores of all canaries, (clients, canaries), after one training."""
    setting, plan = run.setting, run.plan
    records = _records(run, coins)
    each = laid_out(*_each(run))  # one pseudo-client for each canary and label
    alone = _programs(run, [1] * (2 * run.canaries))
    key = key_of(seed)
    params = loud_start(setting.model, run.canaries)
    state, memory = setting.method.init(params), setting.method.memory(params)
    if setting.method.setup is not None:
        uploads, _ = _asked(plan.programs[Phase.SETUP], run, records, (params, (), ()), jax.random.fold_in(key, 1), 0)
        state = setting.method.setup.server(_mean(uploads), state)
    memory = jax.tree.map(lambda m: jnp.broadcast_to(m, (run.clients, *m.shape)), memory)
    silent = reading_all(alone)

    def one(carry: Any, t: jax.Array) -> tuple[Any, jax.Array]:
        params, state, memory = carry
        uploads, memory = _asked(plan.program, run, records, (params, state, memory), jax.random.fold_in(key, 2), t)
        apart, middle = _silently(silent, run, each, (params, state, setting.method.memory(params)), t)
        sums = _rows(uploads) * run.canaries - middle
        params, state = setting.method.server(_mean(uploads), state, params, plan.facts)
        return (params, state, memory), sums @ apart.T

    def train() -> jax.Array:
        steps = jnp.arange(setting.rounds, dtype=jnp.int32)
        return jnp.sum(jax.lax.scan(one, (params, state, memory), steps)[1], axis=0)

    return jax.jit(train)()


def _asked(program: Program, run: OneRun, records: Records, given: Any, key: jax.Array, t: Any) -> tuple[Any, Any]:
    """What all clients upload and keep, at one server's parameters and state."""
    params, state, memory = given
    plan = run.plan
    phase = Phase.ROUND if program is plan.program else Phase.SETUP
    shared = jax.tree.map(lambda a: jnp.broadcast_to(a, (run.clients, *jnp.shape(a))), (params, state))
    stds = run.noise * jnp.asarray(plan.stds_by_site(phase))
    keys = jax.random.split(key, run.clients)
    return ask(program, records, stds, keys, (*shared, memory), jnp.asarray(t, jnp.int32), jnp.float32(plan.noise_std))


def _silently(program: Program, run: OneRun, each: Records, given: Any, t: Any) -> tuple[jax.Array, jax.Array]:
    """D of every canary, as rows, and Σ M: what they would have uploaded each alone and without noise."""
    clients = 2 * run.canaries
    shared = jax.tree.map(lambda a: jnp.broadcast_to(a, (clients, *jnp.shape(a))), given)
    stds = jnp.zeros(len(run.plan.stds_by_site(Phase.ROUND)), jnp.float32)
    keys = jax.random.split(key_of(0), clients)
    uploads, _ = ask(program, each, stds, keys, shared, t, jnp.float32(run.plan.noise_std))
    rows = _rows(uploads)
    plus, minus = rows[: run.canaries], rows[run.canaries :]
    return plus - minus, jnp.sum(plus + minus, axis=0) / 2


def _programs(run: OneRun, sizes: list[int]) -> Program:
    """The rounds' program, read for clients of other sizes."""
    public = Public(
        shape=(run.canaries,),
        classes=CLASSES,
        blocks=block_shape(sizes),
        clients=run.clients,
        rounds=run.setting.rounds,
        clip=run.setting.clip,
    )
    return read_programs(run.setting.method, run.setting.model, (), public)[Phase.ROUND]


def _records(run: OneRun, coins: np.ndarray) -> Records:
    """Every client's canaries, labelled by its coins: 0 for "+"."""
    x = np.repeat(_canaries(run)[None], run.clients, axis=0)
    return laid_out(x, np.where(coins > 0, 0, 1).astype(np.int32))


def _each(run: OneRun) -> tuple[np.ndarray, np.ndarray]:
    x = _canaries(run)
    y = np.repeat([0, 1], run.canaries).astype(np.int32)
    return np.concatenate([x, x])[:, None], y[:, None]


def _canaries(run: OneRun) -> np.ndarray:
    return (run.length * run.setting.clip * np.eye(run.canaries)).astype(np.float32)


def _rows(uploads: Any) -> jax.Array:
    leaves = jax.tree.leaves(uploads)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _mean(uploads: Any) -> Any:
    return jax.tree.map(lambda u: jnp.mean(u, axis=0), uploads)
