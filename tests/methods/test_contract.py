"""One contract for every method, a stranger's included: the price is right, runs repeat, nothing overflows, it learns.

What is about the nine published ones alone is in test_published.py.
"""

import math
from pathlib import Path

import dp_accounting as dpa
import jax
import numpy as np
import pytest
from dp_accounting import pld

from fedsofim import methods
from fedsofim.core.method import Method
from fedsofim.methods import make
from method_helpers import TWO_LEAVES, blobs, final, planned

HEAVYBALL = str(Path(__file__).resolve().parents[2] / "examples" / "heavyball.py")
#: Forms of the published ones that release something else, or keep something else at the server.
FORMS = [
    *((name, {"local_steps": 2}) for name in ("fedsofim", "fedadam", "fedyogi")),
    *(("fedsofim", {"curvature": c}) for c in ("rank-k", "kronecker")),
    ("fedgd", {"clip_quantile": 0.5}),
]
METHODS = [*methods.names(), HEAVYBALL, *FORMS]
UNEQUAL = blobs((1, 20, 7))


def named(method: str | tuple[str, dict]) -> str:
    if isinstance(method, str):
        return Path(method).name
    return " ".join([method[0], *(f"{k}={v}" for k, v in method[1].items())])


def made(method: str | tuple[str, dict]) -> Method:
    return make(method) if isinstance(method, str) else make(*method)


@pytest.mark.parametrize("name", METHODS, ids=named)
def test_its_ledger_spends_the_target_by_an_independent_accountant(name: str | tuple[str, dict]):
    plan = planned(UNEQUAL, made(name), 1.0, rounds=11)
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for charge in plan.ledger:  # its replace-one Gaussian moves by 2 where the multiplier is 1
        unit = 2 * plan.multipliers[charge.site] / charge.ratio / math.sqrt(charge.weight)
        event = dpa.GaussianDpEvent(unit * math.sqrt(charge.releases))
        sampled = event if charge.sample == 1 else dpa.PoissonSampledDpEvent(charge.sample, event)
        accountant.compose(sampled, charge.releases)
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=5e-3)
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9 if plan.mu is not None else 5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS, ids=named)
def test_repeats_by_seed_and_stays_finite_on_two_leaves(name: str | tuple[str, dict]):
    method = made(name)
    runs = {
        (epsilon, seed, again): final(UNEQUAL, method, epsilon, seed=seed, model=TWO_LEAVES)
        for epsilon, seed, again in [(0.05, 0, 0), (0.05, 0, 1), (0.05, 1, 0), (1000.0, 0, 0)]
    }
    for params in runs.values():
        assert set(params) == {"w", "b"}
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    first, again, other = (runs[0.05, *k]["w"] for k in ((0, 0), (0, 1), (1, 0)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS, ids=named)
def test_one_client_learns(name: str | tuple[str, dict]):
    data = blobs((120,))
    theta = np.asarray(final(data, made(name), 1000.0, rounds=40))
    x = data.dataset.x_test
    right = np.argmax(x @ theta[:-1] + theta[-1], axis=1) == data.dataset.y_test
    assert right.mean() > 0.8
