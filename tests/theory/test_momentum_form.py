"""The momentum form: what is proved of it here holds, and is met closely enough for a wrong constant to be noticed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from checked_formulas import decayed_radius, momentum_step
from fedsofim.theory import momentum_form as ours
from fedsofim.theory.buffer import noise_left
from theory_worlds import World, bowl, dents, run, surely_above, wavy

RANDOM = np.random.default_rng(7)
WORLDS = {
    "bowl": bowl(RANDOM.normal(size=(3, 4, 3)), np.array([1.0, 0.5, 0.1])),
    "wavy": wavy(np.zeros((2, 3, 3))),
    "dents": dents(RANDOM.normal(size=(3, 4, 3))),
}


def test_no_step_is_longer_and_some_are_as_long(random: np.random.Generator):
    rho = 0.3
    M = random.normal(size=(50_000, 4)) * np.exp(3 * random.normal(size=(50_000, 1)))
    bound = ours.largest_step(1.0, rho)
    assert np.all(np.linalg.norm(momentum_step(M, rho), axis=1) <= bound * (1 + 1e-12))
    met = np.linalg.norm(momentum_step(math.sqrt(rho) * np.eye(4)[:1], rho))
    assert met == pytest.approx(bound) and met > 0.99 * bound


@pytest.mark.parametrize("corrected", [False, True])
def test_whatever_the_noise_the_drift_is_bounded(corrected: bool):
    world = WORLDS["bowl"]
    k = world.constants(rho=0.4, eta=0.7, beta=0.5, sigma_g=300.0, rounds=40)
    theta = run(world, k, np.ones(3), seeds=500, form="momentum", corrected=corrected).theta
    moved = np.linalg.norm(theta - theta[0], axis=-1)
    assert np.all(moved <= np.array([[ours.largest_drift(k, t)] for t in range(41)]) * (1 + 1e-12))


def test_the_drift_is_met_by_a_steady_pull():
    """Records infinitely far away and |M| = C_g = sqrt(ρ) from the first round on, by bias correction."""
    world = bowl(np.full((2, 2, 3), 1e9), np.ones(3))
    k = world.constants(rho=1.0, C_g=1.0, eta=0.7, sigma_g=0.0, rounds=20)
    theta = run(world, k, np.zeros(3), seeds=1, form="momentum", corrected=True).theta
    assert np.linalg.norm(theta[-1, 0]) == pytest.approx(ours.largest_drift(k))


def test_with_weight_decay_it_stays_in_a_ball_for_ever(random: np.random.Generator):
    rho, eta, decay = 0.5, 0.8, 0.05
    theta, radius = np.full((200, 3), 2.0), decayed_radius(math.sqrt(12), rho, decay)
    for t in range(400):
        pull = random.normal(size=theta.shape) * 30 if t < 200 else -math.sqrt(rho) * np.eye(3)[0] + 0 * theta
        theta = (1 - eta * decay) * theta - eta * momentum_step(pull, rho)
        assert np.all(np.linalg.norm(theta, axis=1) <= radius)
    assert np.linalg.norm(theta[0]) > 0.99 * radius  # the steady pull ends there


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("rho", [0.05, 3.0])
@pytest.mark.parametrize("corrected", [False, True])
def test_every_step_descends_as_promised(world: World, rho: float, corrected: bool):
    """Surely, not on average: noise, clipping bias and large steps included."""
    for eta, sigma in ((0.05, 0.5), (0.5, 30.0), (3.0, 3.0)):
        k = world.constants(rho=rho, eta=eta, beta=0.7, sigma_g=sigma, rounds=30)
        paths = run(world, k, 2 * np.ones(3), seeds=200, form="momentum", corrected=corrected)
        square = np.sum(paths.gradient**2, axis=-1)
        error = np.sum((paths.M - paths.gradient) ** 2, axis=-1)
        change = np.diff(paths.F, axis=0)
        assert np.all(change <= ours.one_step(k, square, error) + 1e-9 * (1 + np.abs(paths.F[:-1])))


def one_change(k, x: float, y: float) -> float:
    """F(θ') - F(θ) on F = L/2·θ² where ∇F = x and M = y."""
    theta = x / k.L
    return k.L / 2 * ((theta - k.eta * y / (k.rho + y * y)) ** 2 - theta**2)


def test_a_wrong_constant_in_the_descent_is_noticed():
    steep = WORLDS["bowl"].constants(L=200.0, rho=1.0, eta=1.0)
    change = one_change(steep, 0.0, 1.0)  # noise alone, |M| = sqrt(ρ), a large step: the smoothness part
    bound = ours.one_step(steep, 0.0, 1.0)
    assert change <= bound and change > bound - (1 / 8 - 1 / 9) * steep.L
    gentle = WORLDS["bowl"].constants(L=1e-6, rho=1.0, eta=1.0)
    x, y = 1.155e-3, -1e-3  # M against ∇F: the error's part
    change, error = one_change(gentle, x, y), (x - y) ** 2
    bound = ours.one_step(gentle, x * x, error)
    assert change <= bound and change > bound - 0.8 * gentle.eta * error / gentle.rho


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize(("rho", "eta"), [(0.5, 0.05), (50.0, 10.0)])
def test_the_error_of_the_buffer(corrected: bool, rho: float, eta: float):
    """Where steps are at most 1/(2·sqrt(ρ)), and where |M|/ρ is the smaller bound; and a buffer that lags behind."""
    world = WORLDS["bowl"]
    k = world.constants(rho=rho, eta=eta, beta=0.8, sigma_g=2.0, rounds=40, C_g=1.0)
    paths = run(world, k, 2 * np.ones(3), seeds=1000, form="momentum", corrected=corrected)
    start = float(np.linalg.norm(paths.gradient[0, 0]))
    k = replace(k, zeta_max=float(np.linalg.norm(paths.zeta, axis=-1).max()), start_gradient=start)
    error = np.sum((paths.M - paths.gradient) ** 2, axis=-1)
    assert not surely_above(error, [ours.error_bound(k, t, corrected) for t in range(40)]).any()
    steps = k.eta**2 * np.sum(paths.steps**2, axis=-1)
    assert not surely_above(steps, ours.typical_step(k, corrected) ** 2).any()
    assert (ours.typical_step(k, corrected) < ours.largest_step(k.eta, rho)) == (rho == 50.0)


def test_a_lagging_buffer_is_late_by_its_mean_age():
    """The drift's part, met: records far away, steady steps, no noise, no clipping. A hundredth less is noticed."""
    world = bowl(np.full((2, 2, 1), 1e3), np.ones(1))
    k = world.constants(rho=1e6, C_g=1.001e3, eta=10.0, beta=0.8, sigma_g=0.0, rounds=60, start_gradient=1e3)
    paths = run(world, k, np.zeros(1), seeds=2, form="momentum", corrected=True)
    lag = np.abs(paths.M - paths.gradient)[-1, 0, 0]
    bound = math.sqrt(ours.error_bound(k, 59, corrected=True))
    assert 0.99 * bound < lag <= bound * (1 + 1e-6)


@pytest.mark.parametrize("corrected", [False, True])
def test_the_errors_noise_is_exact(corrected: bool):
    """Nothing but noise: at the minimum, with steps of next to nothing. A tenth less would be noticed."""
    world = bowl(np.zeros((2, 2, 3)), np.ones(3))
    k = world.constants(rho=0.5, eta=1e-9, beta=0.8, sigma_g=2.0, rounds=15, start_gradient=0.0)
    error = np.sum(run(world, k, np.zeros(3), seeds=20_000, form="momentum", corrected=corrected).M ** 2, axis=-1)
    bound = np.array([ours.error_bound(k, t, corrected) for t in range(15)])
    assert not surely_above(error, bound).any()
    assert surely_above(error, 0.9 * bound).all()


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("t", [0, 1, 7])
def test_ages_and_weights_are_those_of_the_buffer(t: int, corrected: bool):
    beta = 0.8
    w = (1 - beta) * beta ** (t - np.arange(t + 1))
    missing = 0.0 if corrected else 1 - w.sum()
    w = w / w.sum() if corrected else w
    assert ours.mean_age(beta, t, corrected) == pytest.approx(w @ (t - np.arange(t + 1)) + missing * t)
    assert ours.squared_weights(beta, t, corrected) == pytest.approx(np.sum(w**2))


def test_the_theorem_says_something_and_holds(random: np.random.Generator):
    """Without convexity: the mean of |∇F|²/(ρ + |∇F|²) over the rounds."""
    world, steepest = dents(random.normal(size=(3, 4, 2)) * 0.3), math.sqrt(2) * 0.6495190528383291
    k = world.constants(C_g=steepest, rho=1.0, eta=0.02, beta=0.5, sigma_g=0.1, rounds=3000)
    paths = run(world, k, np.array([1.0, -1.0]), seeds=10, form="momentum")
    k = replace(k, gap=float(paths.F[0, 0]), start_gradient=float(np.linalg.norm(paths.gradient[0, 0])))
    square = np.sum(paths.gradient**2, axis=-1)
    found, promised = np.mean(square / (k.rho + square), axis=0), ours.momentum_bounds(k)
    assert promised.stationarity is not None and promised.stationarity < 0.3 and not promised.vacuous
    assert np.all(found <= promised.stationarity)
    assert np.all(found > paths.F[0, 0] / (k.eta * k.rounds) / 10)  # and it is no factor of 40 away


def test_the_gap_under_strong_convexity():
    world = bowl(np.zeros((2, 2, 2)), np.array([1.0, 0.5]))
    k = world.constants(C_g=9.0, rho=4.0, eta=0.1, beta=0.5, sigma_g=0.05, rounds=400, mu=0.5)
    paths = run(world, k, np.array([0.3, -0.2]), seeds=200, form="momentum")
    k = replace(k, gap=float(paths.F[0, 0]), start_gradient=float(np.linalg.norm(paths.gradient[0, 0])))
    promised = ours.momentum_bounds(k)
    assert promised.gap is not None
    assert not surely_above(paths.F[-1], promised.gap).any()
    assert np.linalg.norm(paths.gradient, axis=-1).max() <= promised.gradient


# --- lem:momentum_variance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_the_noise_in_the_buffer(beta: float):
    """lem:momentum_variance, of the noise alone, by Monte Carlo: at t = 0, early and late."""
    xi = np.random.default_rng(8).standard_normal((80, 40_000))
    M, found = np.zeros(40_000), []
    for row in xi:
        M = beta * M + (1 - beta) * row
        found.append(np.var(M))
    for t in (0, 3, 79):
        assert found[t] == pytest.approx(noise_left(beta, t), rel=0.04)
    if beta:
        assert found[79] != pytest.approx((1 - beta) ** 2, rel=0.2)  # a wrong constant would be seen


@pytest.mark.parametrize(("step", "times"), [(0.5, (0.2, 0.3)), (1.99, (10.0, 11.0))])
def test_the_buffer_itself_has_another_variance(step: float, times: tuple[float, float]):
    """Where lem:momentum_variance is wrong: ∇F(θ_s) depends on earlier noise. F = θ²/2, gradient descent with steps a
    (the gradient form as ρ grows with η/ρ = a fixed), β = 0.9: the exact variance, by Lyapunov's equation, is far below
    the lemma's (1-β)/(1+β)·ν² for small steps and above it for large ones."""
    beta = 0.9
    A = np.array([[1 - step, 0.0], [1 - beta, beta]])  # of (θ, M): θ' = θ - a(θ + ξ), M' = βM + (1-β)(θ + ξ)
    B = np.array([[-step], [1 - beta]])
    exact = solve_discrete_lyapunov(A, B @ B.T)[1, 1] / noise_left(beta)
    assert times[0] < exact < times[1]
    random = np.random.default_rng(9)
    theta, M = np.zeros(20_000), np.zeros(20_000)
    for _ in range(500):
        G = theta + random.standard_normal(20_000)
        theta, M = theta - step * G, beta * M + (1 - beta) * G
    assert np.var(M) / noise_left(beta) == pytest.approx(exact, rel=0.06)
