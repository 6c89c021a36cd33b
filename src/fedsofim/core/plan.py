"""What a run will release and cost, known before any record is read.

`make_plan` reads the method's programs, prices them under the chosen trust and weights, and calibrates the noise.
Everything printed about privacy comes from here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsofim.core import accounting, plan_checks
from fedsofim.core.accounting import Charge
from fedsofim.core.audit import Program
from fedsofim.core.budgets import AnyBudget, each_of, simplest
from fedsofim.core.door import Facts
from fedsofim.core.each_client import calibrated, check_stds, hidden_by, louder, mu_of_each, spent_by_each
from fedsofim.core.evaluation import Evaluation
from fedsofim.core.group import epsilon_for_group
from fedsofim.core.method import Method
from fedsofim.core.models import Model, is_linear
from fedsofim.core.participation import attendance_of, groups_of_clients, largest_group, members
from fedsofim.core.phase import Phase
from fedsofim.core.plan_checks import Trust, check_noise, check_run, check_trust, check_units
from fedsofim.core.pooled import can_pool, noise_gain
from fedsofim.core.preparation import Step, units_of
from fedsofim.core.programs import Public, check_preparation, made_by_all, read_programs, shape_after
from fedsofim.core.records import block_shape
from fedsofim.core.sealed import sealed_method, sealed_model
from fedsofim.core.site import MAX_SITES
from fedsofim.core.weights import Weights, weights_of
from fedsofim.protection import Unit
from fedsofim.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A priced run. Under NO_PRIVACY there is no noise at all, and epsilon is infinite.

    Of unequal budgets: what names no client is of the least noise, and the largest `epsilon`, `delta` and `mu` of any.
    """

    method: Method
    model: Model
    programs: Mapping[Phase, Program]  # in the order they run
    multipliers: Mapping[Any, float]  # noise std over clip, by SiteKey
    budget: AnyBudget
    rounds: int
    clip: float
    sizes: tuple[int, ...]
    shape: tuple[int, ...]  # of a record's features as the rounds see them
    classes: int  # outputs of the model
    trust: Trust
    weights: Weights
    preparation: tuple[Step, ...] = ()
    unit: Unit = "record"  # whom the epsilon protects; `sizes` count these
    participants: int | None = None  # of the clients in a round; None: all (participation.py)
    batch_rate: float = 1.0  # of the records in a gradient
    client_rate: float = 1.0  # of the clients in a round, by chance (drawn_clients.py)
    task: Task = Task()
    min_clients: int | None = None  # how many a secure sum can do with; None: it needs all of them
    each: tuple[Mapping[Any, float], ...] = ()  # multipliers of each client, where budgets are unequal

    def __post_init__(self) -> None:
        """Seal the method and the model, because a plan is used where records are."""
        object.__setattr__(self, "method", sealed_method(self.method))
        object.__setattr__(self, "model", sealed_model(self.model))

    def __repr__(self) -> str:
        """What it releases and costs, in a line."""
        return (
            f"<Plan of {self.method.name}: {self.rounds} rounds at {len(self.sizes)} clients, {self.releases} "
            f"releases, {self.budget}>"
        )

    def _repr_html_(self) -> str:
        from fedsofim.core.summary import as_html

        return as_html(self)

    @property
    def program(self) -> Program:
        """The program of the rounds."""
        return self.programs[Phase.ROUND]

    @property
    def ledger(self) -> tuple[Charge, ...]:
        """Every release site with its count and price, in the order things happen."""
        return tuple(c for p in self.programs.values() for c in p.charges)

    @property
    def releases(self) -> int:
        return sum(c.releases for c in self.ledger)

    @property
    def pooled(self) -> bool:
        """May all clients be asked in one call (pooled.py)?"""
        return can_pool(self.method)

    @property
    def delta(self) -> float:
        return self.budget.delta

    @property
    def epsilon(self) -> float:
        """What the ledger really spends, derived from its releases and their noise."""
        if self.each:
            return max(self.epsilons)
        return accounting.spent(self.ledger, self.multipliers, self.delta) if self.budget.private else math.inf

    def epsilon_for_group(self, k: int) -> float:
        """What the run says of k units at once, as of a person with at most k records that are protected one by one."""
        return epsilon_for_group(self.ledger, self.multipliers, self.delta, k) if self.budget.private else math.inf

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The same for each client, from its own noise, at its own budget's delta."""
        if not self.each:
            return (self.epsilon,) * len(self.sizes)
        return spent_by_each(self.ledger, hidden_by(self), each_of(self.budget, len(self.sizes)))

    @property
    def mu(self) -> float | None:
        """Composed mu; None where records or clients take part by chance, which has no single mu."""
        if any(c.chance < 1 for c in self.ledger):
            return None
        if self.each:
            return float(mu_of_each(self).max())
        return accounting.mu_spent(self.ledger, self.multipliers) if self.budget.private else math.inf

    def shared(self, phase: Phase) -> bool:
        """Does one noise hide a sum over clients? Not what else a method sends (its setup, steps of its own)."""
        return self.trust == "secure-sum" and (self.pooled if phase is Phase.ROUND else phase is not Phase.SETUP)

    def louder(self, phase: Phase) -> np.ndarray:
        """Each client's noise over the least of any, in what a phase releases first."""
        return louder(self, phase)

    @property
    def client_weights(self) -> np.ndarray:
        """w_i of the mean of uploads (weights.py)."""
        sizes = np.asarray(self.sizes, float)
        return weights_of(self.weights, sizes, self.louder(Phase.ROUND), self.shared(Phase.ROUND))

    @property
    def factors(self) -> np.ndarray:
        """a_i = w_i/|D_i|: what a client's sum counts in the mean of all clients."""
        return self.client_weights / np.asarray(self.sizes, float)

    @property
    def members(self) -> list[np.ndarray]:
        """The clients of each group that takes its turn in the rounds: one of all, unless fewer take part."""
        return members(groups_of_clients(self.participants, len(self.sizes)), len(self.sizes))

    @property
    def group_weights(self) -> list[np.ndarray]:
        """w_i of the mean of a group's uploads, adding up to 1 in each."""
        weights = self.client_weights
        return [weights[m] / weights[m].sum() if len(m) < len(weights) else weights for m in self.members]

    @property
    def group_factors(self) -> list[np.ndarray]:
        """a_i within each group."""
        sizes = np.asarray(self.sizes, float)
        return [w / sizes[m] for w, m in zip(self.group_weights, self.members, strict=True)]

    @property
    def group_gains(self) -> list[float]:
        """Noise std of each group's average over that on one client's sum."""
        louder, shared = self.louder(Phase.ROUND), self.shared(Phase.ROUND)
        groups = zip(self.group_factors, self.members, strict=True)
        gains = [noise_gain(factors * louder[m], shared, self.min_clients) for factors, m in groups]
        # what is to be taken back in other rounds is as large in all of them
        return [max(gains)] * len(gains) if made_by_all(self.program) else gains

    @property
    def attendance(self) -> float:
        """With which probability a client with several units takes part in a round (drawn_clients.py)."""
        return attendance_of(self.sizes, self.client_rate)

    @property
    def noise_gain(self) -> float:
        """Noise std of a round's average over that on one client's sum; of several groups, the root mean square."""
        gains = self.group_gains
        return gains[0] if len(gains) == 1 else math.sqrt(math.fsum(g * g for g in gains) / len(gains))

    def gain(self, phase: Phase) -> float:
        """The same in any phase."""
        if phase is Phase.ROUND:
            return self.noise_gain
        return noise_gain(self.factors * self.louder(phase), self.shared(phase), self.min_clients)

    def mean_std(self, phase: Phase) -> float:
        """Noise std of a coordinate of the mean of what the clients release first in a phase."""
        return self.stds(phase)[0] * self.gain(phase)

    @property
    def sum_std(self) -> float:
        """Noise std on one client's clipped sum, at full noise."""
        return self.stds(Phase.ROUND)[0]

    @property
    def noise_std(self) -> float:
        """Per coordinate of the averaged release."""
        return self.sum_std * self.noise_gain / self.expected

    @property
    def expected(self) -> float:
        """Which part of the records a round's sum is over, in expectation."""
        return self.batch_rate * self.client_rate

    @property
    def sigma_g(self) -> float | None:
        """The paper's multiplier sqrt(n)·s/c, s the noise std on each client's sum; None where each has its own."""
        if self.each:
            return None
        apart = math.sqrt(np.mean([noise_gain(f, shared=False) ** 2 for f in self.group_factors]))
        return math.sqrt(len(self.members[0])) * self.noise_gain / apart * self.sum_std / self.program.charges[0].clip

    @property
    def facts(self) -> Facts:
        linear = is_linear(self.model)
        noise_std, units = np.float32(self.noise_std), units_of(self.preparation, self.classes, self.task, linear)
        groups = groups_of_clients(self.participants, len(self.sizes))
        rates = {"batch_rate": self.expected / self.attendance, "attendance": self.attendance}
        return Facts(self.rounds, len(self.sizes), self.clip, noise_std, units, groups, **rates)

    def stds(self, phase: Phase, client: int | None = None) -> list[float]:
        """Noise std of each release of a phase, in the order of its program: the one place a plan becomes noise."""
        if not self.budget.private:
            return [0.0 for _ in self.programs[phase].charges]
        found = self.multipliers if client is None or not self.each else self.each[client]
        # an unpaid release's noise is stated by the mechanism itself, in the data's units
        return [1.0 if c.charged == 0 else found[c.site] * c.clip for c in self.programs[phase].charges]

    def stds_by_site(self, phase: Phase, client: int | None = None) -> np.ndarray:
        """The same as the door reads them: at the number of each site."""
        out = np.zeros(MAX_SITES, np.float32)
        for site, std in zip(self.programs[phase].sites, self.stds(phase, client), strict=True):
            out[site.number] = std
        return out


def make_plan(
    method: Method,
    model: Model,
    *,
    sizes: Sequence[int],
    shape: tuple[int, ...],
    classes: int,
    budget: AnyBudget,
    rounds: int,
    clip: float = 10.0,
    trust: Trust = "local",
    weights: Weights = "uniform",
    multiplier: float | None = None,
    preparation: Sequence[Step] = (),
    unit: Unit = "record",
    places: int | None = None,
    participants: int | None = None,
    batch_rate: float = 1.0,
    client_rate: float = 1.0,
    task: Task = Task(),
    evaluation: Evaluation | None = None,
    min_clients: int | None = None,
) -> Plan:
    """Audit and price a method for clients of these sizes. Shapes only: no record is read.

    `multiplier` (noise std over clip) sets the common noise by hand instead of calibrating it; the epsilon is
    then what that spends at the budget's delta. `unit`: whom the epsilon protects; `sizes` are numbers of units, each
    laid out with so many `places` for its records (unit.py). `participants`: clients of a round, in turn
    (participation.py). `batch_rate`: with which probability each record takes part in a gradient, drawn in secret;
    `client_rate`: each client in a round (drawn_clients.py). `evaluation`: right answers counted at the clients,
    out of the same budget (evaluation.py). `min_clients`: under secure sum, with how many the sum of a round still has
    all the noise that was priced. `budget`: one for all, or a `Budgets` with one for each client.
    """
    check_run(sizes, rounds, clip, batch_rate)
    check_trust(method, len(sizes), trust, weights, min_clients, participants)
    plan_checks.check_client_rate(method, client_rate, trust, min_clients, participants, batch_rate)
    check_units(method, unit, places, trust)
    check_preparation(preparation)
    check_noise(budget, multiplier)
    each_of(budget, len(sizes))  # as many as clients?
    sizes, steps, budget = tuple(int(s) for s in sizes), tuple(preparation), simplest(budget)
    both = {"rounds": rounds, "clip": clip, "classes": classes, "task": task}
    attendance, groups = attendance_of(sizes, client_rate), groups_of_clients(participants, len(sizes))
    public = Public(
        shape=shape, blocks=block_shape(sizes), clients=len(sizes), groups=groups, places=places,
        asked=None if groups == 1 else largest_group(sizes, groups), evaluation=evaluation,
        batch_rate=float(batch_rate * client_rate / attendance), attendance=attendance, **both,
    )  # fmt: skip
    programs = read_programs(method, model, steps, public)
    plan_checks.check_noise_of_all(method, programs[Phase.ROUND], trust)
    plan_checks.check_own_budgets(budget, made_by_all(programs[Phase.ROUND]), client_rate)
    multipliers, each = calibrated(method, programs, budget, multiplier)
    plan = Plan(
        method=method, model=model, programs=programs, multipliers=multipliers, budget=budget, each=each, sizes=sizes,
        shape=shape_after(steps, shape), trust=trust, weights=weights, preparation=steps, unit=unit,
        participants=participants, min_clients=min_clients, batch_rate=float(batch_rate),
        client_rate=float(client_rate), **both,
    )  # fmt: skip
    check_stds(plan)
    return plan
