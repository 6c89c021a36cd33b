"""k of n clients a round, and batches of records: who is asked, what is computed, what it costs.

The paper states that its mechanism needs neither full participation nor full batches; here is each of these statements.
"""

from dataclasses import replace
from typing import Any

import dp_accounting as dpa
import numpy as np
import optax
import pytest
from dp_accounting.pld import PLDAccountant

from diary import silent
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.mechanisms import Tree
from fedsofim.core.method import Method, OneGradient, server_method
from fedsofim.core.participation import times_asked
from fedsofim.core.phase import Phase
from fedsofim.data.partition import Split
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.simulation import simulator
from fedsofim.simulation.simulator import keys, simulate, simulate_to_end, start_parameters
from fedsofim.simulation.training import plan_for
from toy import make_toy

SIZES = (20, 40, 11, 50, 30)


def ended(split: Split, method: Method, rounds: int, k: int | None, **how: Any) -> Any:
    plan = plan_for(split, method, NO_PRIVACY, rounds, participants=k, clip=2.0)
    return simulate_to_end(plan, split, **how)[0]


@pytest.mark.parametrize("name", ["fedgd", "fedsofim", "fedavg", "scaffold", "ftrl", "adafedprox"])
def test_the_paper_on_partial_participation_a_client_pays_for_the_rounds_it_takes_part_in(name: str):
    split = make_toy(SIZES)
    plan = plan_for(split, make(name), Budget(3.0), 12, participants=2)  # three groups: each is asked four times
    often = plan.program.charges[0].releases
    full = plan_for(split, make(name), Budget(3.0), 4)  # four rounds of everybody: the same number of releases
    assert often == full.program.charges[0].releases
    assert plan.multipliers == full.multipliers and plan.epsilon == pytest.approx(3.0)


def test_no_client_is_asked_more_often_than_it_pays_for():
    assert [times_asked(rounds, 3) for rounds in (1, 3, 4, 12, 13)] == [1, 1, 2, 4, 5]


def test_an_independent_accountant_agrees():
    plan = plan_for(make_toy(SIZES), make("fedgd"), Budget(2.0, 1e-6), 9, participants=2)
    (multiplier,) = set(plan.multipliers.values())
    accountant = PLDAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dpa.GaussianDpEvent(multiplier / 2), 3)
    assert accountant.get_epsilon(1e-6) == pytest.approx(2.0, rel=1e-3)


def test_who_is_not_asked_changes_nothing():
    """Round 1 asks clients 0 and 3; with other records at the rest, its parameters are the same to the last bit."""
    split = make_toy(SIZES)
    x = split.dataset.x_train.copy()
    for client in (1, 2, 4):
        x[split.parts[client]] *= -7
    other = replace(split, dataset=replace(split.dataset, x_train=x))
    method = make("fedavg")
    first, second = (ended(s, method, 1, 2).params for s in (split, other))
    assert np.array_equal(first, second)
    assert not np.array_equal(*(ended(s, method, 2, 2).params for s in (split, other)))


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_asking_a_group_in_one_call_is_asking_each_of_it(weights: Any):
    split = make_toy(SIZES)
    plan = plan_for(split, make("fedgd"), NO_PRIVACY, 5, participants=2, clip=2.0, weights=weights)
    together, each = (simulate(plan, split, apart=apart)[0] for apart in (False, True))
    np.testing.assert_allclose(together, each, rtol=1e-5, atol=1e-6)


def test_a_round_is_the_step_of_a_federation_of_its_group_alone():
    split = make_toy(SIZES)
    alone = replace(split, parts=tuple(split.parts[i] for i in (0, 3)))
    np.testing.assert_allclose(
        ended(split, make("fedgd"), 1, 2).params, ended(alone, make("fedgd"), 1, None).params, rtol=1e-5, atol=1e-6
    )


def test_memory_of_the_absent_stays_and_the_server_counts_them():
    """DP-SCAFFOLD: only who took part has a control variate after round 1, and the server's is the mean of all."""
    end = ended(make_toy(SIZES), make("scaffold"), 1, 2)
    memory = np.asarray(end.memory)  # (groups, clients of each, ...)
    assert np.any(memory[0]) and not np.any(memory[1:])
    np.testing.assert_allclose(end.state, memory[0].mean(axis=0) / 3, rtol=1e-4, atol=1e-6)


def test_noise_of_a_tree_goes_by_how_often_a_client_was_asked():
    plan = plan_for(make_toy(SIZES), make("ftrl"), Budget(2.0), 12, participants=2)
    assert plan.program.charges[0].weight == pytest.approx(Tree().cost(4))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_scaffolds_corrections_cancel_over_a_turn_of_all_groups(weights: Any):
    """The server's control variate is the mean over groups of each group's mean, however uneven groups are."""
    split = make_toy(SIZES)
    plan = plan_for(split, make("scaffold"), NO_PRIVACY, 7, participants=2, clip=2.0, weights=weights)
    end = simulate_to_end(plan, split)[0]
    means = [np.tensordot(w, m[: len(w)], 1) for w, m in zip(plan.group_weights, np.asarray(end.memory), strict=True)]
    np.testing.assert_allclose(end.state, np.mean(means, axis=0), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_tree_begins_anew_after_so_many_rounds_of_its_own_client():
    """Two groups, each asked twice: one tree each, whose running sum carries one node. Counted by the run's rounds,
    leaves would stay in it: six nodes in all."""
    split = silent((6, 6), 2000)
    method = server_method("sum", optax.sgd(1.0), OneGradient(Tree(restart=2)))
    plan = plan_for(split, method, Budget(3.0), 4, participants=1, clip=1.0)
    end = np.asarray(simulate(plan, split)[0] - start_parameters(plan, split, keys(0)[0]))[:-1]
    assert plan.program.charges[0].weight == Tree(restart=2).cost(2)
    assert np.std(end) == pytest.approx(np.sqrt(2) * plan.noise_std, rel=0.06)


@pytest.mark.slow
def test_clients_that_are_asked_once_may_be_asked_in_pieces(monkeypatch: pytest.MonkeyPatch):
    """A hundred thousand uploads side by side would not fit; some after others have the same mean."""
    split = make_toy(SIZES)
    plan = plan_for(split, make("fedfc"), NO_PRIVACY, 2, clip=2.0)
    init_key, key = keys(0)
    params = start_parameters(plan, split, init_key)
    whole = simulator.ask_once(plan, Phase.SETUP, split, params, key)
    monkeypatch.setattr(simulator, "_NUMBERS", 2 * np.size(whole))
    pieces = simulator.ask_once(plan, Phase.SETUP, split, params, key)
    np.testing.assert_allclose(pieces, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [0, 6, 2.5, "all"])
def test_who_can_take_part_is_checked(k: Any):
    with pytest.raises(InputError, match="participants"):
        plan_for(make_toy(SIZES), make("fedgd"), Budget(1.0), 3, participants=k)


# --- batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedgd", "fedsofim", "fedadam", "fedavg", "scaffold"])
def test_the_paper_on_mini_batches_every_gradient_is_sampled_and_priced_by_its_loss_distribution(name: str):
    split = make_toy(SIZES)
    plan = plan_for(split, make(name), Budget(3.0), 4, batch_rate=0.25)
    (charge,) = plan.program.charges
    multiplier = plan.multipliers[charge.site]
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dpa.PoissonSampledDpEvent(0.25, dpa.GaussianDpEvent(multiplier)), charge.releases)
    assert charge.sample == 0.25 and plan.epsilon <= 3.0
    assert accountant.get_epsilon(plan.delta) == pytest.approx(plan.epsilon, rel=1e-2)
    assert multiplier < plan_for(split, make(name), Budget(3.0), 4).multipliers[charge.site]


def test_batches_under_noise_that_is_laid_out_are_refused():
    with pytest.raises(Refused, match="samples records under noise laid out over the rounds"):
        plan_for(make_toy(SIZES), make("ftrl"), Budget(3.0), 4, batch_rate=0.25)


def test_a_batch_is_the_gradient_in_expectation():
    """300 of 3000 records tell the step to sqrt(0.9/300) of a record's spread; without 1/q it would be a tenth."""
    split = make_toy((3000,))
    method = server_method("step", optax.sgd(1.0))
    plan = plan_for(split, method, NO_PRIVACY, 1, clip=2.0)
    start = np.asarray(start_parameters(plan, split, keys(0)[0]))
    full = simulate(plan, split)[0] - start
    batch = simulate(plan_for(split, method, NO_PRIVACY, 1, batch_rate=0.1, clip=2.0), split)[0] - start
    assert not np.array_equal(batch, full)
    assert np.linalg.norm(batch - full) < 0.2 * np.linalg.norm(full)


@pytest.mark.parametrize("sizes, k", [((20, 40, 11, 50, 30), 2), ((9, 8, 7, 6, 5, 4, 3), 3)])
@pytest.mark.parametrize("name", ["fedavg", "fedgd"])
def test_groups_of_any_size_are_asked_apart_and_on_batches(name: str, sizes: tuple[int, ...], k: int):
    split = make_toy(sizes)
    for rate in (1.0, 0.5):
        plan = plan_for(split, make(name), Budget(8.0), 4, participants=k, batch_rate=rate, clip=2.0)
        assert np.isfinite(np.asarray(simulate(plan, split, apart=True)[0])).all()
