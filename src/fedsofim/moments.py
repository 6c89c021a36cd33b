"""Adam's and Yogi's server steps, in the two forms found in the literature.

m ← β1·m + (1-β1)·G,  v ← β2·v + (1-β2)·G² (Adam)  or  v ← v - (1-β2)·sign(v - G²)·G² (Yogi),
step m/(sqrt(v) + τ). With bias correction both start at 0 and are divided by 1-β^t (Kingma & Ba). Without, v starts
at τ² (Reddi et al., "Adaptive Federated Optimization").
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from fedsofim.release import Facts
from fedsofim.round import Method, server_method
from fedsofim.steps import check_decay, check_steps, scale_by_step, sign_step

Rule = Literal["adam", "yogi"]


def moment_method(name: str, rule: Rule, lr: Any, beta1: Any, beta2: Any, tau: Any, bias_corrected: bool) -> Method:
    """A one-gradient method with an adaptive server step; lr None is automatic."""
    check_steps(lr=lr, tau=tau)
    check_decay(beta1=beta1, beta2=beta2)
    moments = corrected(rule, beta1, beta2, tau) if bias_corrected else uncorrected(rule, beta1, beta2, tau)

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        return optax.chain(moments, scale_by_step(lr, lambda d: sign_step(facts, d)))

    return server_method(name, optimizer)


def corrected(rule: Rule, beta1: Any, beta2: Any, tau: Any) -> optax.GradientTransformation:
    """Both moments start at 0 and are corrected for it. optax's Yogi starts at 1e-6 unless told otherwise."""
    if rule == "adam":
        return optax.scale_by_adam(beta1, beta2, eps=tau)
    return optax.scale_by_yogi(beta1, beta2, eps=tau, initial_accumulator_value=0.0)


def uncorrected(rule: Rule, beta1: Any, beta2: Any, tau: Any) -> optax.GradientTransformation:
    """m starts at 0 and v at τ²; nothing is corrected."""

    def init(params: Any) -> tuple[Any, Any]:
        return jax.tree.map(jnp.zeros_like, params), jax.tree.map(lambda p: jnp.full_like(p, tau**2), params)

    def second(v: jax.Array, g: jax.Array) -> jax.Array:
        square = g * g
        if rule == "adam":
            return beta2 * v + (1 - beta2) * square
        return v - (1 - beta2) * jnp.sign(v - square) * square

    def update(updates: Any, state: tuple[Any, Any], params: Any = None) -> tuple[Any, tuple[Any, Any]]:
        del params
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state[0], updates)
        v = jax.tree.map(second, state[1], updates)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), m, v), (m, v)

    return optax.GradientTransformation(init, update)
