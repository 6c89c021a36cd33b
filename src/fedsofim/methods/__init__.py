"""The methods by name. A module here with a function of its own name is a method: adding one is one file.

A factory's keyword parameters with their defaults are what `--set name=value` may set; `PRESETS` in the module
may hold named settings, by epsilon where they depend on the budget.
"""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedsofim.errors import InputError, unknown
from fedsofim.round import Method


@lru_cache(maxsize=1)
def registry() -> dict[str, Callable[..., Method]]:
    """Every method's factory.

    >>> "fedsofim" in registry()
    True
    """
    found = {m.name: importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)}
    return {name: getattr(module, name) for name, module in found.items() if hasattr(module, name)}


def factory(name: str) -> Callable[..., Method]:
    if name not in registry():
        raise unknown("method", name, registry())
    return registry()[name]


def make(name: str, settings: dict[str, Any] | None = None, epsilon: float | None = None) -> Method:
    """A method by name with settings (values or their text), a `preset` among them resolved for epsilon.

    >>> make("fedsofim", {"rho": "0.3", "direction": "gradient"}).name
    'fedsofim'
    """
    return factory(name)(**resolve(name, settings, epsilon))


def resolve(name: str, settings: dict[str, Any] | None = None, epsilon: float | None = None) -> dict[str, Any]:
    """Settings as the factory takes them: text parsed, a preset written out.

    >>> resolve("fedgd", {"lr": "0.5"})
    {'lr': 0.5}
    """
    build = factory(name)
    given = dict(settings or {})
    chosen = given.pop("preset", None)
    values = _preset(name, str(chosen), epsilon) if chosen is not None else {}
    for key, value in given.items():
        values[key] = _value(name, build, key, value)
    return values


def parameters(name: str) -> dict[str, Any]:
    """A method's parameters with their defaults."""
    return {k: p.default for k, p in inspect.signature(factory(name)).parameters.items()}


def presets(name: str) -> dict[str, Any]:
    module = importlib.import_module(f"{__name__}.{name}") if factory(name) else None
    return getattr(module, "PRESETS", {})


def _preset(name: str, preset: str, epsilon: float | None) -> dict[str, Any]:
    known = presets(name)
    if preset not in known:
        none = InputError(f"{name} has no presets; leave preset out")
        raise unknown(f"preset of {name}", preset, known) if known else none
    table = known[preset]
    if not all(isinstance(k, float) for k in table):
        return dict(table)
    if epsilon is None:
        raise InputError(f"preset '{preset}' depends on the budget; give --epsilon")
    return dict(table[min(table, key=lambda e: abs(math.log(e / epsilon)))])


def _value(name: str, build: Callable, key: str, value: Any) -> Any:
    """A setting in the type its parameter declares."""
    hints = get_type_hints(build)
    if key not in inspect.signature(build).parameters:
        raise unknown(f"parameter of {name}", key, [*parameters(name), "preset"])
    if not isinstance(value, str):
        return value
    options = [a for a in get_args(hints[key]) if a is not type(None)] or [hints[key]]
    if get_origin(hints[key]) is Literal:
        if value not in options:
            raise unknown(f"value of {key}", value, options)
        return value
    if type(None) in get_args(hints[key]) and value.lower() in ("none", "auto"):
        return None
    for kind in options:
        try:
            return _parse(kind, value)
        except ValueError:
            continue
    wanted = " or ".join(getattr(k, "__name__", str(k)) for k in options)
    raise InputError(f"{name}: {key} is '{value}'; expected {wanted}")


def _parse(kind: Any, text: str) -> Any:
    if kind is bool:
        words = {
            "true": True,
            "1": True,
            "on": True,
            "yes": True,
            "false": False,
            "0": False,
            "off": False,
            "no": False,
        }
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]
    value = kind(text)
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(text)
    return value
