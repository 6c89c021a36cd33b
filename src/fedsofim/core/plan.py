"""What a run will release and cost, known before any record is read.

`make_plan` reads the method's programs, prices them under the chosen trust and weights, and calibrates the noise.
Everything printed about privacy comes from here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fedsofim.core import accounting
from fedsofim.core.accounting import Charge
from fedsofim.core.audit import Program
from fedsofim.core.budget import Budget
from fedsofim.core.door import Facts
from fedsofim.core.method import Method
from fedsofim.core.models import Model
from fedsofim.core.phase import Phase
from fedsofim.core.pooled import can_pool, noise_gain
from fedsofim.core.preparation import Step, units_of
from fedsofim.core.programs import Public, check_preparation, read_programs, shape_after
from fedsofim.core.records import block_shape
from fedsofim.core.site import MAX_SITES, check_clip
from fedsofim.errors import InputError, expect_whole, is_whole, one_of

Trust = Literal["local", "secure-sum"]
Weights = Literal["uniform", "size"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A priced run. Under NO_PRIVACY there is no noise at all, and epsilon is infinite."""

    method: Method
    model: Model
    programs: Mapping[Phase, Program]  # in the order they run
    multipliers: Mapping[Any, float]  # noise std over clip, by SiteKey
    budget: Budget
    rounds: int
    clip: float
    sizes: tuple[int, ...]
    shape: tuple[int, ...]  # of a record's features as the rounds see them
    classes: int
    trust: Trust
    weights: Weights
    preparation: tuple[Step, ...] = ()

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
        return accounting.spent(self.ledger, self.multipliers, self.delta) if self.budget.private else math.inf

    @property
    def mu(self) -> float | None:
        """Composed mu; None where records are sampled, which has no single mu."""
        if any(c.sample < 1 for c in self.ledger):
            return None
        return accounting.mu_spent(self.ledger, self.multipliers) if self.budget.private else math.inf

    @property
    def client_weights(self) -> np.ndarray:
        """w_i of the mean of uploads: 1/n (the paper) or |D_i|/N (every record counts alike)."""
        sizes = np.asarray(self.sizes, float)
        return np.full(len(sizes), 1 / len(sizes)) if self.weights == "uniform" else sizes / sizes.sum()

    @property
    def factors(self) -> np.ndarray:
        """a_i = w_i/|D_i|: what a client's sum counts in the mean."""
        return self.client_weights / np.asarray(self.sizes, float)

    @property
    def noise_gain(self) -> float:
        """Noise std of a round's average over that on one client's sum."""
        return self.gain(Phase.ROUND)

    def gain(self, phase: Phase) -> float:
        """The same in any phase. Under secure sum the sums of a preparation share their noise as gradients do; what
        else a method sends (its setup, steps of its own) is not one sum over clients, and every client adds all of it.
        """
        one_sum = self.pooled if phase is Phase.ROUND else phase is not Phase.SETUP
        return noise_gain(self.factors, shared=self.trust == "secure-sum" and one_sum)

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
        return self.sum_std * self.noise_gain

    @property
    def sigma_g(self) -> float:
        """The paper's multiplier sqrt(n)·s/c, s the noise std on each client's sum (its share under secure sum)."""
        share = self.noise_gain / noise_gain(self.factors, shared=False)
        return math.sqrt(len(self.sizes)) * share * self.sum_std / self.program.charges[0].clip

    @property
    def facts(self) -> Facts:
        noise_std, units = np.float32(self.noise_std), units_of(self.preparation, self.classes)
        return Facts(rounds=self.rounds, clients=len(self.sizes), clip=self.clip, noise_std=noise_std, units=units)

    def stds(self, phase: Phase) -> list[float]:
        """Noise std of each release of a phase, in the order of its program: the one place a plan becomes noise."""
        if not self.budget.private:
            return [0.0 for _ in self.programs[phase].charges]
        # an unpaid release's noise is stated by the mechanism itself, in the data's units
        return [1.0 if c.charged == 0 else self.multipliers[c.site] * c.clip for c in self.programs[phase].charges]

    def stds_by_site(self, phase: Phase) -> np.ndarray:
        """The same as the door reads them: at the number of each site."""
        out = np.zeros(MAX_SITES, np.float32)
        for site, std in zip(self.programs[phase].sites, self.stds(phase), strict=True):
            out[site.number] = std
        return out


def make_plan(
    method: Method,
    model: Model,
    *,
    sizes: Sequence[int],
    shape: tuple[int, ...],
    classes: int,
    budget: Budget,
    rounds: int,
    clip: float = 10.0,
    trust: Trust = "local",
    weights: Weights = "uniform",
    multiplier: float | None = None,
    preparation: Sequence[Step] = (),
) -> Plan:
    """Audit and price a method for clients of these sizes. Shapes only: no record is read.

    `multiplier` (noise std over clip) sets the common noise by hand instead of calibrating it; the epsilon is
    then what that spends at the budget's delta.
    """
    _check(sizes, rounds, clip, trust, weights)
    check_preparation(preparation)
    _check_noise(budget, multiplier)
    sizes = tuple(int(s) for s in sizes)
    public = Public(
        shape=shape, classes=classes, blocks=block_shape(sizes), clients=len(sizes), rounds=rounds, clip=clip
    )
    programs = read_programs(method, model, tuple(preparation), public)
    plan = Plan(
        method=method,
        model=model,
        programs=programs,
        multipliers=_multipliers(method, programs, budget, multiplier),
        budget=budget,
        rounds=rounds,
        clip=clip,
        sizes=sizes,
        shape=shape_after(preparation, shape),
        classes=classes,
        trust=trust,
        weights=weights,
        preparation=tuple(preparation),
    )
    _check_stds(plan)
    return plan


def _check_stds(plan: Plan) -> None:
    """Noise that float32 cannot carry as it was priced is an error, for one client's sum and for the mean of all."""
    if plan.budget.private:
        for phase, program in plan.programs.items():
            for site, std in zip(program.sites, plan.stds(phase), strict=True):
                accounting.check_std(site.label, std)
                accounting.check_std(site.label, std * plan.gain(phase))


def _multipliers(
    method: Method, programs: Mapping[Phase, Program], budget: Budget, given: float | None
) -> dict[Any, float]:
    """Noise std over clip of every site: calibrated to the budget, or the given one."""
    charges = [c for p in programs.values() for c in p.charges]
    if not programs[Phase.ROUND].charges:
        raise InputError(f"{method.name}: the client releases nothing; call the door in it")
    if any(c.charged is not None for c in charges) and not method.note:
        raise InputError(f"{method.name}: a release is not charged at its cost; say so in the method's note")
    if given is not None:
        return accounting.at_multiplier(charges, given)
    return accounting.calibrate(charges, budget) if budget.private else {c.site: 0.0 for c in charges}


def check_budget(budget: Any) -> None:
    if not isinstance(budget, Budget):
        raise InputError(
            f"the budget is {budget!r}; expected fs.Budget(epsilon, delta), or fs.NO_PRIVACY to train without noise"
        )


def _check_noise(budget: Any, multiplier: float | None) -> None:
    check_budget(budget)
    if multiplier is not None and not budget.private:
        raise InputError(f"a noise multiplier of {multiplier!r} and {budget} contradict each other; give one of them")


def _check(sizes: Sequence[int], rounds: int, clip: float, trust: str, weights: str) -> None:
    expect_whole("rounds", rounds, 1)
    check_clip(clip)
    if len(sizes) == 0 or not all(is_whole(s) and s >= 1 for s in sizes):
        raise InputError(f"client sizes are {list(sizes)}; expected at least one client with at least one record each")
    one_of("trust", trust, get_args(Trust))
    one_of("weights", weights, get_args(Weights))
