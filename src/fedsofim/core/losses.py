"""The loss of one record by task, from a model's outputs z, and the one number that says how well a model does.

    classes      -log softmax(z)_y                       two-classes, labels   Σ log(1 + e^z) - y·z
    numbers      (z - y)²/2, or Huber's: |z - y|·h - h²/2 where that is further than h
    counts       e^z - (y/s)·z: Poisson's, in units of s; beyond z = log(most/s) a straight line

All are convex in z, so in a linear model's parameters. y of numbers lies in [-1, 1] by its public range, and |∂/∂z| of
counts is at most most/s: neither overflows, whatever the noise does to z.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedsofim.tasks import CLASSES, COUNTS, LABELS, NUMBERS, TWO, Task

Loss = Callable[[jax.Array, jax.Array], jax.Array]


def loss_of(task: Task) -> Loss:
    """loss(z, y) of one record: z has shape (outputs,), y as tasks.py has it.

    >>> float(loss_of(Task("numbers", range=(0, 10)))(jnp.array([0.5]), jnp.float32(0.0)))
    0.125
    """
    if task.kind == NUMBERS:
        far = math.inf if task.huber is None else task.huber / task.half
        return lambda z, y: _huber(z[0] - y, far)
    if task.kind == COUNTS:
        return lambda z, y: _poisson(z[0], y.astype(z.dtype) / task.scale, math.log(task.ends[1] / task.scale))
    return _OF_KIND[task.kind]


def _softmax(z: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(z, y)


def _logistic(z: jax.Array, y: jax.Array) -> jax.Array:
    """Of as many questions as there are outputs."""
    return jnp.sum(jnp.maximum(z, 0.0) - y.astype(z.dtype) * z + jnp.log1p(jnp.exp(-jnp.abs(z))))


def _huber(error: jax.Array, far: float) -> jax.Array:
    if far == math.inf:
        return 0.5 * error * error
    near = jnp.clip(error, -far, far)
    return near * error - 0.5 * near * near


def _poisson(z: jax.Array, y: jax.Array, top: float) -> jax.Array:
    inside = jnp.minimum(z, top)
    return jnp.exp(inside) * (1.0 + jnp.maximum(z - top, 0.0)) - y * z


_OF_KIND: dict[str, Loss] = {CLASSES: _softmax, TWO: _logistic, LABELS: _logistic}


def measured(task: Task, z: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The task's one number (tasks.py: accuracy in percent, or RMSE in the answer's units), and the mean loss."""
    if task.kind == CLASSES:
        right = jnp.argmax(z, axis=-1).astype(y.dtype) == y
        loss = optax.softmax_cross_entropy_with_integer_labels(z, y)
        return 100.0 * jnp.mean(right.astype(z.dtype)), jnp.mean(loss)
    loss = jnp.mean(jax.vmap(loss_of(task))(z, y))
    if task.kind in (TWO, LABELS):
        right = (z > 0).astype(y.dtype) == y.reshape(z.shape)
        return 100.0 * jnp.mean(right.astype(z.dtype)), loss
    error = (_told(task, z[:, 0]) - y.astype(z.dtype)) * (task.half if task.kind == NUMBERS else 1.0)
    return jnp.sqrt(jnp.mean(error * error)), loss


def _told(task: Task, z: jax.Array) -> Any:
    """What is answered for z: of numbers as y is coded, of counts the mean."""
    if task.kind == NUMBERS:
        return jnp.clip(z, -1.0, 1.0)
    return task.scale * jnp.exp(jnp.minimum(z, math.log(task.ends[1] / task.scale)))
