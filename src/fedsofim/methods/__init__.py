"""The methods by name. A module here with a function of its own name is a method: adding one is one file.

A factory's keyword parameters with their defaults are what `--set name=value` may set; `PRESETS` in the module
may hold named settings, by epsilon where they depend on the budget, and `SWEPT` the numbers that touch no price and may
be inputs of a compiled program (all others are compiled in). A method of one's own needs no edit here: it is a
file, `make("./heavyball.py")`, or comes with an installed package (extensions.py).
"""

import importlib
import math
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fedsofim import extensions
from fedsofim.core.isolation import call_apart
from fedsofim.core.method import Method
from fedsofim.errors import InputError, shown, unknown
from fedsofim.settings import check_complete, check_mapping, parameters_of, value_of

#: The methods of the paper, all in this folder.
PUBLISHED = (
    "adafedprox", "fedadam", "fedavg", "fedfc", "fedgd", "fedsofim", "fedyogi", "ftrl", "scaffold",
)  # fmt: skip


def names() -> list[str]:
    """Every method known by name: those in this folder, then those of installed packages.

    >>> set(PUBLISHED) <= set(names())
    True
    """
    own = _own()
    return [*own, *sorted(set(extensions.installed("method")) - set(own))]


@lru_cache(maxsize=1)
def _own() -> dict[str, Any]:
    """The modules of this folder that are methods."""
    modules = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    found = {name: importlib.import_module(f"{__name__}.{name}") for name in sorted(modules)}
    return {name: module for name, module in found.items() if hasattr(module, name)}


def spelled(name: Any) -> Any:
    """A method's name as it is spelled here, however it was capitalised; what is no name of ours stays as it is.

    >>> spelled("FedSOFIM"), spelled("DP-FedGD"), spelled("./Mine.py")
    ('fedsofim', 'fedgd', './Mine.py')
    """
    if not isinstance(name, str) or extensions.is_file(name) or name in names():
        return name
    lower = {known.lower(): known for known in names()}
    return lower.get(name.lower().removeprefix("dp-"), name)


def factory(name: str) -> Callable[..., Method]:
    """The function that makes a method, by its name or file."""
    return _found(name)[0]


def _found(name: str) -> tuple[Callable[..., Method], Any]:
    """A method's factory and the module it stands in."""
    if not isinstance(name, str):
        raise InputError(f"the method's name is {shown(name)}; expected text, for example 'fedsofim' or './mine.py'")
    if name in _own():
        return getattr(_own()[name], name), _own()[name]
    if extensions.is_file(name):
        return call_apart(extensions.from_file, "method", name)
    if name not in extensions.installed("method"):
        raise unknown("method", name, names())
    return call_apart(extensions.from_package, "method", name)


def make(name: str, settings: dict[str, Any] | None = None, epsilon: float | None = None) -> Method:
    """A method by name or file, with settings (values or their text), a `preset` among them resolved for epsilon.

    >>> make("fedsofim", {"rho": "0.3", "direction": "gradient"}).name
    'fedsofim'
    """
    name = spelled(name)
    build, values = factory(name), resolve(name, settings, epsilon)
    if name in _own():
        return build(**values)
    return call_apart(extensions.called, "method", name, build, Method, values)._replace(settings=tuple(values.items()))


def resolve(name: str, settings: dict[str, Any] | None = None, epsilon: float | None = None) -> dict[str, Any]:
    """Settings as the factory takes them: text parsed, a preset written out.

    >>> resolve("fedgd", {"lr": "0.5"})
    {'lr': 0.5}
    """
    build = factory(name)
    check_mapping(name, settings or {})
    given = dict(settings or {})
    chosen = given.pop("preset", None)
    values = _preset(name, str(chosen), epsilon) if chosen is not None else {}
    for key, value in given.items():
        values[key] = value_of(name, build, key, value, also=("preset",))
    check_complete(name, build, values)
    return values


def parameters(name: str) -> dict[str, Any]:
    """A method's parameters with their defaults."""
    return parameters_of(factory(name))


def presets(name: str) -> dict[str, Any]:
    """A method's named settings."""
    return getattr(_found(name)[1], "PRESETS", {})


def swept(name: str) -> tuple[str, ...]:
    """The numbers of a method that a sweep may make inputs of one compiled program; none of a stranger's.

    A stranger's method may look at its numbers in Python, which inputs cannot be.

    >>> swept("fedfc")
    ('lr', 'gamma')
    """
    return getattr(_own()[name], "SWEPT", ()) if name in PUBLISHED else ()


def _preset(name: str, preset: str, epsilon: float | None) -> dict[str, Any]:
    known = presets(name)
    if preset not in known:
        none = InputError(f"{name} has no presets; leave preset out")
        raise unknown(f"preset of {name}", preset, known) if known else none
    table = known[preset]
    if not all(isinstance(k, float) for k in table):
        return dict(table)
    if epsilon is None:
        raise InputError(f"preset '{preset}' depends on the budget; say which epsilon (--epsilon NUMBER)")
    near = math.log(min(epsilon, 1e6))  # without noise, the settings of the largest budget
    return dict(table[min(table, key=lambda e: abs(math.log(e) - near))])
