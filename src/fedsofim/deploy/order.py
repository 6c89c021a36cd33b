"""A job as the coordinator orders it: what is to be trained, and how the job is conducted. Typed here and nowhere else.

It travels to the server process as Flower's run-config, a flat table of plain values whose keys the app's
pyproject.toml must list. `to_config` writes it and `from_config` reads it, for everybody.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from fedsofim.core.budget import WITHOUT, Budget, budget_of, stated
from fedsofim.core.evaluation import Evaluation
from fedsofim.core.models import HEAD
from fedsofim.core.plan import Trust, Weights
from fedsofim.core.preparation import check_share
from fedsofim.errors import InputError, expect_whole, is_number, is_whole, one_of, unknown
from fedsofim.extensions import is_file
from fedsofim.protection import Unit, check_unit
from fedsofim.recipes import names as recipes
from fedsofim.settings import parse_pairs

Value = bool | float | int | str


def described(default: Any, help: str, **how: Any) -> Any:
    """A field and what a command line shows of it: cli/options.py makes an option of it, unless it is `hidden`."""
    return field(default=default, metadata={"help": help, **how})


def _pairs(given: list[str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(parse_pairs(given or []).items()))


def _epsilon(text: str) -> float | str:
    return stated(budget_of(text, 0.5).epsilon)


_AS_IS = "left out: as the recipe has it"
PAIRS = ("settings", "model_settings")  # fields of an order that are names with values


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the coordinator wants trained. What is None is left to the recipe, which knows the clients' sizes.

    A method named here runs in the recipe's preparation, with its own settings unless it is the recipe's own.
    """

    recipe: str = described("auto", "auto: what is recommended, nothing to tune; paper: the paper's protocol")
    method: str | None = described(None, f"what is installed on every node, see `fedsofim methods`; {_AS_IS}", kind=str)
    settings: tuple[tuple[str, str], ...] = described(
        (), "a parameter of the method, name=value", flag="--set", typed=list[str] | None, shown=None, read=_pairs
    )
    model: str = described(HEAD, "what is trained: a model that every node has installed and allows, as mlp")
    model_settings: tuple[tuple[str, str], ...] = described(
        (),
        "a parameter of the model, as hidden=64,64",
        flag="--set-model",
        typed=list[str] | None,
        shown=None,
        read=_pairs,
    )
    epsilon: float | str = described(
        1.0, f"budget for the whole job; {WITHOUT}: no noise, for a rehearsal", typed=str, shown="1.0", read=_epsilon
    )
    delta: float = described(1e-5, "delta of the budget")
    budgets: str = described("", "from-nodes: each node spends what its policy still allows, and at most --epsilon")
    rounds: int | None = described(None, f"rounds of the job; {_AS_IS}", kind=int)
    clip: float | None = described(None, f"largest norm of a record's gradient; {_AS_IS}", kind=float)
    clients: int = described(3, "nodes that take part")
    min_clients: int | None = described(
        None, "go on in rounds where at least so many answer; left out: every round needs all of them", kind=int
    )
    weights: Weights | None = described(
        None, f"uniform, size, or quiet (the least noise); {_AS_IS}", typed=str | None, kind=str
    )
    trust: Trust = described("local", "local, or secure-sum: masked uploads that share the noise", typed=str)
    unit: Unit = described(
        "record", "whom epsilon protects: record, person, client (under secure-sum); as every node's policy", typed=str
    )
    records_per_person: int | None = described(
        None, "of a person (or client) with more records the first so many count; public", kind=int
    )
    standardize: float = described(
        0.0, "share of the budget for feature moments, instead of the recipe's preparation", flag="--standardize-share"
    )
    evaluate: str = described("", "private: nodes count right answers, with noise, out of the same budget")
    evaluate_every: int = described(0, "rounds between two such counts; 0: one, at the end")
    evaluate_share: float = described(0.05, "part of the budget for all of them")
    seed: int = described(0, "of the initial parameters")

    @property
    def from_nodes(self) -> bool:
        """Is each node's policy its budget?"""
        return self.budgets == "from-nodes"

    @property
    def privately(self) -> bool:
        """Are right answers counted at the nodes?"""
        return self.evaluate == "private"

    def evaluation(self, rounds: int) -> Evaluation | None:
        """The counts of a job of so many rounds: after every so many, and after the last."""
        if not self.privately:
            return None
        return Evaluation(times=math.ceil(rounds / (self.evaluate_every or rounds)), share=self.evaluate_share)

    def __post_init__(self) -> None:
        one_of("evaluate", self.evaluate, ("", "private"))
        expect_whole("evaluate-every", self.evaluate_every, 0)
        if self.privately:
            check_share(self.evaluate_share)
        _check_whom(self.unit, self.records_per_person)
        one_of("recipe", self.recipe, recipes())
        one_of("trust", self.trust, get_args(Trust))
        if self.weights is not None:
            one_of("weights", self.weights, get_args(Weights))
        self._check_budgets()
        for kind, name in (("method", self.method), ("model", self.model)):
            if name is not None and is_file(name):
                raise InputError(
                    f"the {kind} {name} is a file, and nodes run only what is installed there; package it with an "
                    f"entry point in the group fedsofim.{kind}s, install the package on every node, and give its name"
                )

    def _check_budgets(self) -> None:
        one_of("budgets", self.budgets, ("", "from-nodes"))
        if self.from_nodes and not self.budget.private:
            raise InputError(f"budgets from-nodes and epsilon {WITHOUT} contradict each other; give one of them")
        if self.trust == "secure-sum" and (self.from_nodes or self.weights == "quiet"):
            raise InputError(
                "under secure sum nodes derive one shared noise from sizes and uniform or size weights, and price it "
                "by their own policies; budgets from-nodes and weights quiet need trust local"
            )

    @property
    def budget(self) -> Budget:
        return budget_of(self.epsilon, self.delta)

    @property
    def places(self) -> int | None:
        """Of each unit's records (core/unit.py)."""
        return None if self.unit == "record" else self.records_per_person

    @property
    def min_sum(self) -> int | None:
        """With how many clients a secure sum must have all its noise; None: with all, or there is none."""
        return self.min_clients if self.trust == "secure-sum" else None


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How a job is conducted. Nothing here changes what a job plans to release; a retry releases a sum once more."""

    test: str = described("", "public test data of the coordinator; a table is read by --schema")
    schema: str = described("", "what the nodes' columns mean: nodes with others are named before anything is spent")
    folder: str = described("", "where checkpoint and certificate are kept", hidden=True)
    statements: str = described("", "where each node's last signed statement is kept", hidden=True)
    resume: bool = described(False, "go on from the job's checkpoint", flag="--resume")
    ask_first: bool = described(True, "would every node allow the whole job?", hidden=True)
    retries: int = described(
        3, "of a secure sum that came out false, over the whole job; each is charged at every node that is asked"
    )
    nodes: str = described(
        "", "names of the nodes that take part, with commas; they set --clients. Left out: those that connect"
    )
    attempts: int = described(3, "to get a round whole", hidden=True)
    patience: float = described(120.0, "seconds to wait for nodes")
    timeout: float = described(600.0, "seconds to wait for an answer", hidden=True)

    @property
    def named(self) -> tuple[str, ...]:
        """The nodes that the order names, if it does."""
        return tuple(name.strip() for name in self.nodes.split(",") if name.strip())

    def __post_init__(self) -> None:
        expect_whole("retries", self.retries, 0)
        if len(set(self.named)) != len(self.named):
            raise InputError(f"nodes is {self.nodes!r}; expected each name once")


def for_named(order: Order, conduct: Conduct) -> Order:
    """The order for as many clients as nodes are named."""
    return replace(order, clients=len(conduct.named)) if conduct.named else order


def _check_whom(unit: str, most: int | None) -> None:
    check_unit(unit)
    if (most is None) != (unit == "record"):
        raise InputError(
            f"unit is {unit} and records-per-person is {most}; expected how many records of a person or client count, "
            "which is public, and nothing where each record is protected by itself"
        )
    if most is not None:
        expect_whole("records-per-person", most, 1)


def to_config(order: Order, conduct: Conduct) -> dict[str, Value]:
    """The run-config of a job; what is left to the recipe is written "", which no such field has otherwise.

    >>> config = to_config(Order(settings=(("lr", "0.1"), ("rho", "0.3"))), Conduct())
    >>> config["settings"], config["ask-first"], config["rounds"]
    ('lr=0.1 rho=0.3', True, '')
    """
    found = {_key(f.name): getattr(part, f.name) for part in (order, conduct) for f in fields(part)}
    found = {key: "" if value is None else value for key, value in found.items()}
    return found | {_key(name): " ".join(f"{k}={v}" for k, v in getattr(order, name)) for name in PAIRS}


def from_config(config: Mapping[str, Any]) -> tuple[Order, Conduct]:
    """The job in a run-config; what it does not mention has its default."""
    known = to_config(Order(), Conduct())
    for key in set(config) - set(known):
        raise unknown("setting of a run", key, known)
    kinds = {key: type(value) for key, value in known.items()} | _left_to_the_recipe()
    values: dict[str, Any] = {key: _checked(key, value, kinds[key]) for key, value in config.items()}
    values |= {_key(name): _pairs(values.get(_key(name), "").split()) for name in PAIRS}
    return Order(**_part(Order, values)), Conduct(**_part(Conduct, values))


def _left_to_the_recipe() -> dict[str, type]:
    """The settings that may be left out, and what they are where they are not."""
    return {_key(f.name): f.metadata["kind"] for f in fields(Order) if "kind" in f.metadata}


def _key(name: str) -> str:
    return name.replace("_", "-")


def _part(kind: type[Order] | type[Conduct], values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[_key(f.name)] for f in fields(kind) if _key(f.name) in values}


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _checked(key: str, value: Any, kind: type) -> Value | None:
    """A value of the kind its default has, None for what is left to the recipe; 1 is a number as good as 1.0."""
    if key == "epsilon" and value == WITHOUT:
        return WITHOUT
    if value == "" and key in _left_to_the_recipe():
        return None
    right = {bool: isinstance(value, bool), int: is_whole(value), float: is_number(value), str: isinstance(value, str)}
    if not right[kind]:
        raise InputError(f"{key} is {value!r}; expected {_KINDS[kind]}")
    return kind(value)
