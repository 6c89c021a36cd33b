"""Where the time of a round goes: each part compiled alone on the reference problem.

Compiled alone, a part writes its result to memory and the next reads it back; inside a round they may be fused. So
the parts say what each costs at most, and need not add up to the round.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from clock import Turn, timed
from problem import BETA, LR, RHO, initial_theta

from fedsofim.data.partition import Split
from fedsofim.transforms import sofim

PRODUCTS_NUMPY, PRODUCTS_JAX = "X·θ and XᵀR, NumPy", "X·θ and XᵀR, JAX"


def products(data: Split) -> dict[str, Turn]:
    """The two matrix products of a round at its shapes, in both libraries."""
    x, theta = data.data.x_train, initial_theta(data)[:-1]
    r = np.random.default_rng(2).standard_normal((len(x), theta.shape[1]), np.float32)
    on_device = [jnp.asarray(a) for a in (x, theta, r)]
    both = jax.jit(lambda x, theta, r: (x @ theta, r.T @ x))
    return {
        PRODUCTS_NUMPY: timed(lambda: (x @ theta, r.T @ x)),
        PRODUCTS_JAX: timed(lambda: jax.block_until_ready(both(*on_device))),
    }


def parts(data: Split) -> dict[str, Turn]:
    """The steps of a round one by one, in JAX."""
    x, y = jnp.asarray(data.data.x_train), jnp.asarray(data.data.y_train)
    theta = jnp.asarray(initial_theta(data))
    logits = x @ theta[:-1] + theta[-1]
    r, factor = jax.nn.softmax(logits), jnp.full(len(x), 0.5)
    key = jax.random.key(0)
    optimizer = sofim(LR, rho=RHO, beta=BETA)
    state = optimizer.init(theta)
    return {
        "X·θ": _part(lambda x, t: x @ t[:-1] + t[-1], x, theta),
        "softmax, minus the label": _part(lambda z, y: jax.nn.softmax(z) - jax.nn.one_hot(y, z.shape[1]), logits, y),
        "norms |x| and |r|": _part(lambda x, r: jnp.sum(x * x, axis=1) * jnp.sum(r * r, axis=1), x, r),
        "clipping": _part(lambda r, f: r * f[:, None], r, factor),
        "XᵀR": _part(lambda x, r: (r.T @ x).T, x, r),
        "noise": _part(lambda k: jax.random.normal(k, theta.shape), key),
        "server step": _part(lambda g, s, p: optimizer.update(g, s, p), theta, state, theta),
    }


def _part(function: Callable, *arguments: object) -> Turn:
    compiled = jax.jit(function)
    return timed(lambda: jax.block_until_ready(compiled(*arguments)))
