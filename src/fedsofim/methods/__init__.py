"""The methods by name. A module here with a function of its own name is a method: adding one is one file.

A factory's keyword parameters with their defaults are what `--set name=value` may set; `PRESETS` in the module
may hold named settings, by epsilon where they depend on the budget, and `SWEPT` the numbers that touch no price and may
be inputs of a compiled program (all others are compiled in). A method of one's own needs no edit here: it is a
file, `make("./heavyball.py")`, or comes with an installed package (extensions.py).
"""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedsofim import extensions
from fedsofim.core.method import Method
from fedsofim.errors import InputError, unknown

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
        raise InputError(f"the method's name is {name!r}; expected text, for example 'fedsofim' or './mine.py'")
    if name in _own():
        return getattr(_own()[name], name), _own()[name]
    if extensions.is_file(name):
        return extensions.from_file("method", name)
    if name not in extensions.installed("method"):
        raise unknown("method", name, names())
    return extensions.from_package("method", name)


def make(name: str, settings: dict[str, Any] | None = None, epsilon: float | None = None) -> Method:
    """A method by name or file, with settings (values or their text), a `preset` among them resolved for epsilon.

    >>> make("fedsofim", {"rho": "0.3", "direction": "gradient"}).name
    'fedsofim'
    """
    name = spelled(name)
    build, values = factory(name), resolve(name, settings, epsilon)
    if name in _own():
        return build(**values)
    return extensions.called("method", name, build, Method, values)._replace(settings=tuple(values.items()))


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """['lr=0.1'] -> {'lr': '0.1'}.

    >>> parse_settings(["lr=0.1", "direction=gradient"])
    {'lr': '0.1', 'direction': 'gradient'}
    """
    out = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--set {pair}: expected name=value, for example --set lr=0.1")
        out[name.strip()] = value.strip()
    return out


def resolve(name: str, settings: dict[str, Any] | None = None, epsilon: float | None = None) -> dict[str, Any]:
    """Settings as the factory takes them: text parsed, a preset written out.

    >>> resolve("fedgd", {"lr": "0.5"})
    {'lr': 0.5}
    """
    build = factory(name)
    if not isinstance(settings or {}, Mapping):
        raise InputError(
            f"{name}: the settings are {settings!r}; expected names with values, for example {{'lr': 0.1}}"
        )
    given = dict(settings or {})
    chosen = given.pop("preset", None)
    values = _preset(name, str(chosen), epsilon) if chosen is not None else {}
    for key, value in given.items():
        values[key] = _value(name, build, key, value)
    needed = [
        k for k, p in inspect.signature(build).parameters.items() if p.default is p.empty and p.kind not in _STARS
    ]
    if missing := [k for k in needed if k not in values]:
        raise InputError(f"{name} needs {', '.join(missing)}; set {missing[0]} (--set {missing[0]}=VALUE)")
    return values


_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters(name: str) -> dict[str, Any]:
    """A method's parameters with their defaults."""
    return {k: p.default for k, p in inspect.signature(factory(name)).parameters.items()}


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


def _value(name: str, build: Callable, key: str, value: Any) -> Any:
    """A setting in the type its parameter declares."""
    if key not in inspect.signature(build).parameters:
        raise unknown(f"parameter of {name}", key, [*parameters(name), "preset"])
    if not isinstance(value, str):
        return value
    hint = get_type_hints(build).get(key) or _hint_of(inspect.signature(build).parameters[key].default)
    options = [a for a in get_args(hint) if a is not type(None)] or [hint]
    if get_origin(hint) is Literal:
        if value not in options:
            raise unknown(f"value of {key}", value, options)
        return value
    if type(None) in get_args(hint) and value.lower() in ("none", "auto"):
        return None
    for kind in options:
        try:
            return _parse(kind, value)
        except ValueError:
            continue
    wanted = " or ".join(getattr(k, "__name__", str(k)) for k in options)
    raise InputError(f"{name}: {key} is '{value}'; expected {wanted}")


def _hint_of(default: Any) -> Any:
    """A stranger's parameter may have no type; then it is that of its default, and text where there is none."""
    return type(default) if isinstance(default, bool | int | float) else str


_WORDS = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}


def _parse(kind: Any, text: str) -> Any:
    if kind is bool:
        if text.lower() not in _WORDS:
            raise ValueError(text)
        return _WORDS[text.lower()]
    value = kind(text)
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(text)
    return value
