"""Local steps behind the door: what DP-FedAvg, DP-SCAFFOLD and DP-AdaFedProx share.

Every local step is a release of its own: K steps in T rounds are K·T releases (door.scan tells the ledger).
"""

from collections.abc import Callable
from typing import Any

import jax
import optax

from fedsofim.core.door import Door, Facts
from fedsofim.core.mechanisms import Independent, Mechanism
from fedsofim.core.method import Method, server_method
from fedsofim.core.trees import add, subtract
from fedsofim.methods._steps import dim, local_and_server_step, scale_by_step, scaled

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
