"""The models by name. A module here with a function of its own name is a model: adding one is one file.

A factory's keyword parameters with their defaults are what `--set-model name=value` may set. A model of one's own needs
no edit here: it is a file, `make("./two_layers.py")`, or comes with an installed package (extensions.py). Modules of
flax, equinox and Keras become models by `adapters/`; `parts.py` trains a part of any model.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from fedsofim import extensions
from fedsofim.core.isolation import call_apart
from fedsofim.core.models import HEAD, Model
from fedsofim.errors import InputError, shown, unknown
from fedsofim.settings import check_complete, check_mapping, parameters_of, value_of

#: The models in this folder.
OWN = ("cnn", "linear", "mlp")
_FORMERLY = {"softmax_head": HEAD}


def names() -> list[str]:
    """Every model known by name: those in this folder, then those of installed packages.

    >>> names()[:3]
    ['cnn', 'linear', 'mlp']
    """
    own = _own()
    return [*own, *sorted(set(extensions.installed("model")) - set(own) - set(_FORMERLY))]


@lru_cache(maxsize=1)
def _own() -> dict[str, Callable[..., Model]]:
    """The factories of this folder."""
    found = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_") and not m.ispkg)
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in found}
    return {name: getattr(module, name) for name, module in modules.items() if hasattr(module, name)}


def spelled(name: Any) -> Any:
    """A model's name as it is spelled here; the head's former name still is one.

    >>> spelled("softmax_head"), spelled("MLP"), spelled("./Mine.py")
    ('linear', 'mlp', './Mine.py')
    """
    if not isinstance(name, str) or extensions.is_file(name) or name in extensions.installed("model"):
        return _FORMERLY.get(name, name)
    return _FORMERLY.get(name, name.lower() if name.lower() in _own() else name)


def is_head(name: Any, settings: Mapping[str, Any] | None = None) -> bool:
    """Does a name mean the linear model with nothing set: the one whose start a recipe chooses?"""
    return spelled(name) == HEAD and not settings


def unless_head(name: Any, settings: Mapping[str, Any] | None = None) -> Model | None:
    """The model, or None for the linear one with nothing set: so a recipe is left to choose its start."""
    return None if is_head(name, settings) else make(name, settings)


def factory(name: str) -> Callable[..., Model]:
    """The function that makes a model, by its name or file."""
    if not isinstance(name, str):
        raise InputError(f"the model's name is {shown(name)}; expected text, for example 'mlp' or './mine.py'")
    if (own := _own().get(spelled(name))) is not None:
        return own
    if extensions.is_file(name):
        return call_apart(extensions.from_file, "model", name)[0]
    if name not in extensions.installed("model"):
        raise unknown("model", name, names())
    return call_apart(extensions.from_package, "model", name)[0]


def make(name: str, settings: Mapping[str, Any] | None = None) -> Model:
    """A model by name or file, with settings: values, or their text.

    >>> make("mlp", {"hidden": "32,16"}).settings
    (('hidden', (32, 16)), ('activation', 'tanh'))
    """
    build, values = factory(name), resolve(name, settings)
    if spelled(name) in _own():
        return build(**values)
    return _strangers(name, build, tuple(values.items()))


def resolve(name: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Settings as the factory takes them: text parsed.

    >>> resolve("cnn", {"channels": "8", "kernel": "3"})
    {'channels': (8,), 'kernel': 3}
    """
    build = factory(name)
    check_mapping(name, settings or {}, "{'hidden': (64, 64)}")
    values = {key: value_of(name, build, key, value) for key, value in (settings or {}).items()}
    check_complete(name, build, values, "--set-model")
    return values


def parameters(name: str) -> dict[str, Any]:
    """A model's parameters with their defaults."""
    return parameters_of(factory(name))


@lru_cache(maxsize=64)  # one object per function and settings, so that compiled runs are shared; a changed file is new
def _strangers(name: str, build: Callable[..., Model], settings: tuple[tuple[str, Any], ...]) -> Model:
    made = call_apart(extensions.called, "model", name, build, Model, dict(settings))
    return made if made.name else made._replace(name=name, settings=settings)
