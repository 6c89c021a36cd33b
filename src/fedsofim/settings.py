"""Settings of a factory by their names: what its keyword parameters declare, and text read in their types.

Methods and models are made this way, from the command line, from an experiment's file, and from a saved model.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedsofim.errors import InputError, shown, unknown

_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_WORDS = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}


def parse_pairs(pairs: Iterable[str], option: str = "--set", example: str = "lr=0.1") -> dict[str, str]:
    """['lr=0.1'] -> {'lr': '0.1'}.

    >>> parse_pairs(["lr=0.1", "direction=gradient"])
    {'lr': '0.1', 'direction': 'gradient'}
    """
    out = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise InputError(f"{option} {pair}: expected name=value, for example {option} {example}")
        out[name.strip()] = value.strip()
    return out


def check_mapping(name: str, settings: Any, example: str = "{'lr': 0.1}") -> None:
    if not isinstance(settings, Mapping):
        raise InputError(
            f"{name}: the settings are {shown(settings)}; expected names with values, for example {example}"
        )


def parameters_of(build: Callable) -> dict[str, Any]:
    """What may be set, with the defaults."""
    return {k: p.default for k, p in inspect.signature(build).parameters.items()}


def check_complete(name: str, build: Callable, values: Mapping[str, Any], option: str = "--set") -> None:
    """What has no default must be given."""
    needed = [
        k for k, p in inspect.signature(build).parameters.items() if p.default is p.empty and p.kind not in _STARS
    ]
    if missing := [k for k in needed if k not in values]:
        raise InputError(f"{name} needs {', '.join(missing)}; set {missing[0]} ({option} {missing[0]}=VALUE)")


def value_of(name: str, build: Callable, key: str, value: Any, also: Iterable[str] = ()) -> Any:
    """A setting in the type its parameter declares; `also` are names that are known beside the parameters."""
    known = parameters_of(build)
    if key not in known:
        raise unknown(f"parameter of {name}", key, [*known, *also])
    hint = get_type_hints(build).get(key) or _hint_of(inspect.signature(build).parameters[key].default)
    if isinstance(value, list):
        return tuple(value)  # TOML and JSON have no tuples
    if not isinstance(value, str):
        return value
    if type(None) in get_args(hint) and value.lower() in ("none", "auto"):
        return None
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise unknown(f"value of {key}", value, get_args(hint))
        return value
    options = [a for a in get_args(hint) if a is not type(None)] if get_origin(hint) is not tuple else [hint]
    for kind in options or [hint]:
        try:
            return _parse(kind, value)
        except ValueError:
            continue
    raise InputError(f"{name}: {key} is '{value}'; expected {' or '.join(map(_told, options or [hint]))}")


def _hint_of(default: Any) -> Any:
    """A stranger's parameter may have no type; then it is that of its default, and text where there is none."""
    return type(default) if isinstance(default, bool | int | float) else str


def _parse(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_parse(get_args(kind)[0], part) for part in text.split(","))
    if kind is bool:
        if text.lower() not in _WORDS:
            raise ValueError(text)
        return _WORDS[text.lower()]
    value = kind(text)
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(text)
    return value


def _told(kind: Any) -> str:
    """A type in words.

    >>> _told(float), _told(tuple[int, ...])
    ('float', 'int,int,...')
    """
    if get_origin(kind) is tuple:
        return ",".join([_told(get_args(kind)[0])] * 2 + ["..."])
    return getattr(kind, "__name__", str(kind))
