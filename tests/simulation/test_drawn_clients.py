"""Clients that take part by chance under secure sum: who is there, what it costs, where it is refused."""

import math
from typing import Any

import dp_accounting as dpa
import numpy as np
import optax
import pytest
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution

from diary import silent
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.clipping import guarded
from fedsofim.core.drawn_clients import Attended, delta_of_attended, epsilon_of_attended
from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.method import server_method
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.simulation.simulator import keys, simulate, start_parameters
from fedsofim.simulation.training import plan_for
from toy import make_toy

SIZES = (20, 40, 11, 50, 30)


def known_attendance(mu: float, rate: float, times: int, epsilon: float) -> float:
    """delta by dp-accounting's losses of one release, which happens with this probability, seen: (1-q) at 0 and the
    rest its own; convolved as often as there are rounds."""
    step = 1e-2
    one = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=step)._pmf_remove
    dense = one.to_dense_pmf()
    losses, first = rate * dense._probs, dense._lower_loss
    losses[-first] += 1 - rate
    size = times * (len(losses) - 1) + 1
    spectrum = np.fft.rfft(losses, 2 * size) ** times
    all_rounds, at = np.fft.irfft(spectrum, 2 * size)[:size], step * (np.arange(size) + times * first)
    above = at > epsilon
    beyond = 1 - (1 - rate * dense._infinity_mass) ** times
    return beyond + float(np.sum(all_rounds[above] * -np.expm1(epsilon - at[above])))


@pytest.mark.parametrize("mu, rate, times", [(0.5, 0.1, 30), (1.0, 0.5, 8)])
def test_an_independent_accountant_agrees_where_presence_may_be_seen(mu: float, rate: float, times: int):
    found = epsilon_of_attended(0.0, Attended(mu, rate, times), 1e-5)
    assert known_attendance(mu, rate, times, found) == pytest.approx(1e-5, rel=0.05)
    assert delta_of_attended(0.0, Attended(mu, rate, times), found) <= 1e-5


def test_the_price_lies_between_always_and_as_often_as_expected():
    """A schedule that asks q·T times is cheaper than a draw that asks so often on average; always is dearer."""
    found = epsilon_of_attended(0.3, Attended(0.5, 0.2, 50), 1e-6)
    assert epsilon_of(math.hypot(0.3, 0.5 * math.sqrt(10)), 1e-6) < found
    assert found < epsilon_of(math.hypot(0.3, 0.5 * math.sqrt(50)), 1e-6)
    sure = epsilon_of_attended(0.0, Attended(0.5, 1 - 1e-15, 9), 1e-6)
    assert sure == pytest.approx(epsilon_of(1.5, 1e-6), rel=1e-6)


def test_records_of_clients_by_chance_are_priced_with_presence_seen():
    plan = plan_for(make_toy(SIZES), make("fedgd"), Budget(3.0), 12, client_rate=0.25, trust="secure-sum")
    (charge,) = plan.ledger
    mu = 2 / plan.multipliers[charge.site]
    assert plan.mu is None and charge.attendance == 0.25 and charge.sample == 1
    assert plan.epsilon <= 3.0
    assert plan.epsilon == pytest.approx(epsilon_of_attended(0.0, Attended(mu, 0.25, 12), plan.delta), rel=1e-9)


@pytest.mark.slow
def test_whole_clients_by_chance_are_sampled_units_and_an_independent_accountant_agrees():
    split = make_toy(SIZES).protecting("client", most=50)
    plan = plan_for(split, make("fedgd"), Budget(3.0), 12, client_rate=0.25, trust="secure-sum")
    (charge,) = plan.ledger
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dpa.PoissonSampledDpEvent(0.25, dpa.GaussianDpEvent(plan.multipliers[charge.site])), 12)
    assert charge.sample == 0.25 and charge.attendance == 1
    assert accountant.get_epsilon(plan.delta) == pytest.approx(plan.epsilon, rel=1e-2)
    assert np.isfinite(np.asarray(simulate(plan, split)[0])).all()


def moved(split: Any, rounds: int = 1, seed: int = 0, **how: Any) -> np.ndarray:
    plan = plan_for(split, server_method("step", optax.sgd(1.0)), clip=2.0, trust="secure-sum", rounds=rounds, **how)
    return np.asarray(simulate(plan, split, seed)[0] - start_parameters(plan, split, keys(seed)[0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "records, unit, clip",
    [
        (1, None, guarded(guarded(2.0))),
        (1, "client", guarded(guarded(2.0))),
        (3, "client", guarded(guarded(2.0))),
        (3, None, guarded(2.0)),
    ],
)
def test_a_client_that_is_one_unit_is_a_drawn_record_down_to_its_roundings(records: int, unit: Any, clip: float):
    """Its draw is secret, so the sum is one of drawn records: beside one clip roundings count twice (docs/clipping.md).
    With many records who is there is priced as seen."""
    n, rate = 100, 0.3
    split = silent((records,) * n, n)
    split.dataset.x_train[:] = 1e6 * np.repeat(np.eye(n, dtype=np.float32), records, axis=0)
    split.dataset.y_train[:] = 0
    split = split if unit is None else split.protecting(unit, most=records)
    rows = moved(split, budget=NO_PRIVACY, client_rate=rate)[:-1]
    lengths = np.linalg.norm(rows, axis=1) * n * rate
    assert 0 < np.sum(lengths > 0) < n
    np.testing.assert_allclose(lengths[lengths > 0], clip, rtol=1e-5)


@pytest.mark.slow
def test_a_client_is_there_whole_or_not_at_all_and_the_mean_is_right_in_expectation():
    """Clients of one record, each with a feature of its own and 3 copies of it: its row moves, or does not."""
    n, rate = 200, 0.3
    split = silent((3,) * n, n)
    split.dataset.x_train[:] = np.repeat(np.eye(n, dtype=np.float32), 3, axis=0)
    full, some = moved(split, budget=NO_PRIVACY)[:-1], moved(split, budget=NO_PRIVACY, client_rate=rate)[:-1]
    there = np.abs(some).sum(axis=1) > 0
    assert abs(there.mean() - rate) < 6 * math.sqrt(rate * (1 - rate) / n)
    np.testing.assert_allclose(some[there], full[there] / rate, rtol=1e-4)


@pytest.mark.slow
def test_who_is_there_is_drawn_anew_in_every_round():
    n = 200
    split = silent((2,) * n, n)
    split.dataset.x_train[:] = np.repeat(np.eye(n, dtype=np.float32), 2, axis=0)
    once, twice = (np.abs(moved(split, r, budget=NO_PRIVACY, client_rate=0.5)[:-1]).sum(axis=1) > 0 for r in (1, 2))
    assert np.all(twice[once]) and 0.65 < twice.mean() < 0.85


@pytest.mark.slow
def test_the_absent_send_their_noise():
    """Noise does not depend on who is there: it is that of all, over the expected weight."""
    split = silent((5, 6, 7, 8), 2000)
    plan = plan_for(split, make("fedgd"), Budget(3.0), 1, client_rate=0.01, trust="secure-sum", clip=2.0)
    noise = moved(split, budget=Budget(3.0), client_rate=0.01)[:-1]
    assert np.std(noise) == pytest.approx(plan.noise_std, rel=0.06)
    assert plan.noise_std == pytest.approx(plan.sum_std / (4 * 5) / 0.01)


@pytest.mark.slow
def test_asking_each_is_asking_all_in_one_call():
    split = make_toy(SIZES)
    plan = plan_for(split, make("fedgd"), NO_PRIVACY, 3, client_rate=0.5, trust="secure-sum", clip=2.0)
    together, each = (simulate(plan, split, apart=apart)[0] for apart in (False, True))
    np.testing.assert_allclose(together, each, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name, how, why",
    [
        ("fedgd", {"trust": "local"}, "everyone would see who answers"),
        ("scaffold", {}, "a client's noise is in its own steps"),
        ("ftrl", {}, "noise laid out over the rounds is not"),
    ],
)
def test_what_cannot_be_hidden_or_priced_is_refused(name: str, how: Any, why: str):
    given: dict[str, Any] = {"client_rate": 0.5, "trust": "secure-sum", **how}
    with pytest.raises(Refused, match=why):
        plan_for(make_toy(SIZES), make(name), Budget(3.0), 4, **given)


@pytest.mark.parametrize("how", [{"participants": 2}, {"batch_rate": 0.5}, {"min_clients": 4}])
def test_it_stands_alone(how: Any):
    with pytest.raises(InputError, match="stands alone"):
        plan_for(make_toy(SIZES), make("fedgd"), Budget(3.0), 4, client_rate=0.5, trust="secure-sum", **how)


@pytest.mark.parametrize("rate", [0, 1.5, "half"])
def test_the_rate_is_checked(rate: Any):
    with pytest.raises(InputError, match="client_rate"):
        plan_for(make_toy(SIZES), make("fedgd"), Budget(3.0), 4, client_rate=rate, trust="secure-sum")
