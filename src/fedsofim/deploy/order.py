"""A job as the coordinator orders it: what is to be trained, and how the job is conducted. Typed here and nowhere else.

It travels to the server process as Flower's run-config, a flat table of plain values whose keys the app's
pyproject.toml must list. `to_config` writes it and `from_config` reads it, for everybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from fedsofim.core.budget import WITHOUT, Budget, budget_of, stated
from fedsofim.core.plan import Trust, Weights
from fedsofim.errors import InputError, is_number, is_whole, one_of, unknown
from fedsofim.extensions import is_file
from fedsofim.methods import parse_settings

Value = bool | float | int | str


def described(default: Any, help: str, **how: Any) -> Any:
    """A field and what a command line shows of it: cli/options.py makes an option of it, unless it is `hidden`."""
    return field(default=default, metadata={"help": help, **how})


def _pairs(given: list[str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(parse_settings(given or []).items()))


def _epsilon(text: str) -> float | str:
    return stated(budget_of(text, 0.5).epsilon)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the coordinator wants trained."""

    method: str = described("fedsofim", "see `fedsofim methods`; what is installed on every node")
    settings: tuple[tuple[str, str], ...] = described(
        (), "a parameter of the method, name=value", flag="--set", typed=list[str] | None, shown=None, read=_pairs
    )
    epsilon: float | str = described(
        1.0, f"budget for the whole job; {WITHOUT}: no noise, for a rehearsal", typed=str, shown="1.0", read=_epsilon
    )
    delta: float = described(1e-5, "delta of the budget")
    rounds: int = described(70, "rounds of the job")
    clip: float = described(10.0, "largest norm of a record's gradient")
    clients: int = described(3, "nodes that take part: every round needs all of them")
    weights: Weights = described("uniform", "uniform, or size", typed=str)
    trust: Trust = described("local", "local, or secure-sum: masked uploads that share the noise", typed=str)
    standardize: float = described(0.0, "share of the budget for feature moments; 0: none", flag="--standardize-share")
    seed: int = described(0, "of the initial parameters")

    def __post_init__(self) -> None:
        one_of("weights", self.weights, get_args(Weights))
        one_of("trust", self.trust, get_args(Trust))
        if is_file(self.method):
            raise InputError(
                f"the method {self.method} is a file, and nodes run only what is installed there; package it with an "
                "entry point in the group fedsofim.methods, install the package on every node, and give its name"
            )

    @property
    def budget(self) -> Budget:
        return budget_of(self.epsilon, self.delta)


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How a job is conducted; nothing here changes what is released."""

    test: str = described("", "public test data of the coordinator")
    folder: str = described("", "where checkpoint and certificate are kept", hidden=True)
    resume: bool = described(False, "go on from the job's checkpoint", flag="--resume")
    ask_first: bool = described(True, "would every node allow the whole job?", hidden=True)
    attempts: int = described(3, "to get a round whole", hidden=True)
    patience: float = described(120.0, "seconds to wait for nodes")
    timeout: float = described(600.0, "seconds to wait for an answer", hidden=True)


def to_config(order: Order, conduct: Conduct) -> dict[str, Value]:
    """The run-config of a job.

    >>> config = to_config(Order(settings=(("lr", "0.1"), ("rho", "0.3"))), Conduct())
    >>> config["settings"], config["ask-first"]
    ('lr=0.1 rho=0.3', True)
    """
    found = {_key(f.name): getattr(part, f.name) for part in (order, conduct) for f in fields(part)}
    return found | {"settings": " ".join(f"{name}={value}" for name, value in order.settings)}


def from_config(config: Mapping[str, Any]) -> tuple[Order, Conduct]:
    """The job in a run-config; what it does not mention has its default."""
    known = to_config(Order(), Conduct())
    for key in set(config) - set(known):
        raise unknown("setting of a run", key, known)
    values: dict[str, Any] = {key: _checked(key, value, type(known[key])) for key, value in config.items()}
    values["settings"] = _pairs(values.get("settings", "").split())
    return Order(**_part(Order, values)), Conduct(**_part(Conduct, values))


def _key(name: str) -> str:
    return name.replace("_", "-")


def _part(kind: type[Order] | type[Conduct], values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[_key(f.name)] for f in fields(kind) if _key(f.name) in values}


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _checked(key: str, value: Any, kind: type) -> Value:
    """A value of the kind its default has; 1 is a number as good as 1.0."""
    if key == "epsilon" and value == WITHOUT:
        return WITHOUT
    right = {bool: isinstance(value, bool), int: is_whole(value), float: is_number(value), str: isinstance(value, str)}
    if not right[kind]:
        raise InputError(f"{key} is {value!r}; expected {_KINDS[kind]}")
    return kind(value)
