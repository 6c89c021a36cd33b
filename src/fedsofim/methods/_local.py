"""Local steps behind the door: what DP-FedAvg, DP-SCAFFOLD and DP-AdaFedProx share, and pseudo-gradients.

Every local step is a release of its own: K steps in T rounds are K·T releases (door.scan tells the ledger).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import optax

from fedsofim.core.adaptive_clip import adaptive_clip
from fedsofim.core.door import Door, Facts
from fedsofim.core.mechanisms import Independent, Mechanism
from fedsofim.core.method import Method, server_method
from fedsofim.core.trees import add, subtract
from fedsofim.errors import InputError
from fedsofim.methods._steps import (
    check_count,
    check_steps,
    dim,
    local_and_server_step,
    scale_by_step,
    scaled,
)

_FRESH = Independent()
Correction = Callable[[Any], Any]  # y -> what is added to the noisy gradient at y; data-free


def descend(
    door: Door, params: Any, lr: Any, steps: int, correction: Correction | None = None, noise: Mechanism = _FRESH
) -> Any:
    """y_K - θ after K steps y ← y - η_c·((S_i(y) + noise)/|D_i| + correction(y)) from y = θ."""

    def step(door: Door, y: Any) -> Any:
        gradient = jax.tree.map(lambda s: s / door.batch, door.gradient(y, noise=noise))
        if correction is not None:
            gradient = add(gradient, correction(y))
        return subtract(y, scaled(lr, gradient))

    return subtract(door.scan(step, params, steps), params)


def one_step(name: str, client_lr: Any, server_lr: Any) -> Method:
    """What a local-step method is at K = 1: gradient descent with step η_s·η_c."""

    def step(facts: Facts, d: int) -> Any:
        eta_c, eta_s = local_and_server_step(facts, d, 1, client_lr, server_lr)
        return eta_c * eta_s

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        given = None if client_lr is None else step(facts, 1)  # then it does not depend on the dimension
        return scale_by_step(given, lambda d: step(facts, d))

    return server_method(name, optimizer)


def steps_of(facts: Facts, params: Any, local_steps: int, client_lr: Any, server_lr: Any) -> tuple[Any, Any]:
    """(η_c, η_s) for these parameters."""
    return local_and_server_step(facts, dim(params), local_steps, client_lr, server_lr)


Optimizer = Callable[[Facts], optax.GradientTransformation]


@dataclass(frozen=True)
class PseudoGradient:
    """What K noisy local steps amount to: (θ - y_K)/(K·η_c), the mean of the K noisy gradients along the way.

    At K = 1 that is the noisy gradient itself, up to rounding; there `on_local_steps` asks for it without the detour.
    """

    steps: int
    lr: Any = None

    def __call__(self, door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        eta, _ = steps_of(door.facts, params, self.steps, self.lr, None)
        return scaled(-1 / (self.steps * eta), descend(door, params, eta, self.steps)), memory


def on_local_steps(
    name: str, optimizer: Optimizer, local_steps: int, client_lr: Any, clip_quantile: float | None = None
) -> Method:
    """A server's optimizer on the mean pseudo-gradient of K local steps; K = 1 is the one-gradient method.

    The noise of a pseudo-gradient is that of a mean of K releases, σ/sqrt(K) where σ is one release's: what the
    optimizer is told. All it does with it is post-processing (prop:general-local-update-privacy). `clip_quantile`: a
    clip that finds itself, at K = 1.
    """
    check_count(local_steps=local_steps)
    check_steps(client_lr=client_lr)
    if local_steps == 1 and client_lr is not None:
        raise InputError("client_lr is the step of local steps, of which there is one here; leave client_lr out")
    if local_steps == 1:
        method = server_method(name, optimizer)
    else:
        client = PseudoGradient(local_steps, client_lr)
        method = server_method(name, lambda facts: optimizer(_of_mean(facts, local_steps)), client)
    return method if clip_quantile is None else adaptive_clip(method, clip_quantile)


def _of_mean(facts: Facts, releases: int) -> Facts:
    return facts._replace(noise_std=facts.noise_std / math.sqrt(releases))
