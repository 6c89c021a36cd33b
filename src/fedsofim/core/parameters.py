"""What an equation may be told beside its operands: plain values, programs, and JAX's own kinds of settings.

A parameter is looked at here and used by JAX later. So it must be of a kind that cannot be one thing now and another
then: exact built-in types, NumPy's types of numbers, JAX's own classes. A stranger's class, a subclass of `int` that
multiplies its own way, a function that JAX would call: all refused.
"""

import sys
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from fedsofim.core.keys import is_own_generator, is_own_key
from fedsofim.errors import Refused

_PLAIN = (type(None), bool, int, float, complex, str)


def check_parameters(name: str, params: dict[str, Any]) -> None:
    """Refused unless everything that an equation of this name is told is of a known kind."""
    for key, value in params.items():
        if not _known(value):
            raise Refused(
                f"'{name}' is told its {key} by a {type(value).__name__}, which could be one thing when it is read and "
                "another when it runs; use jax.numpy and jax.lax with plain values"
            )


def is_program(value: Any) -> bool:
    """A program of JAX's own make, which shows what it runs."""
    return type(value) is ClosedJaxpr or type(value) is Jaxpr


def _known(value: Any) -> bool:
    if type(value) in _PLAIN or is_program(value) or isinstance(value, np.dtype):
        return True
    if type(value) in (tuple, list):
        return all(map(_known, value))
    if isinstance(value, np.generic):
        return _home_has(type(value))
    if isinstance(value, type):
        return issubclass(value, np.generic) and _home_has(value)
    if hasattr(value, "_impl"):  # a type of keys
        return is_own_key(value)
    if not type(value).__module__.startswith("jax") or not _home_has(type(value)):
        return False
    if callable(getattr(value, "random_bits", None)):  # a generator
        return is_own_generator(value)
    return all(map(_known, value)) if isinstance(value, tuple) else True


def _home_has(cls: type) -> bool:
    """Is this class really the one of its name in the module it says it is from?"""
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls
