"""The noise of each client of a plan, and its price: calibrated to its own budget, charged to its own ledger."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsofim.core import accounting
from fedsofim.core.accounting import Charge
from fedsofim.core.audit import Program
from fedsofim.core.budget import Budget
from fedsofim.core.budgets import AnyBudget, Budgets
from fedsofim.core.method import Method
from fedsofim.core.phase import Phase
from fedsofim.errors import InputError, Refused

if TYPE_CHECKING:
    from fedsofim.core.plan import Plan

Multipliers = dict[Any, float]  # noise std over clip, by SiteKey


def calibrated(
    method: Method, programs: Mapping[Phase, Program], budget: AnyBudget, given: float | None
) -> tuple[Multipliers, tuple[Multipliers, ...]]:
    """Noise std over clip of every site: calibrated to the budget, or the given one; and of each client, where budgets
    are unequal. Of those the first is then the least of any client."""
    charges = [c for p in programs.values() for c in p.charges]
    if not programs[Phase.ROUND].charges:
        raise InputError(f"{method.name}: the client releases nothing; call the door in it")
    if any(c.charged is not None for c in charges) and not method.note:
        raise InputError(f"{method.name}: a release is not charged at its cost; say so in the method's note")
    if isinstance(budget, Budgets):
        return _unequal(method, charges, budget)
    if given is not None:
        return accounting.at_multiplier(charges, given), ()
    return accounting.calibrate(charges, budget) if budget.private else {c.site: 0.0 for c in charges}, ()


def _unequal(method: Method, charges: list[Charge], budgets: Budgets) -> tuple[Multipliers, tuple[Multipliers, ...]]:
    if any(c.charged is not None for c in charges):
        raise Refused(f"{method.name} reruns a wrong account, which had one budget for all; give it one budget")
    known = {budget: accounting.calibrate(charges, budget) for budget in dict.fromkeys(budgets.each)}
    return {c.site: min(m[c.site] for m in known.values()) for c in charges}, tuple(known[b] for b in budgets.each)


def check_stds(plan: "Plan") -> None:
    """Noise that float32 cannot carry as it was priced is an error, for each client's sum and for the mean of all."""
    if plan.budget.private:
        for phase, program in plan.programs.items():
            for site, std in zip(program.sites, plan.stds(phase), strict=True):
                for times in (1.0, float(plan.louder(phase).max()), plan.gain(phase)):
                    accounting.check_std(site.label, std * times)


def louder(plan: "Plan", phase: Phase) -> np.ndarray:
    """Each client's noise over the least of any, in what a phase releases first."""
    if not plan.each:
        return np.ones(len(plan.sizes))
    site = plan.programs[phase].charges[0].site
    return np.array([m[site] for m in plan.each]) / plan.multipliers[site]


def stds_of_each(plan: "Plan", phase: Phase) -> np.ndarray:
    """Noise stds by site of every client that draws its own: a row for each; one for all where they are equal."""
    if not plan.each:
        return plan.stds_by_site(phase)
    return np.stack([plan.stds_by_site(phase, i) for i in range(len(plan.sizes))])


def hidden_by(plan: "Plan") -> dict[Any, np.ndarray]:
    """By site, the multiplier that hides each client's records: its own, or that of the sum it is in."""
    out, of_each = {}, plan.each or [plan.multipliers] * len(plan.sizes)
    for phase, program in plan.programs.items():
        for c in program.charges:
            own = np.array([m[c.site] for m in of_each])
            out[c.site] = hiding(own, _sums(plan, phase)) if plan.shared(phase) else own
    return out


def _sums(plan: "Plan", phase: Phase) -> list[tuple[np.ndarray, np.ndarray]]:
    """The clients of each secure sum of a phase, with their factors."""
    if phase is Phase.ROUND:
        return list(zip(plan.members, plan.group_factors, strict=True))
    return [(np.arange(len(plan.sizes)), plan.factors)]


def hiding(own: np.ndarray, sums: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The multiplier that hides each client's records where noise is shared: `sums` are (clients, their factors a_i).

    Client j asks the sum for noise a_j·m_j·clip; it has the largest of these, S. A record of client i moves the sum by
    ratio·a_i·clip, so what hides it is as if its own sum had the multiplier S/(a_i·clip) = max_j a_j·m_j/a_i >= m_i.
    """
    out = np.array(own)
    for clients, factors in sums:
        out[clients] = np.maximum((factors * own[clients]).max() / factors, own[clients])  # and no rounding below
    return out


def spent_by_each(
    charges: Sequence[Charge], multipliers: Mapping[Any, np.ndarray], budgets: Sequence[Budget]
) -> tuple[float, ...]:
    """The epsilon of each client's ledger at its own delta; equal ledgers are added up once."""
    known: dict[tuple, float] = {}
    found = []
    for i, budget in enumerate(budgets):
        mine = {site: float(m[i]) for site, m in multipliers.items()}
        key = (budget.delta, *mine.values())
        if key not in known:
            known[key] = accounting.spent(charges, mine, budget.delta)
        found.append(known[key])
    return tuple(found)


def mu_of_each(plan: "Plan") -> np.ndarray:
    """Each client's composed mu, where every site reads all records."""
    found = hidden_by(plan)
    return np.sqrt(sum(c.weight * (c.ratio / found[c.site]) ** 2 for c in plan.ledger))
