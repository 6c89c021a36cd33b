"""The theorems over whole runs: strong convexity, PL, no convexity, DP-FedGD and ours; and when they say nothing.

The assumptions bound every iterate; with Gaussian noise none is. So paths are stopped when they leave the region
for which the constants are true, which keeps every recursion: whether round t is counted is known before it.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedsofim.theory import uncoupled
from fedsofim.theory.buffer import buffer_bound, sharper_event_bound
from fedsofim.theory.constants import Constants
from fedsofim.theory.descent import Taus, best_taus, c_grad
from fedsofim.theory.floors import Floor, fedgd_floor, gap_floor, stationarity_after, stationarity_floor
from fedsofim.theory.preconditioner import preconditioned
from theory_worlds import Paths, World, bowl, dents, run, surely_above, wavy

RANDOM = np.random.default_rng(6)
REACH = 1.0  # the region: a ball around the minimum
SPREAD = RANDOM.normal(size=(3, 4, 3)) * 0.1
SPREAD -= SPREAD.mean(axis=(0, 1))
START = np.array([0.6, 0.5, -0.3])


def in_ball(world: World, reach: float = REACH, **given) -> Constants:
    """Constants that are true within `reach` of the minimum at 0 of a bowl."""
    k = world.constants(**given)
    lengths = world.L * (reach + np.linalg.norm(world.records, axis=-1))
    bias = float(np.mean(np.maximum(lengths - k.C_g, 0)))
    return replace(k, zeta_max=bias, G_max=world.L * reach)


def stopped(paths: Paths, inside: np.ndarray, least: float) -> np.ndarray:
    """(F - F*) where the path has been inside at all rounds before; round first."""
    kept = np.concatenate([np.ones_like(inside[:1]), np.logical_and.accumulate(inside[:-1])])
    return (paths.F - least) * kept


def bounds(floor: Floor, k: Constants, gap: float) -> list[float]:
    return [floor.after(t, gap) for t in range(k.rounds + 1)]


BOWLS = {"round": np.ones(3), "long": np.array([1.0, 0.3, 0.1]), "flat, which is PL only": np.array([1.0, 0.5, 0.0])}


@pytest.mark.parametrize("form", ["gradient", "fedgd"])
@pytest.mark.parametrize("curvature", BOWLS.values(), ids=BOWLS)
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_the_gap_falls_as_promised(form: str, curvature: np.ndarray, beta: float):
    """thm:conv_sc, thm:conv_pl and thm:dp-fedgd-floor."""
    world, mu = bowl(SPREAD, curvature), float(curvature[curvature > 0].min())
    k = in_ball(world, rho=50.0, eta=5.0, beta=beta, sigma_g=0.8, rounds=60)
    floor = gap_floor(k, mu) if form == "gradient" else fedgd_floor(k, mu)
    paths = run(world, k, START, seeds=2000, form=form)
    inside = np.linalg.norm(paths.theta * (curvature > 0), axis=-1) <= REACH
    gaps = stopped(paths, inside, world.least)
    assert not floor.vacuous and inside.mean() > 0.99
    assert not surely_above(gaps, bounds(floor, k, float(gaps[0, 0]))).any()


@pytest.mark.parametrize("form", ["gradient", "fedgd"])
def test_the_rate_is_nearly_met_and_a_wrong_one_is_noticed(form: str):
    world = bowl(np.zeros((3, 4, 3)), np.ones(3))
    k = in_ball(world, C_g=1.2, rho=1e4, eta=100.0, beta=0.9, sigma_g=1e-3, rounds=100)
    floor = gap_floor(k, 1.0) if form == "gradient" else fedgd_floor(k, 1.0)
    gaps = run(world, k, START, seeds=50, form=form).F
    assert not surely_above(gaps, bounds(floor, k, float(gaps[0, 0]))).any()
    assert floor.rate is not None
    wrong = replace(floor, rate=1 - 1.5 * (1 - floor.rate), additive=0.0)  # 3μ instead of 2μ
    assert surely_above(gaps, bounds(wrong, k, float(gaps[0, 0]))).any()


def test_without_its_additive_part_the_theorem_would_fail():
    world = bowl(SPREAD, np.ones(3))
    k = in_ball(world, rho=50.0, eta=25.0, beta=0.9, sigma_g=0.8, rounds=40)
    floor = gap_floor(k, 1.0)
    gaps = run(world, k, START, seeds=2000).F - world.least
    assert surely_above(gaps, bounds(replace(floor, additive=0.0), k, float(gaps[0, 0]))).any()


def test_pl_without_convexity():
    """thm:conv_pl on a function with hills."""
    reach, world = 4.0, wavy(np.zeros((2, 3, 1)))
    largest = 2 * reach + 3
    k = world.constants(C_g=largest, G_max=largest, rho=1e5, eta=2e3, beta=0.9, sigma_g=2.0, rounds=150)
    floor = gap_floor(k, 1 / 32)
    paths = run(world, k, np.array([3.5]), seeds=500)
    gaps = stopped(paths, np.abs(paths.theta[..., 0]) <= reach, 0.0)
    assert not floor.vacuous
    assert not surely_above(gaps, bounds(floor, k, float(gaps[0, 0]))).any()


DENTED = dents(RANDOM.normal(size=(3, 4, 2)) * 0.3)
STEEPEST = math.sqrt(2) * 0.6495190528383291  # of two coordinates, at u² = 1/3


def test_stationarity_without_convexity():
    """thm:nonconvex-stationarity and cor:biased-nonconvex-stationarity: here the assumptions hold everywhere."""
    k = DENTED.constants(C_g=STEEPEST, G_max=STEEPEST, rho=40.0, eta=4.0, beta=0.9, sigma_g=0.5, rounds=200)
    paths = run(DENTED, k, np.array([2.0, -1.5]), seeds=500)
    assert np.abs(paths.zeta).max() < 1e-12  # nothing is clipped
    found = np.mean(np.sum(paths.gradient**2, axis=-1), axis=0)
    floor, gap = stationarity_floor(k), float(paths.F[0, 0])
    assert not floor.vacuous
    assert not surely_above(found, stationarity_after(k, floor, gap)).any()


def test_stationarity_is_nearly_met_and_a_wrong_constant_is_noticed():
    world = dents(np.zeros((2, 2, 2)))
    k = world.constants(C_g=STEEPEST, rho=1e4, eta=300.0, beta=0.9, sigma_g=0.0, rounds=120)
    paths = run(world, k, np.array([1.0, 1.0]), seeds=2)
    found = np.mean(np.sum(paths.gradient**2, axis=-1), axis=0)
    floor, gap = stationarity_floor(k), float(paths.F[0, 0])
    assert np.all(found <= stationarity_after(k, floor, gap))
    assert np.all(found > 0.9 * gap / (k.eta * floor.coefficient * k.rounds))


# --- ours, for the gradient form ----------------------------------------------------------------------------


def test_our_floor_holds_where_the_papers_says_nothing():
    """ρ < C_g²: the paper's floor is vacuous, ours is not."""
    world = bowl(SPREAD, np.ones(3))
    k = replace(in_ball(world, C_g=1.5, rho=0.5, eta=0.02, beta=0.5, sigma_g=0.02, rounds=150), mu=1.0)
    ours = uncoupled.uncoupled_floor(k, delta_M=0.01)
    paths = run(world, k, START, seeds=1000)
    event = np.sum(paths.M**2, axis=-1) <= sharper_event_bound(k, 0.01)
    kept = np.concatenate([event[:1] | True, np.linalg.norm(paths.theta[1:], axis=-1) <= REACH])
    kept[1:] &= event
    gaps = stopped(paths, kept, world.least)
    assert (
        ours.floor is not None and ours.floor.rate is not None and not ours.floor.vacuous and gap_floor(k, 1.0).vacuous
    )
    assert not surely_above(1.0 - event.all(axis=0), 0.01).any()
    assert not surely_above(gaps, bounds(ours.floor, k, float(gaps[0, 0]))).any()
    wrong = replace(ours.floor, rate=1 - 8 * (1 - ours.floor.rate), additive=0.0)
    assert surely_above(gaps, bounds(wrong, k, float(gaps[0, 0]))).any()


# --- when it says nothing -----------------------------------------------------------------------------------


def drawn(seed: int) -> Constants:
    random = np.random.default_rng(seed)
    L, C_g, rho, eta, zeta, sigma = np.exp(2 * random.normal(size=6))
    return Constants(L=L, C_g=C_g, rho=rho, beta=random.uniform(), eta=eta, d=5, sizes=(7, 8), sigma_g=sigma,
                     zeta_max=zeta if seed % 2 else 0.0, mu=L * random.uniform(1e-3, 1))  # fmt: skip


def test_below_the_buffers_bound_every_floor_is_vacuous():
    """Whatever the constants and τ: rho <= M̄² is enough. Above it some are not."""
    for k in map(drawn, range(100)):
        k, mu = replace(k, rho=min(k.rho, buffer_bound(k))), k.mu or 0.0
        for taus in (best_taus(k), Taus(0.3 / k.rho, 0.9 / k.rho), Taus(1e-3 / k.rho, 1e-3 / k.rho)):
            assert c_grad(k.rho, taus) > 0
            assert gap_floor(k, mu, taus).vacuous
            assert stationarity_floor(k, taus).vacuous


def test_above_it_a_floor_can_say_something():
    k = Constants(L=1.0, C_g=1.0, rho=100.0, beta=0.9, eta=1.0, d=5, sizes=(1000, 1000), sigma_g=1.0, mu=1.0)
    assert not gap_floor(k, 1.0).vacuous and not stationarity_floor(k).vacuous


def test_at_equal_steps_fedgds_bound_is_better_in_both_ways():
    """The paper says that its bounds do not show a smaller floor than DP-FedGD's. They show a larger one, always."""
    for k in map(drawn, range(100)):
        mu = k.mu or 0.0
        k = replace(k, eta=0.4 * k.rho / mu)  # both contract
        ours, theirs = gap_floor(k, mu), fedgd_floor(k, mu)
        assert ours.value > theirs.value
        same = fedgd_floor(k, mu, tau=best_taus(k).bias * k.rho)  # with the same τ for the bias, rates compare too
        assert ours.rate is not None and same.rate is not None and ours.rate >= same.rate


def test_the_floor_is_the_proofs_and_not_the_algorithms():
    """No noise, no clipping: the gradient form converges, and its floor stays above what is known anyway."""
    world = bowl(np.zeros((1, 1, 3)), np.array([1.0, 0.5, 0.2]))
    k = replace(in_ball(world, C_g=2.0, rho=0.5, eta=0.1, beta=0.9, sigma_g=0.0, rounds=600), mu=0.2)
    gap = run(world, k, START, seeds=1).F[-1, 0]
    assert gap < 1e-12
    assert gap_floor(k, 0.2).vacuous and gap_floor(replace(k, eta=1e-9), 0.2).vacuous


def test_the_assumptions_contradict_each_other():
    """ass:grad_bounded and ass:bias bound |∇F(θ_t)| for all t, while Gaussian noise carries the gradient form any
    distance: two draws of size K, each of positive density, move θ_2 by about K. Strong convexity makes |∇F| follow."""
    beta, rho, eta = 0.9, 0.5, 0.1
    found = []
    for K in (1e2, 1e4, 1e6):
        M = (1 - beta) * K * np.eye(2)[0]  # G_0 = K·e_1
        G = -beta / (1 - beta) * M  # G_1 that empties the buffer: H_1 = I/ρ
        found.append(eta * np.linalg.norm(preconditioned(beta * M + (1 - beta) * G, G, rho)))
    np.testing.assert_allclose(np.diff(np.log10(found)), 2.0, atol=1e-6)


def test_g_max_follows_from_the_clipping_bias():
    k = Constants(L=1.0, C_g=2.0, rho=1.0, beta=0.5, eta=0.1, d=2, sizes=(3,), sigma_g=1.0, zeta_max=0.5)
    assert k.gradient == 2.5 and replace(k, G_max=100.0).gradient == 2.5 and replace(k, G_max=1.0).gradient == 1.0
