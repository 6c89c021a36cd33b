"""One step of the gradient form and of DP-FedGD: the paper's inequality, where it is met, wrong ones; and ours."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from checked_formulas import stein
from fedsofim.theory import uncoupled
from fedsofim.theory.buffer import aggregate_bound, recursion
from fedsofim.theory.constants import Constants
from fedsofim.theory.descent import Taus, best_taus, c_grad, gamma, general_gamma, least_taus
from fedsofim.theory.floors import fedgd_floor
from fedsofim.theory.preconditioner import preconditioned
from theory_worlds import World, bowl, dents, run, surely_above, wavy

SEEDS = 20_000
RANDOM = np.random.default_rng(3)
WORLDS = {
    "bowl": bowl(RANDOM.normal(size=(3, 4, 3)), np.array([1.0, 0.5, 0.1])),
    "wavy": wavy(np.zeros((2, 3, 3))),
    "dents": dents(RANDOM.normal(size=(3, 4, 3))),
}
TAUS = [Taus(0.1, 0.1), Taus(1.0, 0.3), Taus(5.0, 40.0)]


def at(world: World, theta: np.ndarray, **given) -> tuple[Constants, float, float]:
    """Constants that are true at one point, with |∇F|² and F there."""
    k = world.constants(rounds=1, **given)
    gradient = world.gradient(theta[None])[0]
    bias = float(np.linalg.norm(world.clipped(theta[None], k.C_g)[0] - gradient))
    square = float(gradient @ gradient)
    return replace(k, zeta_max=bias, G_max=max(math.sqrt(square), 1e-9)), square, float(world.value(theta[None])[0])


def after(world: World, k: Constants, theta: np.ndarray, before: np.ndarray, form: str = "gradient") -> np.ndarray:
    return run(world, k, theta, seeds=SEEDS, buffer=before, form=form).F[1]


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("rho", [0.2, 5.0])
def test_one_step_given_the_past(world: World, rho: float):
    """lem:one_step, at random points and buffers, for several τ; and ours, which needs no G_max."""
    for draw in range(3):
        random = np.random.default_rng(draw)
        theta, before = random.normal(size=3), random.normal(size=3)
        k, square, F = at(world, theta, rho=rho, eta=0.2 * rho, beta=0.6, sigma_g=8.0)
        found = after(world, k, theta, before)
        m2 = recursion(k, float(before @ before))
        for taus in TAUS:
            bound = F - k.eta * c_grad(rho, taus) * square + gamma(k, taus, buffer=m2).total
            assert not surely_above(found, bound).any()
        second = min(aggregate_bound(k) / rho**2, uncoupled.step_bound(k, float(np.linalg.norm(before))) ** 2)
        pull = k.zeta_max / rho + uncoupled.noise_pull(k)
        ours = F - k.eta * square / (rho + m2) + k.eta * math.sqrt(square) * pull + k.L * k.eta**2 / 2 * second
        assert not surely_above(found, ours).any()


def clipped_point(beta: float = 1 - 1e-6) -> tuple[World, Constants, np.ndarray, float, float]:
    """Where lem:one_step is met: all records alike, far away, no noise, nothing in the buffer yet."""
    world, theta = bowl(np.zeros((2, 2, 3)), np.ones(3)), np.array([3.0, 0.0, 0.0])
    k, square, F = at(world, theta, rho=2.0, eta=0.5, beta=beta, sigma_g=0.0)
    return world, k, theta, square, F


def test_one_step_is_met_and_a_wrong_constant_is_noticed():
    world, k, theta, square, F = clipped_point()
    taus = Taus(k.zeta_max / (k.rho * math.sqrt(square)), 0.0)
    (found,) = after(world, k, theta, np.zeros(3))[:1]
    parts = gamma(k, taus, buffer=recursion(k, 0.0))
    bound = F - k.eta * c_grad(k.rho, taus) * square + parts.total
    assert found == pytest.approx(bound, abs=1e-5)
    assert found > bound - 0.5 * parts.bias  # ζ²/(4τρ²) instead of ζ²/(2τρ²)
    small = general_gamma(
        k, taus, bias=0.9 * k.zeta_max, second_moment=aggregate_bound(k), buffer=recursion(k, 0.0)
    )  # a B that is too small
    assert found > F - k.eta * c_grad(k.rho, taus) * square + small.total
    assert found > bound - 0.5 * parts.smoothness  # L/4 instead of L/2
    assert found > bound - 0.5 * k.eta * (1 / k.rho - c_grad(k.rho, taus)) * square  # 1/ρ - τ/4 instead of 1/ρ - τ/2


def test_the_noise_in_the_smoothness_part_is_needed():
    """At the minimum, with τ as large as one likes (c_∇ may be negative in lem:one_step), noise alone lifts F."""
    world = bowl(np.zeros((2, 2, 3)), np.ones(3))
    k, _, F = at(world, np.zeros(3), rho=2.0, eta=0.5, beta=1 - 1e-6, sigma_g=2e4, C_g=1e-3)
    found, taus = after(world, k, np.zeros(3), np.zeros(3)), Taus(1e9, 1e9)
    assert not surely_above(found, F + gamma(k, taus, buffer=recursion(k, 0.0)).total).any()
    assert surely_above(found, F + 0.9 * gamma(k, taus, buffer=0.0).smoothness).any()


def test_the_general_update_is_the_same_inequality(random: np.random.Generator):
    """prop:biased-aggregate-descent: a bias that is not of clipping, and even depends on the round's noise."""
    world, theta, before = WORLDS["bowl"], random.normal(size=3), random.normal(size=3)
    k, square, F = at(world, theta, rho=1.0, eta=0.3, beta=0.6, sigma_g=3.0, C_g=100.0)
    B = 0.7
    xi = math.sqrt(k.nu2) * random.standard_normal((SEEDS, 3))
    bias = -B * np.sign(xi) / math.sqrt(3)  # pathwise at most B, not known before the round
    G = world.gradient(theta[None]) + bias + xi
    M = k.beta * before + (1 - k.beta) * G
    found = world.value(theta - k.eta * preconditioned(M, G, k.rho))
    second, m2 = float(np.mean(np.sum(G**2, axis=1))), float(np.mean(np.sum(M**2, axis=1)))
    for taus in TAUS:
        parts = general_gamma(k, taus, bias=B, second_moment=second, buffer=m2)
        assert not surely_above(found, F - k.eta * c_grad(k.rho, taus) * square + parts.total).any()
    assert general_gamma(k, TAUS[0], bias=k.zeta_max, second_moment=aggregate_bound(k), buffer=m2) == gamma(
        k, TAUS[0], buffer=m2
    )


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_one_step_of_fedgd(world: World, random: np.random.Generator):
    """lem:dp-fedgd-onestep, at the step η/ρ."""
    theta = random.normal(size=3)
    k, square, F = at(world, theta, rho=2.0, eta=0.4, sigma_g=8.0)
    found = after(world, k, theta, np.zeros(3), form="fedgd")
    for tau in (0.1, 1.0, 1.9):
        floor = fedgd_floor(replace(k, mu=1e-6), 1e-6, tau)
        assert not surely_above(found, F - k.eta * floor.coefficient * square + floor.additive).any()


def test_one_step_of_fedgd_is_met_and_a_wrong_constant_is_noticed():
    world, k, theta, square, F = clipped_point()
    floor = fedgd_floor(k, 1e-6, k.zeta_max / math.sqrt(square))
    (found,) = after(world, k, theta, np.zeros(3), form="fedgd")[:1]
    bound = F - k.eta * floor.coefficient * square + floor.additive
    assert found == pytest.approx(bound, abs=1e-9)
    assert found > F - k.eta * floor.coefficient * square + 0.9 * floor.additive


# --- the noise term, exactly --------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_the_noises_pull_is_what_steins_lemma_says(beta: float):
    k = Constants(L=1.0, C_g=1.0, rho=0.7, beta=beta, eta=0.1, d=3, sizes=(1,), sigma_g=0.8)
    random = np.random.default_rng(4)
    a, g, before = random.normal(size=(3, 3))
    xi = math.sqrt(k.nu2) * random.standard_normal((400_000, 3))
    M = beta * before + (1 - beta) * (g + xi)
    direct = (xi @ a) / k.rho - (M @ a) * np.sum(M * xi, axis=1) / (k.rho * (k.rho + np.sum(M * M, axis=1)))
    difference = direct - stein(M, a, k)
    assert not surely_above(difference, 0.0).any() and not surely_above(-difference, 0.0).any()
    assert abs(direct.mean()) <= uncoupled.noise_pull(k) * np.linalg.norm(a)
    assert surely_above(np.abs(direct.mean()) + 0 * direct, 5 * direct.std() / math.sqrt(len(direct))).any()  # not 0


def test_the_gradient_forms_step_is_bounded_given_the_buffer():
    k = Constants(L=1.0, C_g=1.0, rho=0.7, beta=0.6, eta=0.1, d=4, sizes=(1,), sigma_g=1.0)
    random = np.random.default_rng(5)
    largest = 0.0
    for scale in (0.1, 1.0, 10.0, 1e3):
        before, G = random.normal(size=(2, 20_000, 4)) * scale
        lengths = np.linalg.norm(preconditioned(k.beta * before + (1 - k.beta) * G, G, k.rho), axis=1)
        bounds = (1 / (2 * math.sqrt(k.rho)) + k.beta * np.linalg.norm(before, axis=1) / k.rho) / (1 - k.beta)
        assert uncoupled.step_bound(k, float(np.linalg.norm(before[0]))) == pytest.approx(bounds[0])
        assert np.all(lengths <= bounds)
        largest = max(largest, float(np.max(lengths / bounds)))
    assert largest > 0.6


# --- Young's parameters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_best_taus_are_the_best(seed: int):
    random = np.random.default_rng(seed)
    fixed, bias, noise, full = np.exp(random.normal(size=4))

    def floor(log_taus: np.ndarray) -> float:
        one, two = np.exp(log_taus)
        left = full - (one + two) / 2
        return (fixed + bias**2 / (2 * one) + noise**2 / (2 * two)) / left if left > 0 else 1e9

    ours = least_taus(fixed, bias, noise, full)
    best = min(minimize(floor, random.normal(size=2) - 1, method="Nelder-Mead").fun for _ in range(4))
    assert floor(np.log(ours)) <= best * (1 + 1e-9)
    assert floor(np.log(np.array(ours) * 1.2)) > floor(np.log(ours))


def test_the_best_taus_of_constants_leave_a_positive_coefficient():
    for seed in range(200):
        random = np.random.default_rng(seed)
        L, C_g, rho, eta, zeta, sigma = np.exp(2 * random.normal(size=6))
        k = Constants(L=L, C_g=C_g, rho=rho, beta=random.uniform(), eta=eta, d=9, sizes=(7, 8), sigma_g=sigma,
                      zeta_max=zeta)  # fmt: skip
        assert c_grad(rho, best_taus(k)) > 0
