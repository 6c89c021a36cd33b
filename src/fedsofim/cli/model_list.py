"""`fedsofim models`: every model with its parameters, its size, and how its clipped sums come about."""

import inspect
import json
from typing import Any

import jax

from fedsofim.cli import tables
from fedsofim.cli.options import Json
from fedsofim.core.budget import Budget
from fedsofim.core.plan import make_plan
from fedsofim.core.programs import upload_shapes
from fedsofim.core.summary import formed
from fedsofim.errors import InputError
from fedsofim.methods.fedgd import fedgd
from fedsofim.models import OWN, factory, make, names, parameters

CLOSED = "its gradient is a closed form"


def models(json_: Json = False) -> None:
    """Every model with its parameters, its size, and what of a record's gradient has to be formed."""
    described = [describe(name) if name in OWN else _guarded(name) for name in names()]
    if json_:
        print(json.dumps(described))
    else:
        tables.models(described)


def describe(name: str) -> dict[str, Any]:
    """A model as it is by default, read off the program of a round on 64 features and 10 classes.

    >>> describe("linear")["numbers"]
    650
    """
    plan = make_plan(fedgd(), make(name), sizes=[100], shape=(64,), classes=10, budget=Budget(1.0), rounds=1)
    return {
        "name": name,
        "about": (inspect.getdoc(factory(name)) or "").split("\n")[0],
        "parameters": parameters(name),
        "numbers": sum(leaf.size for leaf in jax.tree.leaves(upload_shapes(plan.program))),
        "formed": next(iter(formed(plan).values()), CLOSED),
    }


def _guarded(name: str) -> dict[str, Any]:
    """A stranger's that does not work says so and spoils nothing."""
    try:
        return describe(name)
    except InputError as error:
        return {"name": name, "about": f"cannot be used: {error}", "parameters": {}, "numbers": None, "formed": ""}
