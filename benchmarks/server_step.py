"""The server's step alone, from ten thousand parameters to a hundred million: SOFIM against optax.adam.

Both are compiled with their parameters and state donated, so that they may write where they read. A step does so
little arithmetic per number that it is bound by memory: what counts is how many buffers are read and written.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from clock import Ratio, Times, Turn, by_turns, timed

from fedsofim.methods._sofim import sofim

OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "SOFIM, momentum form": lambda: sofim(0.8),
    "SOFIM, gradient form": lambda: sofim(0.8, direction="gradient"),
    "optax.adam": lambda: optax.adam(1e-3),
}
ADAM = "optax.adam"


@dataclass(frozen=True)
class Step:
    """One optimizer at one number of parameters d."""

    name: str
    d: int
    times: Times
    reference: Times  # of the reference round, by turns with it
    kept: float  # numbers kept between steps, over d
    scratch: float  # numbers held during a step beside what is kept, over d


def stepping(optimizer: optax.GradientTransformation, d: int) -> tuple[Callable[[], object], float, float]:
    """A function that takes a step from the last; how much the state holds; how much scratch the program asks for."""

    def step(params: jax.Array, state: optax.OptState, gradient: jax.Array) -> tuple[jax.Array, optax.OptState]:
        updates, state = optimizer.update(gradient, state, params)
        return jnp.asarray(optax.apply_updates(params, updates)), state

    gradient, params = jnp.full(d, 1e-3, jnp.float32), jnp.zeros(d, jnp.float32)
    now = [params, optimizer.init(params)]
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(now[1])) / gradient.nbytes
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*now, gradient).compile()
    memory = compiled.memory_analysis()
    scratch = memory.temp_size_in_bytes / gradient.nbytes if memory else math.nan

    def run() -> None:
        now[:] = jax.block_until_ready(compiled(*now, gradient))

    return run, kept, scratch


def measure(d: int, reference: Turn, turns: int) -> list[Step]:
    """All optimizers at one d, by turns; many repeats where a step is so short that waking a thread outweighs it.

    Set up in one order and then in the other: whose memory was asked for first matters at large d.
    """
    repeats = 100 if d <= 10**5 else 20 if d <= 10**6 else 4
    names, halves, sizes = list(OPTIMIZERS), [], {}
    for order in (names, names[::-1]):
        steps = {name: stepping(OPTIMIZERS[name](), d) for name in order}
        sizes = {name: (kept, scratch) for name, (_, kept, scratch) in steps.items()}
        runs = {name: timed(run) for name, (run, _, _) in steps.items()}
        halves.append(by_turns(runs | {"reference": reference}, max(1, turns // 2), repeats))
        del steps, runs  # before the other order asks for memory
    times = {name: Times(halves[0][name].seconds + halves[1][name].seconds) for name in halves[0]}
    return [Step(name, d, times[name], times["reference"], *sizes[name]) for name in names]


def against_adam(steps: list[Step]) -> dict[tuple[str, int], Ratio]:
    """Every step's time over Adam's at the same d."""
    adam = {s.d: s.times for s in steps if s.name == ADAM}
    return {(s.name, s.d): Ratio.of(s.times, adam[s.d]) for s in steps}
