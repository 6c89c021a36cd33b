"""Training a part of a model: the last layers of a pretrained one, or a low-rank change of all of it.

What is not trained is a constant of the loss: it enters no sum, no noise and no count of parameters. What comes from
public data costs nothing, so the budget is spent on the few numbers that are learned.

Arrays are named by their path in the parameters' tree, its steps divided by /: "dense/1/w".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.keys import key_of
from fedsofim.core.models import Fixed, Model
from fedsofim.core.normals import normal
from fedsofim.errors import InputError, expect_whole, shown

Chosen = str | Sequence[str] | Callable[[str], bool]
Learned = dict[str, Any]


def frozen(model: Model, params: Any, trainable: Chosen) -> Model:
    """The model with all of `params` fixed but what is named: by paths or their beginnings, or by a function of a path.

    >>> from fedsofim.models.mlp import mlp
    >>> whole = mlp((8,)).init(jax.random.key(0), (5,), 3)
    >>> sorted(frozen(mlp((8,)), whole, "1").init(jax.random.key(1), (5,), 3))
    ['1/b', '1/w']
    """
    known = named(params)
    learned = chosen(known, trainable)

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> Learned:
        _check_shapes(model, known, shape, outputs)
        return {name: known[name] for name in learned}

    return _through(model, init, known, lambda given: _merged(params, {**known, **given}))


def low_rank(model: Model, params: Any, rank: int = 4, trainable: Chosen = ()) -> Model:
    """The model with w + A·B in place of every matrix w of `params`, A and B of this rank and B = 0 at the start.

    A kernel counts as the matrix from its inputs to its channels. Matrices that are no larger than A and B together,
    and vectors, stay as they are. What `trainable` names is learned whole.
    """
    expect_whole("rank", rank, 1)
    known = named(params)
    whole = [] if not callable(trainable) and not trainable else chosen(known, trainable)
    sides = {k: (math.prod(w.shape[:-1]), w.shape[-1]) for k, w in known.items() if w.ndim >= 2 and k not in whole}
    turned = {k: s for k, s in sides.items() if rank * sum(s) < math.prod(s)}
    if not turned:
        raise InputError(f"no matrix of the model is larger than its change of rank {rank}; use a lower rank")

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> Learned:
        _check_shapes(model, known, shape, outputs)
        keys = dict(zip(turned, jax.random.split(key, len(turned)), strict=True))
        pairs = {
            k: {"A": normal(keys[k], (a, rank), jnp.float32) / math.sqrt(a), "B": jnp.zeros((rank, b), jnp.float32)}
            for k, (a, b) in turned.items()
        }
        return pairs | {k: known[k] for k in whole}

    def merge(given: Learned) -> Any:
        def moved(name: str) -> jax.Array:
            if name not in turned:
                return given[name]
            return known[name] + (given[name]["A"] @ given[name]["B"]).reshape(known[name].shape)

        return _merged(params, {**known, **{name: moved(name) for name in given}})

    return _through(model, init, known, merge)


def named(params: Any) -> dict[str, jax.Array]:
    """Every array by its path.

    >>> sorted(named({"dense": [{"w": jnp.ones(2)}]}))
    ['dense/0/w']
    """
    found = {_name(path): np.asarray(leaf) for path, leaf in jax.tree.flatten_with_path(params)[0]}
    for name, leaf in found.items():
        if leaf.dtype.kind in "OSUV":
            raise InputError(f"the parameters hold {leaf.dtype.name} at {shown(name)}; expected arrays of numbers")
    return {name: jnp.asarray(leaf) for name, leaf in found.items()}


def chosen(known: Mapping[str, Any], trainable: Chosen) -> list[str]:
    """The paths that are meant."""
    if callable(trainable):
        found = [name for name in known if trainable(name)]
        return found or _none(known, "the function chose none of them")
    starts = [trainable] if isinstance(trainable, str) else list(trainable)
    for start in starts:
        if not any(_begins(name, start) for name in known):
            _none(known, f"none is, or is in, {shown(start)}")
    return [name for name in known if any(_begins(name, start) for start in starts)] or _none(known, "none was named")


def _none(known: Mapping[str, Any], why: str) -> list[str]:
    raise InputError(f"trainable: {why}; the model's arrays are {', '.join(known)}")


def _begins(name: str, start: str) -> bool:
    return name == start or name.startswith(start.rstrip("/") + "/")


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _merged(params: Any, given: Mapping[str, Any]) -> Any:
    return jax.tree.map_with_path(lambda path, _: given[_name(path)], params)


def _check_shapes(model: Model, known: Mapping[str, Any], shape: tuple[int, ...], outputs: int) -> None:
    wanted = named_shapes(jax.eval_shape(lambda: model.init(key_of(0), shape, outputs)))
    if (found := {name: leaf.shape for name, leaf in known.items()}) != wanted:
        raise InputError(f"the given parameters have shapes {found}; those of the model for these records are {wanted}")


def named_shapes(params: Any) -> dict[str, tuple[int, ...]]:
    return {_name(path): leaf.shape for path, leaf in jax.tree.flatten_with_path(params)[0]}


def _through(
    model: Model, init: Callable[..., Learned], known: Mapping[str, jax.Array], merge: Callable[[Learned], Any]
) -> Model:
    """The model in terms of what is learned of it. A closed form is of all of it, so it is left out."""
    module, outputs = model.module, model.outputs
    return Model(
        init,
        lambda given, x, y: model.loss(merge(given), x, y),
        lambda given, x: model.logits(merge(given), x),
        takes="records as they are",  # the given numbers are for them
        fixed=Fixed((*known.values(), *(model.fixed.arrays if model.fixed else ()))),
        outputs=None if outputs is None else lambda given, x: outputs(merge(given), x),
        module=None if module is None else lambda given: module(merge(given)),
    )
