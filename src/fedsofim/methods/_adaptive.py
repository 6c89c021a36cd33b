"""Adam's and Yogi's server steps, in the two forms found in the literature.

m ← β1·m + (1-β1)·G,  v ← β2·v + (1-β2)·G² (Adam)  or  v ← v - (1-β2)·sign(v - G²)·G² (Yogi),
step m/(sqrt(v) + τ). With bias correction both start at 0 and are divided by 1-β^t (Kingma & Ba). Without, v
starts at τ² (Reddi et al., "Adaptive Federated Optimization"). optax has the first form, Yogi from 1e-6.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedsofim.core.door import Facts
from fedsofim.core.method import Method
from fedsofim.core.trees import zeros
from fedsofim.methods._local import on_local_steps
from fedsofim.methods._steps import check_decay, check_steps, measured, scale_by_step, sign_step

Rule = Literal["adam", "yogi"]


class AdaptiveState(NamedTuple):
    steps: jax.Array
    first: Any
    second: Any


def adaptive_method(name: str, lr: Any, scale: optax.GradientTransformation, **local: Any) -> Method:
    """Adaptive server steps on gradients, or on pseudo-gradients of K local steps; a step of None is automatic."""
    check_steps(lr=lr)

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        return optax.chain(scale, scale_by_step(lr, lambda d: sign_step(facts, d)))

    return on_local_steps(name, measured(optimizer), **local)


def scale_by_adaptive(
    rule: Rule, *, beta1: Any, beta2: Any, tau: Any, bias_corrected: bool
) -> optax.GradientTransformation:
    """m/(sqrt(v) + τ).

    >>> update = scale_by_adaptive("adam", beta1=0.9, beta2=0.99, tau=1e-9, bias_corrected=True)
    >>> step, _ = update.update(jnp.array([2.0, -0.5]), update.init(jnp.zeros(2)))
    >>> [round(float(s), 4) for s in step]  # the first step is the sign
    [1.0, -1.0]
    """
    check_steps(tau=tau)
    check_decay(beta1=beta1, beta2=beta2)

    def init(params: Any) -> AdaptiveState:
        start = 0.0 if bias_corrected else tau**2
        second = jax.tree.map(lambda p: jnp.full_like(p, start), params)
        return AdaptiveState(jnp.zeros((), jnp.int32), zeros(params), second)

    def second(v: jax.Array, g: jax.Array) -> jax.Array:
        square = g * g
        if rule == "adam":
            return beta2 * v + (1 - beta2) * square
        return v - (1 - beta2) * jnp.sign(v - square) * square

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        count = state.steps + 1
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, updates)
        v = jax.tree.map(second, state.second, updates)

        def step(m: jax.Array, v: jax.Array) -> jax.Array:
            t = count.astype(m.dtype)
            if bias_corrected:
                m, v = m / (1 - beta1**t), v / (1 - beta2**t)
            return m / (jnp.sqrt(v) + tau)

        return jax.tree.map(step, m, v), AdaptiveState(count, m, v)

    return optax.GradientTransformation(init, update)
