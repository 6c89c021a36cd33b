"""A clip that finds itself: the q-quantile of gradient lengths, tracked by one noisy number a round (Andrew et al.).

The clip c_t = s_t·c follows from released numbers, s_0 = 1 and c the run's clip. A record whose gradient is g gives

    v = c·(sqrt(1-a)·u, ±sqrt(a)),    u = g/max(|g|, c_t),    + where |g| <= c_t and - where not,

one vector of length at most c: first the gradient, clipped to c_t and in units of it, and as its last number a vote.
So the sum of v is a release like any other, of sensitivity 2c, with noise std m·c: **its price is that of a gradient at
a fixed clip, mu = 2/m a round, whatever s_t is**, since the clip is divided out before the door clips. The door clips v
at c all the same, so nothing depends on how exactly |g| was computed here. a is the part of mu² that the vote takes:
the gradient's noise grows by 1/sqrt(1-a).

From the mean of the votes the server learns what part p of the records is within the clip, and sets

    s_{t+1} = s_t·exp(-r_t·(p - q)),    r_t = b·max(RATE, FIRST/(t+1)),    b = (1/4)/(1/4 + ν²),

ν the noise of p, a public number: the louder the vote, the less is it believed. All of it is post-processing. That s_t
depends on nothing but released values is for the audit to see: s_t is part of the server's state, and a scale computed
from records would be a value in the per-record function that depends on them, which is refused (walk.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsofim.core.door import Door, Facts
from fedsofim.core.method import Method, OneGradient, Setup
from fedsofim.errors import InputError, is_number, shown

VOTE = 0.01  # a: the part of mu² that is spent on the clip
RATE = 0.2  # of the logarithm of the clip, for each part of the records that is on the wrong side
FIRST = 4.0  # in the first round, falling as 1/t: a median that is off by a factor of 100 is found in ten rounds
SETTLED = 10  # rounds after which a method's steps are no longer measured by the clip
WIDEST = 1e4  # how far from the run's clip it may go, either way


class ClipState(NamedTuple):
    """The server's, with the clip among it."""

    scale: jax.Array  # c_t/c
    unit: jax.Array  # the clip over c that steps are measured by
    t: jax.Array
    inner: Any


@dataclass(frozen=True)
class AdaptiveGradient:
    """The client of a one-gradient method under a clip that finds itself: (gradient in units of the clip, votes)."""

    plain: OneGradient
    state_of: Callable[[Any], ClipState] = lambda state: state  # where in the server's state it is

    def __call__(self, door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        sample, noise = self.plain.sample, self.plain.mechanism(door.facts)
        total = door.gradient_and_vote(params, self.state_of(state).scale, VOTE, noise=noise, sample=sample)
        count = door.batch if sample is None else sample * door.size
        return jax.tree.map(lambda s: s / count, total), memory


def adaptive_clip(method: Method, quantile: float = 0.5) -> Method:
    """The same one-gradient method under a clip at this quantile of the records' gradient lengths.

    The run's clip is where it starts. A method sees gradients in their own units and is told the noise of the round.
    As the clip, in units of which automatic steps are, it is told that of the round for ten rounds, and then the last
    of these for good: later gradients are short because records are fitted, which is no reason for longer steps.
    """
    if not is_number(quantile) or not 0 < quantile < 1:
        raise InputError(f"clip_quantile is {shown(quantile)}; expected a part of the records strictly between 0 and 1")
    plain: Any = method.client
    if type(plain) is not OneGradient:  # a subclass may upload anything
        raise InputError(
            f"{method.name} does more than release one gradient a round, and a clip that finds itself is for what does "
            "just that (fedgd, fedadam, fedyogi, fedsofim, with local_steps=1); leave clip_quantile out"
        )

    def init(params: Any) -> ClipState:
        one = jnp.ones((), jnp.float32)
        return ClipState(one, one, jnp.zeros((), jnp.int32), method.init(params))

    def server(mean: Any, state: ClipState, params: Any, facts: Facts) -> tuple[Any, ClipState]:
        gradient, vote = mean
        scale = next_scale(state, vote, quantile, facts)
        unit = jnp.where(state.t < SETTLED, jnp.maximum(state.scale, scale), state.unit)
        back = state.scale / (1 - VOTE) ** 0.5
        told = facts._replace(clip=facts.clip * unit, noise_std=facts.noise_std * back)
        restored = jax.tree.map(lambda g: back.astype(g.dtype) * g, gradient)
        params, inner = method.server(restored, state.inner, params, told)
        return params, ClipState(scale, unit, state.t + 1, inner)

    setup = method.setup and Setup(method.setup.client, _inside(method.setup))
    return method._replace(client=AdaptiveGradient(plain), server=server, init=init, setup=setup)


def _inside(setup: Setup) -> Any:
    return lambda mean, state: state._replace(inner=setup.server(mean, state.inner))


def next_scale(state: ClipState, vote: jax.Array, quantile: float, facts: Facts) -> jax.Array:
    """s_{t+1}. `vote` is the mean of the records' last numbers, ±c·sqrt(a), noise included."""
    unit = 2 * facts.clip * VOTE**0.5
    noise = jnp.asarray(facts.noise_std, jnp.float32) / unit
    within = jnp.clip(0.5 + vote.astype(jnp.float32) / unit, 0.0, 1.0)
    rate = jnp.maximum(RATE, FIRST / (state.t + 1).astype(jnp.float32)) * 0.25 / (0.25 + noise**2)
    moved = state.scale * jnp.exp(-rate * (within - quantile))
    return jnp.clip(moved, 1 / WIDEST, WIDEST).astype(jnp.float32)
