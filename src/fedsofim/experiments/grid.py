"""An experiment as frozen data: methods x budgets x seeds x datasets x partitions, read from a few lines of TOML.

Nothing is run here. `points` lists every run of the grid, in the order in which compiled programs are shared.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args, get_type_hints

from fedsofim import methods, models, recipes
from fedsofim.core.budget import NO_PRIVACY, Budget, stated
from fedsofim.core.budgets import AnyBudget, read_epsilons
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.models import HEAD
from fedsofim.core.plan import Trust, Weights
from fedsofim.core.preparation import Step
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, by_owner, split
from fedsofim.errors import InputError, expect_whole, is_number, one_of, shown
from fedsofim.experiments.identities import method_identity, model_identity
from fedsofim.experiments.reading import AS_IT_IS, Reading, digest
from fedsofim.experiments.whom import EVERY_RECORD, Whom, labelled

KINDS = ("dirichlet", "iid", "owner")


@dataclass(frozen=True)
class Partition:
    """How the records are dealt out; `owner` keeps the layout a federation came with."""

    kind: str = "dirichlet"
    clients: int = 20
    alpha: float = 0.5
    seed: int = 42

    def __post_init__(self) -> None:
        one_of("partition", self.kind, KINDS)
        expect_whole("clients", self.clients, 1)
        expect_whole("seed", self.seed, 0)
        if not is_number(self.alpha):
            raise InputError(f"alpha is {shown(self.alpha)}; expected a number above 0")

    @property
    def label(self) -> str:
        """The name it has in tables, where no other has the same (`labels_of`).

        >>> Partition().label, Partition("iid").label
        ('dirichlet(0.5)', 'iid')
        """
        return f"dirichlet({self.alpha:g})" if self.kind == "dirichlet" else self.kind

    @property
    def full_label(self) -> str:
        """With all that tells two partitions apart."""
        return self.label if self.kind == "owner" else f"{self.label}, {self.clients} clients, seed {self.seed}"

    def deal(self, data: Dataset) -> Split:
        if self.kind == "owner":
            return by_owner(data)
        if self.kind == "iid":
            return split(data, self.clients, seed=self.seed, iid=True)
        return split(data, self.clients, self.alpha, self.seed, iid=False)


def labels_of(partitions: Sequence[Partition]) -> dict[Partition, str]:
    """Short names where they tell all apart, full ones where they do not.

    >>> list(labels_of([Partition("iid", 5), Partition("iid", 9)]).values())
    ['iid, 5 clients, seed 42', 'iid, 9 clients, seed 42']
    """
    short = [p.label for p in partitions]
    return {p: p.label if short.count(p.label) == 1 else p.full_label for p in partitions}


@dataclass(frozen=True)
class Standardize:
    """A preparation by hand: `none`, or feature moments by a share of the budget."""

    share: float = 0.0  # 0: nothing is done to the features
    radius: float = 10.0

    def __post_init__(self) -> None:
        self.steps()

    def steps(self) -> tuple[Step, ...]:
        return (FeatureMoments(self.share, self.radius),) if self.share else ()


@dataclass(frozen=True)
class Entry:
    """One line of a comparison: a method under a label, with settings for all budgets and for single ones."""

    label: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    by_epsilon: dict[float, dict[str, Any]] = field(default_factory=dict)
    recipe: str | None = None  # None: the experiment's
    weights: Weights | None = None  # None: the experiment's
    epsilons: str = ""  # of each client in turn, as core/budgets.py reads them; empty: the grid's epsilon for all

    def at(self, epsilon: float) -> dict[str, Any]:
        """The settings under one budget.

        >>> Entry("a", "fedgd", {"lr": 1.0}, {5.0: {"lr": 2.0}}).at(5.0)
        {'lr': 2.0}
        """
        return {**self.settings, **self.by_epsilon.get(float(epsilon), {})}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A whole grid, validated. NO_PRIVACY's epsilon, which is infinite, is a run without noise, for upper bounds."""

    name: str
    datasets: tuple[str, ...]
    entries: tuple[Entry, ...]
    epsilons: tuple[float, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    partitions: tuple[Partition, ...] = (Partition(),)
    delta: float = 1e-5
    recipe: str = "paper"  # an experiment means the paper's protocol unless it names another
    rounds: int | None = None  # None, here and below: as the recipe has it
    clip: float | None = None
    trust: Trust = "local"
    weights: Weights | None = None
    model: str = HEAD  # by name or file
    model_settings: dict[str, Any] = field(default_factory=dict)
    about: str = ""
    reading: Reading = AS_IT_IS
    standardize: Standardize | None = None  # None: as the recipe has it
    whoms: tuple[Whom, ...] = (EVERY_RECORD,)

    def __post_init__(self) -> None:
        for what in ("datasets", "entries", "epsilons", "seeds"):
            _distinct(self.name, what, [getattr(v, "label", v) for v in getattr(self, what)])
        _distinct(self.name, "partitions", [p.full_label for p in self.partitions])
        for epsilon in self.epsilons:
            budget_at(epsilon, self.delta)
        if self.rounds is not None:
            expect_whole(f"{self.name}: rounds", self.rounds, 1)
        one_of("trust", self.trust, get_args(Trust))
        if self.weights is not None:
            one_of("weights", self.weights, get_args(Weights))
        for entry in self.entries:
            one_of("recipe", entry.recipe or self.recipe, recipes.names())
            if entry.weights is not None:
                one_of("weights", entry.weights, get_args(Weights))
        models.make(self.model, self.model_settings)
        for entry, epsilon in itertools.product(self.entries, self.epsilons):
            methods.make(entry.method, entry.at(epsilon), epsilon)  # a wrong setting fails now

    def plain(self) -> dict[str, Any]:
        """The grid as plain data, for files."""
        return asdict(self) | {"epsilons": [stated(e) for e in self.epsilons]}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of the grid: everything that determines its result, the dataset's content by digest."""

    dataset: str
    digest: str
    partition: Partition
    label: str
    method: str
    settings: dict[str, Any]
    epsilon: float
    delta: float
    seed: int
    recipe: str
    rounds: int | None  # None, here and below: as the recipe has it
    clip: float | None
    trust: Trust
    weights: Weights | None
    model: str
    standardize: Standardize | None = None
    place: str = ""  # the partition's name in tables
    model_settings: dict[str, Any] = field(default_factory=dict)
    epsilons: str = ""  # of each client, where they are unequal; `epsilon` is then that of the rest
    whom: Whom = EVERY_RECORD

    def deal(self, data: Dataset) -> Split:
        """The records at their clients, with the unit that is protected."""
        return self.whom.protecting(self.partition.deal(data))

    @property
    def id(self) -> str:
        """Equal for equal runs, so that finished work is recognised; a file counts by what it holds.

        What was added later counts only where it is used, so that older rows keep their ids.
        """
        code = {"method": method_identity(self.method), "model": model_identity(self.model, self.model_settings)}
        later = {"standardize": None, "model_settings": {}, "epsilons": "", "whom": EVERY_RECORD.plain()}
        whole = self.plain() | {"whom": self.whom.plain()}
        plain = {k: v for k, v in whole.items() if k != "place" and (k not in later or v != later[k])}
        return hashlib.sha256(json.dumps(plain | code, sort_keys=True).encode()).hexdigest()[:16]

    def budget_for(self, split: Split) -> AnyBudget:
        """The budget of all clients of a split, or of each."""
        common = budget_at(self.epsilon, self.delta)
        if not self.epsilons:
            return common
        return read_epsilons(self.epsilons, stated(common.epsilon), self.delta, len(split.parts))

    def plain(self) -> dict[str, Any]:
        """The run as plain data, for files."""
        return asdict(self) | {"epsilon": stated(self.epsilon)}


def points(experiment: Experiment, data: dict[str, Dataset], digests: Mapping[str, str] | None = None) -> list[Point]:
    """Every run, with seeds innermost and budgets of equal settings together: they share one compiled program.

    `digests` of the datasets go into what is written down (record_digests.py); without them, bare ones are made.
    """
    digests = {name: digest(found) for name, found in data.items()} if digests is None else digests
    e, out, places = experiment, [], labels_of(experiment.partitions)
    for dataset, partition, whom, entry in itertools.product(e.datasets, e.partitions, e.whoms, e.entries):
        settings = {epsilon: resolved(entry, epsilon) for epsilon in e.epsilons}
        order = sorted(e.epsilons, key=lambda epsilon: _first_equal(settings, epsilon))
        for epsilon, seed in itertools.product(order, e.seeds):
            out.append(
                Point(
                    dataset=data[dataset].name,
                    digest=digests[dataset],
                    partition=partition,
                    label=labelled(entry.label, whom),
                    method=entry.method,
                    settings=settings[epsilon],
                    epsilon=epsilon,
                    delta=e.delta,
                    seed=seed,
                    recipe=entry.recipe or e.recipe,
                    rounds=e.rounds,
                    clip=e.clip,
                    trust=e.trust,
                    weights=entry.weights or e.weights,
                    epsilons=entry.epsilons,
                    model=e.model,
                    model_settings=e.model_settings,
                    standardize=e.standardize,
                    place=places[partition],
                    whom=whom,
                )
            )
    return out


def resolved(entry: Entry, epsilon: float) -> dict[str, Any]:
    """An entry's settings under a budget, its preset written out."""
    settings = methods.resolve(entry.method, entry.at(epsilon), epsilon)
    kinds = get_type_hints(methods.factory(entry.method))  # TOML writes 1 where 1.0 is meant

    def real(k: str) -> bool:
        return k in kinds and float in (kinds[k], *get_args(kinds[k]))

    return {k: float(v) if type(v) is int and real(k) else v for k, v in settings.items()}


def _first_equal(settings: dict[float, dict[str, Any]], epsilon: float) -> int:
    values = list(settings.values())
    return values.index(settings[epsilon])


def budget_at(epsilon: float, delta: float) -> Budget:
    """The budget of a grid's epsilon."""
    return NO_PRIVACY if epsilon == math.inf else Budget(epsilon, delta)


def _distinct(name: str, what: str, labels: Sequence[Any]) -> None:
    if not labels:
        raise InputError(f"{name}: no {what}; list at least one")
    twice = sorted({str(v) for v in labels if labels.count(v) > 1})
    if twice:
        raise InputError(f"{name}: {what} lists {', '.join(twice)} more than once; list each once")
