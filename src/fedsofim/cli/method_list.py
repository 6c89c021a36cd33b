"""What a method releases and keeps, read off its own program rather than from a description."""

import inspect
import math
from typing import Any

import jax

from fedsofim import methods
from fedsofim.core.budget import Budget
from fedsofim.core.models import softmax_head
from fedsofim.core.programs import input_shapes
from fedsofim.core.summary import privacy_summary

_FEATURES, _CLASSES = 64, 10


def describe_all() -> list[dict[str, Any]]:
    return [describe(name) for name in methods.registry()]


def describe(name: str) -> dict[str, Any]:
    """A method's parameters, ledger of 70 rounds with the defaults, and client memory.

    >>> describe("fedgd")["ledger"][0]["releases"]
    70
    """
    method = methods.make(name)
    priced = plan(
        method, softmax_head(), sizes=[100] * 20, shape=(_FEATURES,), classes=_CLASSES, budget=Budget(1.0), rounds=70
    )
    return {
        "name": name,
        "about": (inspect.getdoc(methods.factory(name)) or "").split("\n")[0],
        "parameters": methods.parameters(name),
        "presets": sorted(methods.presets(name)),
        "ledger": privacy_summary(priced)["ledger"],
        "memory": _memory(method),
    }


def _memory(method: Any) -> str:
    """Numbers a client holds beside its records: what it keeps between rounds, and what it forms to answer."""
    inputs = input_shapes(method, softmax_head(), (_FEATURES,), _CLASSES, (1, 1))
    kept = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(inputs.memory))
    dim = (_FEATURES + 1) * _CLASSES
    words = f"{kept // dim}·d kept" if kept else "nothing kept"
    return words + (", O((p+1)²) once" if method.setup is not None else "")
