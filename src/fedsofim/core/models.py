"""Models: how parameters start, what a record's loss is, what is predicted.

`softmax_head` is the paper's linear head, with its gradient in closed form, and `linear(task)` the same for
other tasks. Their losses are in losses.py: `loss_of(task)` serves any model. Any other JAX loss works through
`Model(init, loss, logits)`; its per-record gradients are not formed where they are outer products (leaves.py). Those
that are known by name are in models/.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedsofim.core.isolation import call_apart
from fedsofim.core.losses import loss_of, measured
from fedsofim.core.normals import normal
from fedsofim.core.queries import Query, SoftmaxGradient
from fedsofim.core.sealed import unsealed
from fedsofim.errors import shown
from fedsofim.tasks import CLASSES, Task

HEAD = "linear"  # the model a run has unless told otherwise


@dataclass(frozen=True, eq=False)
class Fixed:
    """Arrays that a model's functions close over: numbers of a pretrained module that are not learned, for example.

    Whoever makes a model says by this that they are public, as it says of what `init` starts from. The audit lets
    these very arrays into a client's program, and no other. A list may grow while `init` runs: a torch module's
    constants are known once the shape of its records is.
    """

    arrays: Sequence[jax.Array] = ()


#: Added ones too, mixed ones; as many as there were and each in its place (pixels); or nothing but what they were.
Takes = Literal["any features", "as many features", "records as they are"]


class Model(NamedTuple):
    """Pure functions of parameters; `x` is one record in `loss` and a batch in `logits`."""

    init: Callable[[jax.Array, tuple[int, ...], int], Any]  # key, shape of one record, outputs (of classes: how many)
    loss: Callable[[Any, jax.Array, jax.Array], jax.Array]
    logits: Callable[[Any, jax.Array], jax.Array]
    gradient: Query | None = None  # a closed form of the clipped sum; only the library's own are accepted
    outputs: Callable[[Any, jax.Array], jax.Array] | None = None  # of one record; where given, the loss is the task's
    name: str = ""  # of those that are made by name (models/), and what they were made with: to make them again
    settings: tuple[tuple[str, Any], ...] = ()
    takes: Takes = "any features"  # what a recipe may do to records before the model sees them
    fixed: Fixed | None = None  # public arrays that the functions close over
    module: Callable[[Any], Any] | None = None  # parameters as a module of the library that the model is from

    def __repr__(self) -> str:
        """The name alone: functions and settings may hold anything."""
        return f"<Model {shown(self.name)}>" if self.name else "<Model>"

    def __hash__(self) -> int:
        """Of all its parts, which may be of somebody's own classes: asked where no record is in reach."""
        return call_apart(tuple.__hash__, self)

    def __eq__(self, other: Any) -> bool:
        """Are all parts equal? Asked where no record is in reach."""
        return self is other or (type(other) is Model and call_apart(tuple.__eq__, self, other))

    def __ne__(self, other: Any) -> bool:
        """The opposite; a tuple has one of its own."""
        return not self == other


def softmax_head(init_scale: float = 0.5) -> Model:
    """Linear softmax with bias on p features: theta of shape (p+1, C), the bias in the last row.

    theta_0 ~ N(0, (init_scale·sqrt(2/(p+1+C)))²), as in the paper's experiments.
    """
    return _softmax_head(init_scale)


@lru_cache(maxsize=16)  # one object per setting, however it was written, so that compiled runs are shared
def _softmax_head(init_scale: float) -> Model:

    def logits(theta: jax.Array, x: jax.Array) -> jax.Array:
        return x @ theta[:-1] + theta[-1]

    def loss(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits(theta, x), y)

    return Model(_start(init_scale), loss, logits, SoftmaxGradient(), **_named(init_scale))


def _start(init_scale: float) -> Callable[[jax.Array, tuple[int, ...], int], jax.Array]:
    def init(key: jax.Array, shape: tuple[int, ...], classes: int) -> jax.Array:
        rows = shape[0] + 1
        std = init_scale * (2.0 / (rows + classes)) ** 0.5
        # the barrier keeps XLA from merging std with a factor of the normals: published runs start from two roundings
        return std * jax.lax.optimization_barrier(normal(key, (rows, classes), jnp.float32))

    return init


@lru_cache(maxsize=64)
def linear(task: Task = Task(), init_scale: float = 0.5) -> Model:
    """The linear model of a task: z = [x, 1]·theta with theta of shape (p+1, outputs). For classes `softmax_head`.

    A record's gradient is the outer product of [x, 1] and the loss's slope in z, so it is never formed (leaves.py).

    >>> linear() is softmax_head()
    True
    """
    if task.kind == CLASSES:
        return softmax_head(init_scale)
    of_outputs = loss_of(task)

    def loss(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return of_outputs(jnp.append(x, jnp.ones((), x.dtype)) @ theta, y)

    return Model(_start(init_scale), loss, _with_bias, **_named(init_scale))


def _with_bias(theta: jax.Array, x: jax.Array) -> jax.Array:
    return x @ theta[:-1] + theta[-1]


def is_linear(model: Model) -> bool:
    """Is it `softmax_head`, or `linear` of a task?"""
    return isinstance(model.gradient, SoftmaxGradient) or unsealed(model.logits) is _with_bias


def _named(init_scale: float) -> dict[str, Any]:
    return {"name": HEAD, "settings": (("start", init_scale),)}


@lru_cache(maxsize=64)
def for_task(model: Model, task: Task) -> Model:
    """The model with the task's loss, where it leaves its loss to the task; the same object for the same task."""
    if (outputs := model.outputs) is None:
        return model
    of_outputs = loss_of(task)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return of_outputs(outputs(params, x), y)

    return model._replace(loss=loss)


def evaluate(model: Model, params: Any, x: jax.Array, y: jax.Array, task: Task = Task()) -> tuple[jax.Array, jax.Array]:
    """The task's one number (accuracy in percent, or RMSE), and the mean loss."""
    return measured(task, model.logits(params, x), y)
