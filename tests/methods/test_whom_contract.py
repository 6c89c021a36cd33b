"""One contract over all methods x units of protection x participation: what makes sense is priced right and runs, the
rest is refused in words.

Each run is of two rounds on a few records of four clients, and is what was planned.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import jax
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom, norm

from fedsofim import methods
from fedsofim.core import sampled
from fedsofim.core.accounting import Charge
from fedsofim.core.budget import Budget
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.data.partition import Split
from fedsofim.errors import Refused
from fedsofim.methods import PUBLISHED, make
from fedsofim.simulation.run import Run
from fedsofim.simulation.training import plan_for, train
from method_helpers import blobs

HEAVYBALL = str(Path(__file__).resolve().parents[2] / "examples" / "heavyball.py")
METHODS = [*methods.names(), HEAVYBALL]
ONE_GRADIENT = ("fedgd", "fedsofim", "fedadam", "fedyogi", "ftrl")
ROUNDS, RATE = 2, 0.5
UNITS = ("record", "person", "client")
TAKING_PART: dict[str, dict[str, Any]] = {
    "all": {}, "in turn": {"participants": 2}, "batch": {"batch_rate": RATE}, "by chance": {"client_rate": RATE},
}  # fmt: skip


def why_not(method: str, unit: str, part: str) -> str:
    """Why nobody can have this, in words of the refusal; nothing if it makes sense."""
    if part == "by chance" and method not in (*ONE_GRADIENT, "fedfc"):
        return "its own steps, so one that is absent could not send it alone"
    if unit == "client" and method not in ONE_GRADIENT:
        return "cannot protect whole clients"
    if method == "ftrl" and (part == "batch" or (part, unit) == ("by chance", "client")):
        return "samples records under noise laid out over the rounds"
    return "noise laid out over the rounds is not" if (method, part) == ("ftrl", "by chance") else ""


EVERY = [(m, u, p) for m in METHODS for u in UNITS for p in TAKING_PART]
POSSIBLE = [c for c in EVERY if not why_not(*c)]
#: Left out of the daily round is what is long: all but each method once, and one method in every way.
RUN = [
    c if c[0] == "fedgd" or c[1:] == ("record", "all") else pytest.param(*c, marks=pytest.mark.slow) for c in POSSIBLE
]


@pytest.fixture(scope="module", autouse=True)
def priced_once() -> Iterator[None]:
    """Most methods have the same ledger, and one of sampled records takes long to price."""
    once = cache(sampled.pld_epsilon)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled, "pld_epsilon", lambda mu, of, *rest: once(mu, tuple(of), *rest))
        yield


def held() -> Split:
    """Four clients of a few records, two for each person."""
    data = blobs((4, 5, 6, 3))
    return replace(data, dataset=replace(data.dataset, person=(np.arange(18) // 2).astype(str)))


SPLITS = {"record": held(), "person": held().protecting("person", 2), "client": held().protecting("client", 6)}


def asked_for(unit: str, part: str) -> dict[str, Any]:
    """Secure sum only where it has to be."""
    return {"trust": "secure-sum" if unit == "client" or part == "by chance" else "local", **TAKING_PART[part]}


@cache
def planned(method: str, unit: str, part: str) -> Plan:
    return plan_for(SPLITS[unit], made(method), Budget(1.0), ROUNDS, **asked_for(unit, part))


def ran(method: str, unit: str, part: str) -> Run:
    how = {"rounds": ROUNDS, "every": ROUNDS, "clip": 10.0, "weights": "uniform", "preparation": ()}
    return train(SPLITS[unit], made(method), Budget(1.0), **how, **asked_for(unit, part))


@cache
def made(method: str) -> Any:
    return make(method)


def named(value: Any) -> str:
    return Path(str(value)).name


def account(plan: Plan) -> float:
    """Delta at the plan's epsilon, by others: the Gaussian's closed form, or a privacy loss distribution."""
    by_chance = [c for c in plan.ledger if c.attendance < 1]
    full = sum(cost(c, plan) for c in plan.ledger if c.attendance == 1)
    if plan.mu is not None:
        return gaussian(full, plan.epsilon)
    if by_chance:
        (c,) = by_chance
        there = [(float(binom.pmf(k, c.releases, c.attendance)), k / c.releases) for k in range(c.releases + 1)]
        return sum(likely * gaussian(full + part * cost(c, plan), plan.epsilon) for likely, part in there)
    return drawn(tuple((plan.multipliers[c.site] / c.ratio, c.sample, c.releases) for c in plan.ledger), plan.epsilon)


def cost(charge: Charge, plan: Plan) -> float:
    """mu² of all its releases, each of which reads all records."""
    return charge.weight * (charge.ratio / plan.multipliers[charge.site]) ** 2


def gaussian(mu_squared: float, e: float) -> float:
    mu = math.sqrt(mu_squared)
    return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)) if mu > 0 else 0.0


@cache
def drawn(ledger: tuple[tuple[float, float, int], ...], epsilon: float) -> float:
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for unit, sample, releases in ledger:  # its replace-one Gaussian moves by 2 where the multiplier is 1
        event = dpa.GaussianDpEvent(2 * unit)
        accountant.compose(event if sample == 1 else dpa.PoissonSampledDpEvent(sample, event), releases)
    return float(accountant.get_delta(epsilon))


def check_price(method: str, unit: str, part: str) -> None:
    """Whom it protects, how often each client releases, and that this is what the epsilon is of."""
    plan = planned(method, unit, part)
    assert plan.unit == unit and plan.epsilon <= 1.0 * (1 + 1e-9)
    assert account(plan) == pytest.approx(plan.delta, rel=1e-6 if plan.mu is not None else 0.1)
    asked = [sum(i in plan.members[t % len(plan.members)] for t in range(ROUNDS)) for i in range(4)]
    assert max(asked) == (1 if part == "in turn" else ROUNDS)
    every = planned(method, "client" if unit == "client" else "record", "all").programs[Phase.ROUND].charges
    whole = part == "by chance" and unit != "client"  # of many records: there with all of them or not at all
    for mine, usual in zip(plan.programs[Phase.ROUND].charges, every, strict=True):
        assert mine.releases * ROUNDS == usual.releases * max(asked)  # as often a round as with everybody
        assert mine.ratio == 2.0 and mine.attendance == (RATE if whole else 1.0)
        assert mine.sample == (RATE if part == "batch" or (part == "by chance" and not whole) else 1.0)


@pytest.mark.parametrize(("method", "unit", "part"), RUN, ids=named)
def test_what_makes_sense_is_priced_and_runs(method: str, unit: str, part: str):
    check_price(method, unit, part)
    plan, run = planned(method, unit, part), ran(method, unit, part)
    assert (run.ledger, run.plan.multipliers, run.plan.epsilon) == (plan.ledger, plan.multipliers, plan.epsilon)
    assert (run.plan.unit, len(run.plan.members), run.plan.trust) == (unit, len(plan.members), plan.trust)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(run.params))


@pytest.mark.parametrize("method", METHODS, ids=named)
def test_the_rest_is_refused_in_words(method: str):
    for _, unit, part in (c for c in EVERY if c[0] == method and c not in POSSIBLE):
        with pytest.raises(Refused, match=why_not(method, unit, part)):
            planned(method, unit, part)


def test_nothing_is_left_out():
    assert {named(m) for m in METHODS} == {*PUBLISHED, "heavyball.py"}
    assert {(m, u) for m, u, _ in POSSIBLE} == {
        (m, u) for m in METHODS for u in UNITS if m in ONE_GRADIENT or u != "client"
    }
    assert {(u, p) for m, u, p in POSSIBLE if m == "fedgd"} == {(u, p) for u in UNITS for p in TAKING_PART}
