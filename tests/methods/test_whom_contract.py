"""One contract over all methods x units of protection x participation: what makes sense is priced right and runs, the
rest is refused in words.

Every combination is planned; run are as many as it takes for each method once, and each unit with each participation.
"""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import jax
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from fedsofim import methods
from fedsofim.core.budget import Budget
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.data.partition import Split
from fedsofim.errors import Refused
from fedsofim.methods import PUBLISHED, make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from method_helpers import blobs

HEAVYBALL = str(Path(__file__).resolve().parents[2] / "examples" / "heavyball.py")
METHODS = [*methods.names(), HEAVYBALL]
ONE_GRADIENT = ("fedgd", "fedsofim", "fedadam", "fedyogi", "ftrl")
ROUNDS, RATE = 2, 0.5
UNITS = ("record", "person", "client")
TAKING_PART: dict[str, dict[str, Any]] = {"all": {}, "in turn": {"participants": 2}, "batch": {"batch_rate": RATE}}
RUN = [
    ("fedgd", "record", "all"), ("fedavg", "record", "in turn"), ("fedsofim", "record", "batch"),
    ("scaffold", "person", "in turn"), ("ftrl", "person", "all"), (HEAVYBALL, "person", "batch"),
    ("fedadam", "client", "all"), ("fedyogi", "client", "in turn"), ("fedsofim", "client", "batch"),
    ("adafedprox", "record", "in turn"), ("fedfc", "record", "all"),
]  # fmt: skip


def held() -> Split:
    """Four clients of a few records, two for each person."""
    data = blobs((4, 5, 6, 3))
    return replace(data, dataset=replace(data.dataset, person=(np.arange(18) // 2).astype(str)))


SPLITS = {"record": held(), "person": held().protecting("person", 2), "client": held().protecting("client", 6)}
POSSIBLE = [
    (m, u, p) for m in METHODS for u in UNITS for p in TAKING_PART
    if (u != "client" or m in ONE_GRADIENT) and not (m == "ftrl" and p == "batch")
]  # fmt: skip
REST = [(m, u, p) for m in METHODS for u in UNITS for p in TAKING_PART if (m, u, p) not in POSSIBLE]


@cache
def planned(method: str, unit: str, part: str) -> Plan:
    trust: Any = "secure-sum" if unit == "client" else "local"
    return plan_for(SPLITS[unit], made(method), Budget(1.0), ROUNDS, trust=trust, **TAKING_PART[part])


@cache
def made(method: str) -> Any:
    return make(method)


def named(value: Any) -> str:
    return Path(str(value)).name


def account(plan: Plan) -> float:
    """Delta at the plan's epsilon, by others: the Gaussian's closed form, or a privacy loss distribution."""
    if plan.mu is not None:
        mu = math.sqrt(sum(c.weight * (c.ratio / plan.multipliers[c.site]) ** 2 for c in plan.ledger))
        e = plan.epsilon
        return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu))
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for charge in plan.ledger:  # its replace-one Gaussian moves by 2 where the multiplier is 1
        event = dpa.GaussianDpEvent(2 * plan.multipliers[charge.site] / charge.ratio)
        sampled = event if charge.sample == 1 else dpa.PoissonSampledDpEvent(charge.sample, event)
        accountant.compose(sampled, charge.releases)
    return float(accountant.get_delta(plan.epsilon))


def check_price(method: str, unit: str, part: str) -> None:
    """Whom it protects, how often each client releases, and that this is what the epsilon is of."""
    plan = planned(method, unit, part)
    assert plan.unit == unit and plan.epsilon <= 1.0 * (1 + 1e-9)
    assert account(plan) == pytest.approx(plan.delta, rel=1e-6 if plan.mu is not None else 0.1)
    asked = [sum(i in plan.members[t % len(plan.members)] for t in range(ROUNDS)) for i in range(4)]
    assert max(asked) == (1 if part == "in turn" else ROUNDS)
    every = planned(method, "client" if unit == "client" else "record", "all").programs[Phase.ROUND].charges
    for mine, usual in zip(plan.programs[Phase.ROUND].charges, every, strict=True):
        assert mine.releases * ROUNDS == usual.releases * max(asked)  # as often a round as with everybody
        assert mine.ratio == 2.0 and mine.sample == (RATE if part == "batch" else 1.0)


@pytest.mark.parametrize(("method", "unit", "part"), RUN, ids=named)
def test_it_is_priced_and_runs(method: str, unit: str, part: str):
    check_price(method, unit, part)
    params = simulate(planned(method, unit, part), SPLITS[unit], 0, every=ROUNDS)[0]
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(params))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=named)
def test_every_other_combination_is_priced(method: str):
    for _, unit, part in (c for c in POSSIBLE if c[0] == method and c not in RUN):
        check_price(method, unit, part)


@pytest.mark.parametrize("method", METHODS, ids=named)
def test_the_rest_is_refused_in_words(method: str):
    words = "cannot protect whole clients|samples records under noise laid out over the rounds"
    for _, unit, part in (c for c in REST if c[0] == method):
        with pytest.raises(Refused, match=words):
            planned(method, unit, part)


def test_nothing_is_left_out():
    assert {named(m) for m, _, _ in RUN} == {*PUBLISHED, "heavyball.py"}
    assert {(u, p) for _, u, p in RUN} == {(u, p) for u in UNITS for p in TAKING_PART}
