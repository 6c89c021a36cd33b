"""What every method releases and keeps, read off its own program rather than from a description."""

import inspect
import math
from typing import Any

import jax

from fedsofim import methods
from fedsofim.core.budget import Budget
from fedsofim.core.method import Method
from fedsofim.core.models import softmax_head
from fedsofim.core.plan import make_plan
from fedsofim.core.programs import Public, input_shapes
from fedsofim.core.summary import privacy_summary
from fedsofim.errors import InputError

_FEATURES, _CLASSES = 64, 10
_PUBLIC = Public(shape=(_FEATURES,), classes=_CLASSES, blocks=(1, 1), clients=20, rounds=70, clip=10.0)


def describe_all() -> list[dict[str, Any]]:
    """Every method known by name; a stranger's that does not work says so and spoils nothing."""
    return [describe(name) if name in methods.PUBLISHED else _guarded(name) for name in methods.names()]


def describe(name: str) -> dict[str, Any]:
    """A method's parameters, ledger of 70 rounds with the defaults, and client memory.

    >>> describe("fedgd")["ledger"][0]["releases"]
    70
    """
    method = methods.make(name)
    plan = make_plan(
        method, softmax_head(), sizes=[100] * 20, shape=(_FEATURES,), classes=_CLASSES, budget=Budget(1.0), rounds=70
    )
    return {
        "name": name,
        "about": (inspect.getdoc(methods.factory(name)) or "").split("\n")[0],
        "parameters": methods.parameters(name),
        "presets": sorted(methods.presets(name)),
        "ledger": privacy_summary(plan)["ledger"],
        "memory": _memory(method),
    }


def _guarded(name: str) -> dict[str, Any]:
    try:
        return describe(name)
    except InputError as error:
        nothing = {"parameters": {}, "presets": [], "ledger": [], "memory": "unknown"}
        return {"name": name, "about": f"cannot be used: {error}", **nothing}


def _memory(method: Method) -> str:
    """Numbers a client holds beside its records: what it keeps between rounds, and what it forms to answer."""
    inputs = input_shapes(method, softmax_head(), _PUBLIC)
    kept = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(inputs.memory))
    dim = (_FEATURES + 1) * _CLASSES
    words = f"{kept // dim}·d kept" if kept else "nothing kept"
    return words + (", O((p+1)²) once" if method.setup is not None else "")
