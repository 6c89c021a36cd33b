"""What the paper says of partial participation, mini-batches, local steps and any privatised update, and what is so.

Labels are the paper's. Each price is computed anew by an independent accountant (dp-accounting's PLD).
"""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import pld

import fedsofim as fs
from fedsofim.core.participation import times_asked
from fedsofim.core.plan import Plan
from fedsofim.simulation.simulator import simulate_to_end
from method_helpers import blobs, gradients, planned, start

DATA = blobs((12, 9, 15, 6))
SERVERS = [
    {"direction": "gradient"},  # the proposition's own step, H·Δ
    {"direction": "momentum"},
    {"variant": "ema-only"},
    {"curvature": "rank-k", "rank": 3},
    {"curvature": "kronecker"},
    {"blocks": "leaf"},
]


def spent_by_another_accountant(plan: Plan, releases: int, rate: float = 1.0) -> float:
    """The epsilon of so many releases at the plan's noise, each over a secret sample of the records."""
    (multiplier,) = plan.multipliers.values()
    event: dpa.DpEvent = dpa.GaussianDpEvent(multiplier)
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    accountant.compose(event if rate == 1 else dpa.PoissonSampledDpEvent(rate, event), releases)
    return accountant.get_epsilon(plan.delta)


@pytest.mark.parametrize("update", [{}, {"local_steps": 3}, {"batch_rate": 0.3}, {"participants": 2}], ids=str)
def test_any_privatised_update_costs_what_it_costs_before_the_server_looks_at_it(update: dict):
    """prop:general-local-update-privacy, thm:accountant-privacy: whatever the server does with Δ, the ledger is that of
    the update alone, i.e. of plain descent on it."""
    run = {k: v for k, v in update.items() if k != "local_steps"}
    steps = update.get("local_steps", 1)
    plain = planned(DATA, fs.fedavg(local_steps=steps), 1.0, rounds=6, **run)
    for settings in SERVERS[: None if not update else 2]:
        plan = planned(DATA, fs.fedsofim(**settings, local_steps=steps), 1.0, rounds=6, **run)
        assert plan.ledger == plain.ledger and plan.multipliers == plain.multipliers
        assert plan.epsilon == plain.epsilon


def test_partial_participation_costs_the_rounds_a_client_is_asked_in():
    """sec. 3, "the mechanism itself does not rely on full participation": true of the mechanism. Its price is that of
    the rounds a client takes part in, T·k/n of them under a public schedule; being left out hides nothing more."""
    plan = planned(DATA, fs.fedsofim(), 1.0, rounds=10, participants=2)
    (charge,) = plan.ledger
    assert charge.releases == times_asked(10, 2) == 5
    assert charge.sample == 1  # no amplification is claimed: who takes part is known
    assert spent_by_another_accountant(plan, 5) == pytest.approx(1.0, rel=5e-3)
    assert spent_by_another_accountant(plan, 10) > 1.3  # as if asked in every round: what full participation would cost


def test_aggregation_is_over_those_who_take_part():
    """sec. 3: "aggregation is performed over S_t rather than [n]". One round at zero noise is the mean of group 0."""
    plan = planned(DATA, fs.fedgd(lr=1.0), math.inf, rounds=1, participants=2, clip=1e6)
    theta = simulate_to_end(plan, DATA, 0, every=1)[0].params
    each = gradients(DATA, start(DATA))
    np.testing.assert_allclose(theta, start(DATA) - (each[0] + each[2]) / 2, rtol=1e-3, atol=1e-4)


def test_mini_batches_cost_less_than_full_batches_at_equal_noise_and_exactly_so_much():
    """rem. after prop:biased-aggregate-descent, "mini-batching changes the noise and bias constants": and the price, by
    secret sampling. The paper says nothing of that; counting a batch as a full batch is an upper bound."""
    plan = planned(DATA, fs.fedsofim(), 1.0, rounds=6, batch_rate=0.3)
    assert plan.ledger[0].sample == 0.3 and plan.ledger[0].releases == 6
    assert spent_by_another_accountant(plan, 6, 0.3) == pytest.approx(1.0, rel=5e-3)
    assert spent_by_another_accountant(plan, 6) > 1.0


def test_k_local_steps_cost_k_releases_a_round():
    """rem. after prop:biased-aggregate-descent says that local training is paid for by the bias radius B. Of descent
    that is so. Of privacy there is a price too: K steps are K releases, and noise for T of them would be too little."""
    plan = planned(DATA, fs.fedsofim(local_steps=5), 1.0, rounds=4)
    assert plan.ledger[0].releases == 20
    assert spent_by_another_accountant(plan, 20) == pytest.approx(1.0, rel=5e-3)
    one = planned(DATA, fs.fedsofim(), 1.0, rounds=4)
    assert spent_by_another_accountant(one, 20) > 2.0  # K = 5 at the noise of K = 1


def test_the_drift_of_local_steps_is_within_its_radius():
    """prop:biased-aggregate-descent: G = ∇F + b + ξ with |b| <= B. Without clipping and noise b is the drift of K
    steps, of at most B_drift = L·η_c·G_max·(K-1)/2, for y_k is at most η_c·k·G_max away from θ."""
    theta, steps, eta = start(DATA), 5, 0.05
    y, along = np.stack([theta] * 4), []
    for _ in range(steps):
        along.append(np.stack(gradients(DATA, y)))
        y = y - eta * along[-1]
    x = [np.c_[DATA.dataset.x_train[p], np.ones(len(p))] for p in DATA.parts]
    smooth = max(np.linalg.norm(a.T @ a, 2) / len(a) / 2 for a in x)  # the softmax's Hessian is at most 1/2
    longest = max(np.linalg.norm(g) for at in along for g in at)
    drift = np.linalg.norm(np.mean(along, axis=(0, 1)) - np.mean(along[0], axis=0))
    assert 0 < drift <= smooth * eta * longest * (steps - 1) / 2
    assert drift > 0.01 * smooth * eta * longest * (steps - 1) / 2  # and it is not nothing


@pytest.mark.slow
def test_a_mini_batchs_own_error_is_noise_and_not_bias():
    """prop:biased-aggregate-descent lets b_t contain "stochastic mini-batch bias": with secret samples of rate q and a
    mean over q·|D_i| there is none. The mean over many batches is the full gradient; their spread belongs into ξ_t."""
    rounds, rate = 600, 0.3

    def collect(mean, seen, params, facts):
        return params, (seen[0] + mean, seen[1] + mean**2)

    method = fs.Method("still", fs.OneGradient(), collect, init=lambda p: (0 * p, 0 * p))
    plan = planned(DATA, method, math.inf, rounds=rounds, batch_rate=rate, clip=1e6)
    end, _ = simulate_to_end(plan, DATA, 0, every=rounds)
    mean, square = (np.asarray(s) / rounds for s in end.state)
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    assert spread.max() > 0.05  # so no B bounds it surely, and small
    assert np.abs(mean - np.mean(gradients(DATA, start(DATA)), axis=0)).max() < 5 * spread.max() / math.sqrt(rounds)
