"""What a user should know of a budget or a partition before relying on it."""

import warnings

import jax
import pytest

import fedsofim as fs
from toy import make_toy


def _planned(budget: fs.Budget) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fs.train(make_toy(), fs.fedgd(lr=1e-6), budget, 1, recipe="paper")
    return [str(w.message) for w in said if issubclass(w.category, fs.DataWarning)]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (fs.Budget(1, 0.1), "delta is 0.1 for 204 records"),
        (fs.Budget(1e6), "epsilon is 1e+06, a bound that promises nothing"),
    ],
)
def test_a_budget_that_promises_next_to_nothing_is_warned_of(budget: fs.Budget, said: str):
    (found,) = _planned(budget)
    assert said in found


@pytest.mark.parametrize("budget", [fs.Budget(1), fs.Budget(100), fs.Budget(1, 1 / 205), fs.NO_PRIVACY])
def test_other_budgets_are_not(budget: fs.Budget):
    assert _planned(budget) == []


def test_alpha_beside_even_dealing_is_refused():
    with pytest.raises(fs.InputError, match="alpha is for dealing by Dirichlet"):
        fs.split(make_toy().dataset, clients=2, alpha=0.5, iid=True)


def test_an_operation_without_a_rule_is_refused_with_what_to_use_instead():
    def client(door, params, state, memory):
        total = door.sum(lambda x, y: x * jax.random.gamma(jax.random.key(0), 1.0).astype(x.dtype), clip=1.0)
        return jax.numpy.zeros_like(params) + total.sum(), memory

    method = fs.Method("odd", client, lambda mean, state, params, facts: (params, state))
    with pytest.raises(fs.Refused, match=r"Draw with jax\.random\.normal"):
        fs.train(make_toy(), method, fs.Budget(1), 1, recipe="paper")


def test_a_module_of_flax_linen_is_told_how_to_become_one_of_nnx():
    linen = pytest.importorskip("flax.linen")
    with pytest.raises(fs.InputError, match=r"flax\.linen; expected flax\.nnx.*ToNNX"):
        fs.from_flax(linen.Dense(3))
