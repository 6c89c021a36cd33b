"""The idealised limit: against what can be computed by hand, and in the right order."""

import json

import numpy as np
import pytest

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split
from fedsofim.errors import InputError
from fedsofim.simulation.limit import _hessian, _loss, _minimum, _with_bias, idealised


def problem(records: int = 3000, features: int = 5, classes: int = 3) -> Split:
    random = np.random.default_rng(0)
    y = random.integers(classes, size=records)
    x = random.normal(size=(records, features)) + 1.2 * random.normal(size=(classes, features))[y]
    cut = records // 2
    made = Dataset.of("made", x_train=x[:cut], y_train=y[:cut], x_test=x[cut:], y_test=y[cut:])
    return split(made, clients=3, iid=True)


def test_curvature_and_slope_are_those_of_the_loss():
    random = np.random.default_rng(1)
    x, y, theta = _with_bias(random.normal(size=(50, 3))), random.integers(4, size=50), random.normal(size=(4, 4))
    step = 1e-5
    for i in range(theta.size):
        moved = theta.ravel().copy()
        moved[i] += step
        (value, slope), (more, other) = (_loss(x, y, t, 0.0) for t in (theta, moved.reshape(theta.shape)))
        assert (more - value) / step == pytest.approx(slope.ravel()[i], abs=1e-4)
        np.testing.assert_allclose((other - slope).ravel() / step, _hessian(x, theta)[i], atol=1e-4)


def test_the_minimum_has_no_slope():
    random = np.random.default_rng(2)
    x, y = _with_bias(random.normal(size=(200, 3))), random.integers(3, size=200)
    theta, inverse = _minimum(x, y, np.zeros((4, 3)), 1e-2)
    assert np.linalg.norm(_loss(x, y, theta, 1e-2)[1]) < 1e-3
    np.testing.assert_allclose(inverse @ (_hessian(x, theta) + 1e-2 * np.eye(12)), np.eye(12), atol=1e-8)


def test_a_larger_budget_reaches_further_and_no_noise_the_furthest():
    data = problem()
    small, large, bare = (idealised(data, budget) for budget in (Budget(0.05), Budget(5.0), NO_PRIVACY))
    assert small.best < large.best <= large.without_noise + 0.5
    assert bare.best == pytest.approx(bare.without_noise)
    assert idealised(data, Budget(0.05), trust="secure-sum").best > small.best
    told = json.loads(json.dumps(large.summary()))
    assert told["private"] is False and told["limit"] == pytest.approx(large.best, abs=1e-3)


def test_too_many_parameters_are_refused_in_words():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 2100)), random.integers(2, size=20)
    data = split(Dataset.of("wide", x_train=x, y_train=y, x_test=x, y_test=y), clients=2, min_size=1, iid=True)
    with pytest.raises(InputError, match="parameters, whose curvature is dense; expected at most"):
        idealised(data, Budget(1.0))
