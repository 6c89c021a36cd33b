"""A model from what it answers for one record: its loss is then the task's, whatever that is."""

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec

import jax

from fedsofim.core.models import Fixed, Model, for_task
from fedsofim.tasks import Task

P = ParamSpec("P")


def network(init: Callable[..., Any], outputs: Callable[[Any, jax.Array], jax.Array], fixed: Any = ()) -> Model:
    """`outputs(params, x)` of one record, as many as the task has; `fixed` is a tree of what it closes over."""
    arrays = tuple(leaf for leaf in jax.tree.leaves(fixed) if isinstance(leaf, jax.Array))
    model = Model(init, _no_loss, jax.vmap(outputs, in_axes=(None, 0)), outputs=outputs, fixed=Fixed(arrays))
    return for_task(model, Task())


def _no_loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    raise AssertionError("the task says what the loss is")


def remembered(factory: Callable[P, Model]) -> Callable[P, Model]:
    """A factory that gives the same Model for equal settings, so that its runs share one compiled program, and that
    writes down what it was called with."""

    @lru_cache(maxsize=64, typed=True)
    def kept(*args: Any) -> Model:
        names = inspect.signature(factory).parameters
        return factory(*args)._replace(name=factory.__name__, settings=tuple(zip(names, args, strict=True)))  # type: ignore[call-arg]

    @wraps(factory)
    def build(*args: P.args, **kwargs: P.kwargs) -> Model:
        bound = inspect.signature(factory).bind(*args, **kwargs)
        bound.apply_defaults()
        return kept(*(tuple(v) if isinstance(v, list) else v for v in bound.arguments.values()))

    return build
