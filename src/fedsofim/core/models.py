"""Models: how parameters start, what a record's loss is, what is predicted.

`softmax_head` is the paper's linear head, with its gradient in closed form. Any other JAX loss works through
`Model(init, loss, logits)`; its per-record gradients are not formed where they are outer products (leaves.py).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedsofim import extensions
from fedsofim.core.normals import normal
from fedsofim.core.queries import Query, SoftmaxGradient
from fedsofim.errors import unknown

HEAD = "softmax_head"  # the model a run has unless told otherwise


class Model(NamedTuple):
    """Pure functions of parameters; `x` is one record in `loss` and a batch in `logits`."""

    init: Callable[[jax.Array, tuple[int, ...], int], Any]  # key, shape of one record, classes
    loss: Callable[[Any, jax.Array, jax.Array], jax.Array]
    logits: Callable[[Any, jax.Array], jax.Array]
    gradient: Query | None = None  # a closed form of the clipped sum; only the library's own are accepted


@lru_cache(maxsize=16)  # one object per setting, so that compiled runs are shared
def softmax_head(init_scale: float = 0.5) -> Model:
    """Linear softmax with bias on p features: theta of shape (p+1, C), the bias in the last row.

    theta_0 ~ N(0, (init_scale·sqrt(2/(p+1+C)))²), as in the paper's experiments.
    """

    def init(key: jax.Array, shape: tuple[int, ...], classes: int) -> jax.Array:
        rows = shape[0] + 1
        std = init_scale * (2.0 / (rows + classes)) ** 0.5
        # the barrier keeps XLA from merging std with a factor of the normals: published runs start from two roundings
        return std * jax.lax.optimization_barrier(normal(key, (rows, classes), jnp.float32))

    def logits(theta: jax.Array, x: jax.Array) -> jax.Array:
        return x @ theta[:-1] + theta[-1]

    def loss(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits(theta, x), y)

    return Model(init, loss, logits, SoftmaxGradient())


def model_names() -> list[str]:
    """Every model known by name: the head, and those of installed packages."""
    return [HEAD, *sorted(set(extensions.installed("model")) - {HEAD})]


def make_model(name: str) -> Model:
    """A model by name, or by the file that holds a function of its own name (extensions.py).

    >>> make_model("softmax_head") is softmax_head()
    True
    """
    if name == HEAD:
        return softmax_head()
    if name not in model_names() and not extensions.is_file(name):
        raise unknown("model", name, model_names())
    found = extensions.from_file if extensions.is_file(name) else extensions.from_package
    return _made(name, found("model", name)[0])


@lru_cache(maxsize=16)  # one object per function, so that compiled runs are shared; a changed file has a new one
def _made(name: str, build: Callable[[], Model]) -> Model:
    return extensions.called("model", name, build, Model, {})


def evaluate(model: Model, params: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Accuracy in percent and mean cross-entropy."""
    out = model.logits(params, x)
    right = jnp.argmax(out, axis=-1).astype(y.dtype) == y
    loss = optax.softmax_cross_entropy_with_integer_labels(out, y)
    return 100.0 * jnp.mean(right.astype(out.dtype)), jnp.mean(loss)
