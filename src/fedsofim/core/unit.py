"""Whom the guarantee protects: one record, one person with all their records at a client, or one whole client.

A unit of several records is laid out as one: x of shape (K, *features) and y of shape (K, ...), where a unit of fewer
records has copies of its first one that are marked absent. What the door sums is then one vector for each unit:

    gradient        Σ_k ∇loss(theta; x_k, y_k), the gradient of all that the unit holds,
    any other sum   the mean of fn(x_k, y_k), so that a mean over units is on the scale of one record,

clipped as a whole. So a unit moves a sum by at most 2·clip, whatever its records are and however many: the price of a
release is what it is for records, and its epsilon protects the unit. A copy that is marked absent counts nothing.
K is a public number (of a larger unit the first K records count): how a sum is computed, and so how it is rounded and
what is clipped, depends on K, so it must not follow from the records. How many units a client holds is public too.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def _present(y: Any) -> Any:
    """Which of a unit's places hold a record: (K,)."""
    first = y.reshape(y.shape[0], -1)[:, 0]
    return first == first if jnp.issubdtype(y.dtype, jnp.floating) else first >= 0


def _told(y: Any, present: Any) -> Any:
    """Labels with the first one's in absent places: what is computed there is finite, and counts nothing."""
    return jnp.where(present.reshape(-1, *[1] * (y.ndim - 1)), y, y[:1])


def total_loss(loss: Callable) -> Callable:
    """The loss of all that a unit holds."""

    def of_unit(params: Any, x: Any, y: Any) -> Any:
        here = _present(y)
        each = jax.vmap(loss, (None, 0, 0))(params, x, _told(y, here))
        return jnp.sum(jnp.where(here, each, jnp.zeros((), each.dtype)))

    return of_unit


def head_gradient(theta: Any, x: Any, y: Any) -> Any:
    """The gradient of a softmax head theta (p+1, C), bias last, over all that a unit holds: Σ_k [x_k;1] ⊗ r_k.

    Written as one product, so that its length comes from the K x K products of its terms and not from itself.
    """
    here = _present(y)
    r = jax.nn.softmax(x @ theta[:-1] + theta[-1]) - jax.nn.one_hot(_told(y, here), theta.shape[1], dtype=x.dtype)
    ones = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
    return ones.T @ jnp.where(here[:, None], r, jnp.zeros((), r.dtype))


def mean_over_unit(fn: Callable) -> Callable:
    """The mean of fn over what a unit holds."""

    def of_unit(x: Any, y: Any) -> Any:
        here = _present(y)
        each = jax.vmap(fn)(x, _told(y, here))
        return jax.tree.map(lambda v: _mean(v, here), each)

    return of_unit


def _mean(values: Any, here: Any) -> Any:
    kept = jnp.where(here.reshape(-1, *[1] * (values.ndim - 1)), values, jnp.zeros((), values.dtype))
    return jnp.sum(kept, axis=0) / jnp.sum(here).astype(values.dtype)
