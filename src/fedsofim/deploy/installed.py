"""What a node may build: methods and models that are installed there, of a size that it can bear. Never code sent."""

import math
from typing import Any, Literal

import jax

from fedsofim import methods, models
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr
from fedsofim.core.keys import key_of
from fedsofim.core.models import Model
from fedsofim.errors import Refused
from fedsofim.extensions import is_file

MOST_NUMBERS = 10**8  # of a model's parameters


def is_installed(name: str, kind: Literal["method", "model"] = "method") -> bool:
    """Is this the name of a method, or of a model, in this installation? A file never is, whatever it is called.

    >>> is_installed("fedsofim"), is_installed("./fedsofim.py"), is_installed("mlp", "model")
    (True, False, True)
    """
    return name in (methods if kind == "method" else models).names() and not is_file(name)


def check_numbers(model: Model, shape: tuple[int, ...], classes: int) -> None:
    """Refused if the model would have more numbers than anybody can use, or answers with other classes; only shapes
    are made."""
    params = jax.eval_shape(lambda: model.init(key_of(0), shape, classes))
    numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    if numbers > MOST_NUMBERS:
        raise Refused(f"the model {model.name[:64]} would have {numbers} numbers; the most here are {MOST_NUMBERS}")
    traced, answers = jax.make_jaxpr(model.logits, return_shape=True)(
        params, jax.ShapeDtypeStruct((2, *shape), "float32")
    )
    if (most := _largest(traced.jaxpr)) > MOST_NUMBERS:
        raise Refused(
            f"the model {model.name[:64]} would hold {most} numbers for two records; the most here are {MOST_NUMBERS}"
        )
    if (found := getattr(answers, "shape", None)) != (2, classes):
        raise Refused(
            f"the model {model.name[:64]} answers 2 records of shape {list(shape)} with {found}; "
            f"expected one number for each of {classes} classes"
        )


def _largest(jaxpr: Any) -> int:
    """How many numbers the largest value on the way has."""
    inner = [j for eqn in jaxpr.eqns for p in eqn.params.values() for j in jaxprs_in(p)]
    here = [math.prod(getattr(v.aval, "shape", ())) for eqn in jaxpr.eqns for v in eqn.outvars]
    return max([*here, *(_largest(open_jaxpr(j)[0]) for j in inner)], default=0)
