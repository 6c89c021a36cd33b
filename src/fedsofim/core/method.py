"""What an algorithm is: pure functions of a door and of what came out of it.

Most are one line: the client releases one gradient, the server is an optax optimizer (`server_method`).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec

import jax
import optax

from fedsofim.core.door import Door, Facts
from fedsofim.core.isolation import call_apart
from fedsofim.core.mechanisms import Independent, Mechanism
from fedsofim.errors import shown


class Setup(NamedTuple):
    """A one-shot release before round 1: client(door, params) -> upload; server(mean, state) -> state."""

    client: Callable[[Door, Any], Any]
    server: Callable[[Any, Any], Any]

    def __repr__(self) -> str:
        return "<Setup>"


def _nothing(params: Any) -> tuple[()]:
    return ()


class Method(NamedTuple):
    """An algorithm as pure functions. It never sees a record: the client has a door, the server what came out.

    client(door, params, state, memory) -> (upload, memory): runs at every client; `state` is the server's.
    server(mean, state, params, facts) -> (params, state): `mean` is the weighted mean of the uploads.
    init(params) -> state; memory(params) -> what a client keeps between rounds; setup: one-shot releases.
    """

    name: str
    client: Callable[[Door, Any, Any, Any], tuple[Any, Any]]
    server: Callable[[Any, Any, Any, Facts], tuple[Any, Any]]
    init: Callable[[Any], Any] = _nothing
    memory: Callable[[Any], Any] = _nothing
    setup: Setup | None = None
    note: str = ""  # what a reader of results must know, e.g. that a preset is not private as claimed
    settings: tuple[tuple[str, Any], ...] = ()  # what it was made with, for the record

    def __repr__(self) -> str:
        """The name alone: functions and settings may hold anything."""
        return f"<Method {shown(self.name)}>"

    def __hash__(self) -> int:
        """Of all its parts, which may be of somebody's own classes: asked where no record is in reach."""
        return call_apart(tuple.__hash__, self)

    def __eq__(self, other: Any) -> bool:
        """Are all parts equal? Asked where no record is in reach."""
        return self is other or (type(other) is Method and call_apart(tuple.__eq__, self, other))

    def __ne__(self, other: Any) -> bool:
        """The opposite; a tuple has one of its own."""
        return not self == other


P = ParamSpec("P")


def remembered(factory: Callable[P, Method]) -> Callable[P, Method]:
    """A factory that gives the same Method for equal settings, so that its runs share one compiled program."""

    @lru_cache(maxsize=64, typed=True)
    def kept(*args: P.args, **kwargs: P.kwargs) -> Method:
        return with_settings(factory(*args, **kwargs), factory, *args, **kwargs)

    @wraps(factory)
    def build(*args: P.args, **kwargs: P.kwargs) -> Method:
        try:
            return kept(*args, **kwargs)
        except TypeError:  # a setting that cannot be compared: a sweep's traced number
            return factory(*args, **kwargs)

    return build


def with_settings(method: Method, factory: Callable[..., Method], *args: Any, **kwargs: Any) -> Method:
    """A method that knows what its factory was called with, defaults included."""
    bound = inspect.signature(factory).bind(*args, **kwargs)
    bound.apply_defaults()
    return method._replace(settings=tuple(bound.arguments.items()))


@dataclass(frozen=True)
class OneGradient:
    """The client of every one-step method: g_i = (S_i + noise)/|D_i|.

    Where every client is one of these, all can be asked in one call: pooled.py.
    """

    noise: Mechanism | Callable[[Facts], Mechanism] = Independent()  # or made from the run's public numbers
    sample: float | None = None  # None: the run's batch rate

    def __repr__(self) -> str:
        return "OneGradient()"

    def mechanism(self, facts: Facts) -> Mechanism:
        return self.noise(facts) if callable(self.noise) else self.noise

    def __call__(self, door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        total = door.gradient(params, noise=self.mechanism(door.facts), sample=self.sample)
        count = door.batch if self.sample is None else self.sample * door.size
        return jax.tree.map(lambda s: s / count, total), memory


def server_method(
    name: str,
    optimizer: optax.GradientTransformation | Callable[[Facts], optax.GradientTransformation],
    client: Callable = OneGradient(),
    note: str = "",
) -> Method:
    """A one-step method whose server is an optax optimizer (or one made from the run's public facts).

    >>> server_method("fedgd", optax.sgd(0.1)).name
    'fedgd'
    """

    def build(facts: Facts) -> optax.GradientTransformation:
        return optimizer if isinstance(optimizer, optax.GradientTransformation) else optimizer(facts)

    def server(mean: Any, state: Any, params: Any, facts: Facts) -> tuple[Any, Any]:
        updates, state = build(facts).update(mean, state, params)
        return optax.apply_updates(params, updates), state

    return Method(name, client, server, init=build(Facts(1, 1, 1.0, 0.0)).init, note=note)
