"""Noise, clipped aggregates, the buffer and the preconditioner: each bound, where it is met, and wrong ones."""

import numpy as np
import pytest

from checked_formulas import corrected_bound
from fedsofim.theory import buffer
from fedsofim.theory.constants import Constants, noise_variance
from fedsofim.theory.preconditioner import operator_bound, preconditioned, quadratic_lower
from theory_worlds import World, bowl, client_noise, run, surely_above

SEEDS = 20_000
RANDOM = np.random.default_rng(2)


def constants(**given) -> Constants:
    usual = {"L": 1.0, "C_g": 1.0, "rho": 1.0, "beta": 0.8, "eta": 0.1, "d": 4, "sizes": (2, 5, 9), "sigma_g": 6.0}
    return Constants(**(usual | given))


def one_sided() -> tuple[World, np.ndarray]:
    """All records far away in one direction: |g_clip| = C_g, the longest there is."""
    return bowl(np.full((3, 2, 4), 1e6), np.ones(4)), np.zeros(4)


def test_the_noise_of_the_average_is_exact():
    """lem:noise_bound, and eq. (noise_variance): for unequal clients, drawn as clients draw it."""
    k = constants()
    xi = client_noise(k, SEEDS, np.random.default_rng(0))
    assert np.mean(xi**2) == pytest.approx(k.nu2, rel=0.02)
    assert k.nu2 <= k.nu2_bound
    assert noise_variance(1.0, 6.0, (5, 5, 5)) == pytest.approx(constants(sizes=(5, 5, 5)).nu2_bound)
    assert np.mean(xi**2) != pytest.approx(k.nu2 * k.n, rel=0.5)  # the wrong power of n would be seen


def test_the_average_is_unbiased_for_the_clipped_gradient(random: np.random.Generator):
    """lem:precond_mean."""
    k = constants(sizes=(2, 2, 2), rounds=1)
    world, start = bowl(random.normal(size=(3, 2, 4)) * 3, np.ones(4)), np.ones(4)
    paths = run(world, k, start, seeds=SEEDS)
    off = paths.G[0] - paths.clipped[0]
    assert not surely_above(off.T, 0.0).any() and not surely_above(-off.T, 0.0).any()
    unclipped = paths.G[0] - paths.gradient[0]  # it is not unbiased for the gradient: that is the clipping bias
    assert surely_above(unclipped.T * np.sign(unclipped.mean(axis=0))[:, None], 0.1).all()


def test_the_preconditioned_average_can_point_uphill():
    """What lem:precond_mean does not say. One coordinate, a buffer that has followed the gradient, and noise: H is
    largest where the noise cancels M, that is where G points backwards, so E[H·G] climbs though E[G] = ∇F."""
    g, before, beta, rho, nu = 1.0, 10.0, 0.8, 0.5, 40.0
    G = g + nu * np.linspace(-9, 9, 400_001)
    weight = np.exp(-(((G - g) / nu) ** 2) / 2)
    weight /= weight.sum()
    step = preconditioned((beta * before + (1 - beta) * G)[:, None], G[:, None], rho)[:, 0]
    assert weight @ G == pytest.approx(g)
    assert weight @ step == pytest.approx(-4.67, abs=0.01)


def test_the_clipped_aggregate_is_no_longer_than_the_clip_and_can_be_as_long(random: np.random.Generator):
    """lem:gclip_norm."""
    k = constants(sizes=(2, 2, 2), rounds=1)
    world, start = one_sided()
    assert np.linalg.norm(world.clipped(start[None], k.C_g)) == pytest.approx(k.C_g)
    mixed = bowl(random.normal(size=(3, 2, 4)) * 5, np.ones(4))
    assert np.all(np.linalg.norm(mixed.clipped(random.normal(size=(500, 4)), k.C_g), axis=1) <= k.C_g)
    squares = np.sum(run(world, k, start, seeds=SEEDS).G[0] ** 2, axis=1)
    assert not surely_above(squares, buffer.aggregate_bound(k)).any()
    assert surely_above(squares, buffer.aggregate_bound(k) - 0.1 * k.noise2).any()


def test_the_buffers_recursion_holds_and_is_met(random: np.random.Generator):
    """lem:momentum_recursion, given the past: met where M_{t-1} = g_clip."""
    k = constants(sizes=(2, 2, 2), rounds=1)
    world, start = one_sided()
    along = world.clipped(start[None], k.C_g)[0]
    for before in (along, -along, random.normal(size=4)):
        squares = np.sum(run(world, k, start, seeds=SEEDS, buffer=before).M[0] ** 2, axis=1)
        assert not surely_above(squares, buffer.recursion(k, float(before @ before))).any()
    squares = np.sum(run(world, k, start, seeds=SEEDS, buffer=along).M[0] ** 2, axis=1)
    wrong = buffer.recursion(k, 1.0) - 0.1 * (1 - k.beta) ** 2 * k.noise2
    assert surely_above(squares, wrong).any()


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_the_buffers_bound_holds_at_every_round(beta: float):
    """lem:momentum_recursion, and ours beside it."""
    k = constants(sizes=(2, 2, 2), rounds=30, beta=beta, eta=0.01)
    world, start = one_sided()
    squares = np.sum(run(world, k, start, seeds=4000).M ** 2, axis=-1)
    assert not surely_above(squares, buffer.buffer_bound(k)).any()
    assert not surely_above(squares, buffer.sharper_bound(k)).any()
    if beta == 0:  # where it is met, a constant one tenth too small is noticed
        assert surely_above(squares, k.C_g**2 + 0.9 * k.noise2).any()


def test_with_bias_correction_the_papers_bound_is_wrong_and_ours_holds():
    """M̂_0 = G_0: no noise is averaged away yet. The paper uses bias correction at ε <= 1."""
    k = constants(sizes=(2, 2, 2), rounds=25, beta=0.9)
    world, start = one_sided()
    squares = np.sum(run(world, k, start, seeds=4000, corrected=True).M ** 2, axis=-1)
    assert surely_above(squares, buffer.buffer_bound(k))[:3].all()
    assert not surely_above(squares, [corrected_bound(k, t) for t in range(25)]).any()
    assert corrected_bound(k, 400) == pytest.approx(buffer.buffer_bound(k), rel=1e-3)


def test_sherman_morrison_and_its_bounds(random: np.random.Generator):
    """lem:SM_bounds: the formula against an inverse, and both bounds where they are met."""
    rho, M = 0.3, random.normal(size=(50, 6))
    for row in M:
        H = np.linalg.inv(rho * np.eye(6) + np.outer(row, row))
        v = random.normal(size=6)
        np.testing.assert_allclose(preconditioned(row, v, rho), H @ v, rtol=1e-9, atol=1e-12)
        square, low = float(row @ row), np.linalg.eigvalsh(H)[0]
        assert low == pytest.approx(quadratic_lower(rho, square))
        assert np.linalg.eigvalsh(H)[-1] == pytest.approx(operator_bound(rho))
        assert row @ H @ row / square == pytest.approx(quadratic_lower(rho, square))
        assert row @ H @ row / square < quadratic_lower(rho, 0.9 * square)  # a wrong constant would be seen


@pytest.mark.parametrize("bound", [buffer.event_bound, buffer.sharper_event_bound])
def test_the_buffer_stays_below_its_event(bound):
    """cor:nonvacuous_momentum_event, and ours, which is met within a factor of two."""
    k = constants(sizes=(2, 2, 2), rounds=30, beta=0.5, eta=0.01, sigma_g=40.0, d=40)
    world, start = bowl(np.full((3, 2, 40), 1e6), np.ones(40)), np.zeros(40)
    largest = np.sum(run(world, k, start, seeds=1000).M ** 2, axis=-1).max(axis=0)
    assert not surely_above(largest > bound(k, 0.05), 0.05).any()
    if bound is buffer.sharper_event_bound:
        assert surely_above(largest > bound(k, 0.05) / 2, 0.05).any()
        assert bound(k, 0.05) < buffer.event_bound(k, 0.05) / 100


def test_without_its_factor_the_event_would_fail():
    k = constants(sizes=(2, 2, 2), rounds=30, beta=0.5, eta=0.01, sigma_g=20.0)
    world, start = one_sided()
    largest = np.sum(run(world, k, start, seeds=2000).M ** 2, axis=-1).max(axis=0)
    assert surely_above(largest > buffer.event_bound(k, 0.05) * 0.05 / k.rounds, 0.05).any()
