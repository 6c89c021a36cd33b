"""A budget is a number above zero, or NO_PRIVACY: one object, one way to write it, wherever an epsilon stands."""

import copy
import math
import pickle

import pytest

import fedsofim as fs
from fedsofim.core.budget import NO_PRIVACY, WITHOUT, Budget, budget_of, epsilon_stated, in_words, stated
from fedsofim.core.method import OneGradient
from fedsofim.core.summary import privacy_summary
from fedsofim.errors import InputError
from stranger import priced


@pytest.mark.parametrize(
    "senseless",
    [
        lambda: Budget(0.0),
        lambda: Budget(-1.0),
        lambda: Budget(math.nan),
        lambda: Budget(math.inf),
        lambda: Budget(1.0, 0.0),
        lambda: Budget(1.0, 1.0),
        lambda: Budget(1.0, math.nan),
        lambda: Budget("1"),  # type: ignore[arg-type]
        lambda: Budget(1.0, "1e-5"),  # type: ignore[arg-type]
        lambda: Budget(None),  # type: ignore[arg-type]
        lambda: Budget(True),
        lambda: Budget(1e-7),
        lambda: Budget(1e10),
        lambda: Budget(1.0, 1e-301),
        lambda: Budget(1.0, 1 - 1e-10),
        lambda: Budget(1.0, True),
    ],
)
def test_senseless_budgets_are_a_clear_error(senseless):
    with pytest.raises(InputError, match=r"^(epsilon|delta) is .*; expected a .*number"):
        senseless()


def test_an_infinite_epsilon_is_refused_with_what_to_write_instead():
    with pytest.raises(InputError, match=r"epsilon is inf; expected .*; .*fs\.NO_PRIVACY.*no-privacy"):
        Budget(math.inf)
    with pytest.raises(InputError, match=r"fs\.NO_PRIVACY"):
        budget_of("inf", 1e-5)
    with pytest.raises(InputError) as other:
        Budget(-math.inf)
    assert "NO_PRIVACY" not in str(other.value)  # nobody meant that


def test_no_privacy_is_one_object_that_protects_nothing():
    assert fs.NO_PRIVACY is NO_PRIVACY is budget_of(WITHOUT, 1e-5) is budget_of(NO_PRIVACY, 1e-5)
    assert not NO_PRIVACY.private and Budget(1.0).private
    assert all(same == NO_PRIVACY for same in (pickle.loads(pickle.dumps(NO_PRIVACY)), copy.deepcopy(NO_PRIVACY)))


def test_it_is_written_the_same_everywhere():
    assert str(NO_PRIVACY) == stated(math.inf) == in_words(math.inf) == in_words(WITHOUT) == WITHOUT == "no-privacy"
    assert str(Budget(0.5, 1e-6)) == "epsilon 0.5 at delta 1e-06"
    assert stated(1.5) == 1.5 and in_words(1 / 3) == "0.333333"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, math.inf])
def test_what_results_state_reads_back(epsilon):
    assert epsilon_stated(stated(epsilon)) == epsilon


@pytest.mark.parametrize("written", [2, 2.0, "2", "2.0", " 2 "])
def test_budgets_as_people_write_them(written):
    assert budget_of(written, 1e-6) == Budget(2.0, 1e-6)


@pytest.mark.parametrize("written", [None, "much", [], {}, "none"])
def test_what_is_not_an_epsilon_is_named(written):
    with pytest.raises(InputError, match="expected a number above 0, or no-privacy"):
        budget_of(written, 1e-5)


def test_a_plan_without_privacy_says_so_in_its_summary():
    plan = priced(OneGradient(), budget=NO_PRIVACY)
    summary = privacy_summary(plan)
    assert (summary["epsilon"], summary["mu"], summary["noise_std"]) == ("no-privacy", None, 0.0)
    assert (plan.epsilon, plan.mu) == (math.inf, math.inf)


def test_a_plan_with_a_budget_states_the_number():
    assert privacy_summary(priced(OneGradient(), budget=Budget(2.0)))["epsilon"] == pytest.approx(2.0)
