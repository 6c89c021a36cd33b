"""Accounts as published, some of them wrong: they report what they really spend, and say so."""

import math

import pytest

from fedsofim.core.budget import Budget
from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.mechanisms import Independent, Mischarged, tree_levels
from fedsofim.core.method import OneGradient, server_method
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.methods._sofim import sofim
from method_helpers import blobs, planned

DATA = blobs((6, 20))


def test_published_accounts_report_what_they_spend():
    mu = Budget(1.0, 1e-5).mu
    spent = {
        name: planned(DATA, make(name, {"preset": "as_published"}, 1.0), 1.0, rounds=70)
        for name in ("ftrl", "scaffold", "fedfc")
    }
    assert tree_levels(70) == 8
    assert spent["ftrl"].epsilon == pytest.approx(epsilon_of(mu * math.sqrt(70 / 8), 1e-5))
    assert spent["scaffold"].epsilon == pytest.approx(epsilon_of(mu / 2, 1e-5))
    assert spent["fedfc"].epsilon == math.inf
    assert all("AS CLAIMED" in plan.method.note for plan in spent.values())
    assert all(any(c.charged is not None for c in plan.ledger) for plan in spent.values())


def test_a_wrong_account_must_be_declared():
    client = OneGradient(Mischarged(Independent(), lambda rounds: 1.0))
    with pytest.raises(InputError, match="note"):
        planned(DATA, server_method("quiet", sofim(0.1), client), 1.0)


def test_published_noise_of_scaffold_is_twice_the_true_one():
    both = [make("scaffold", {"preset": p}, 5.0) for p in ("paper-resnet20", "as_published")]
    true, as_published = (planned(DATA, method, 5.0, rounds=70) for method in both)
    assert as_published.noise_std == pytest.approx(2 * true.noise_std)
