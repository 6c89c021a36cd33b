"""DP-FedFC: gradient steps preconditioned by the features' second moment, released once before round 1.

Setup: each client releases Σ_j x~ x~ᵀ, x~ = clip([x;1], C_c): sensitivity sqrt(2)·C_c², symmetric noise,
`share` of the budget's mu². A = mean of what was released over |D_i|; P = (A₊ + γI)⁻¹, A₊ nearest to A, PSD.
Rounds: θ ← θ - η·P·mat(G), mat(G) of shape (p+1, C). 1 + T releases; a client needs O((p+1)²) memory once.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsofim.core.door import Door, Facts
from fedsofim.core.mechanisms import Independent, Mischarged
from fedsofim.core.method import Method, OneGradient, Setup, remembered
from fedsofim.core.trees import subtract
from fedsofim.methods._heads import inverse_of, matrix, unmatrix
from fedsofim.methods._steps import check_share, check_steps, dim, noted, preconditioned_step, scaled, with_published

_NOTE = (
    "NOT PRIVATE AS CLAIMED: as published, features are not clipped for the covariance and its noise "
    "is not charged; epsilon is infinite"
)


class State(NamedTuple):
    inverse: jax.Array  # P
    shrink: jax.Array  # tr(P·A)/tr(A): how far P shrinks the squared size of features


@remembered
def fedfc(
    lr: float | None = None,
    gamma: float = 1.0,
    share: float = 0.1,
    feature_clip: float | None = None,
    as_published: bool = False,
    published_noise: float = 1.0,
) -> Method:
    """Preconditioned gradient descent; lr None is automatic, feature_clip None is the run's clip."""
    check_steps(lr=lr, gamma=gamma, feature_clip=feature_clip, published_noise=published_noise)
    check_share(share=share)

    def covariance(door: Door, params: Any) -> jax.Array:
        def vector(x, y):
            return jnp.concatenate([x, jnp.ones((1,), x.dtype)])

        how: dict[str, Any] = {"clip": feature_clip or door.facts.clip, "share": share}
        if as_published:
            how = {"clip": math.inf, "noise": Mischarged(Independent(published_noise), lambda rounds: 0.0)}
        return door.second_moment(vector, label="covariance", **how) / door.size

    def init(params: Any) -> State:
        head = matrix(params)
        return State(jnp.eye(len(head), dtype=head.dtype), jnp.ones((), jnp.float32))

    def server(mean: Any, state: State, params: Any, facts: Facts) -> tuple[Any, State]:
        eta = noted("lr", preconditioned_step(facts, dim(params), state.inverse, state.shrink)) if lr is None else lr
        return subtract(params, unmatrix(scaled(eta, state.inverse @ matrix(mean)), params)), state

    setup = Setup(covariance, lambda mean, _: State(*inverse_of(mean, gamma)))
    return Method("fedfc", OneGradient(), server, init, setup=setup, note=_NOTE if as_published else "")


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("lr", "gamma")

#: Settings behind the published ResNet-20 tables, by epsilon: at true cost, and with the published account.
_PAPER = {0.5: (0.4, 2.0), 1.0: (0.3, 1.0), 5.0: (2.0, 5.0), 10.0: (0.5, 5.0)}
PRESETS = with_published({epsilon: {"lr": lr, "gamma": gamma} for epsilon, (lr, gamma) in _PAPER.items()})
