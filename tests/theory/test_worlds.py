"""The worlds that the bounds are checked in: their algorithm is the package's, their constants are true."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
from theory_worlds import World, bowl, dents, run, wavy

RANDOM = np.random.default_rng(1)
WORLDS = {
    "bowl": bowl(RANDOM.normal(size=(3, 4, 2)), np.array([1.0, 0.2])),
    "wavy": wavy(np.zeros((2, 3, 2))),
    "dents": dents(RANDOM.normal(size=(3, 4, 2))),
}


@pytest.mark.parametrize("form", ["gradient", "momentum"])
@pytest.mark.parametrize("corrected", [False, True])
def test_the_algorithm_is_the_packages_own(form: str, corrected: bool):
    world = WORLDS["bowl"]
    k = world.constants(rounds=6, eta=0.3, rho=0.4, sigma_g=3.0)
    paths = run(world, k, np.ones(2), seeds=1, form=form, corrected=corrected)
    optimizer = fs.sofim(k.eta, rho=k.rho, beta=k.beta, direction=form, bias_correction=corrected)
    theta, state = jnp.ones(2), optimizer.init(jnp.ones(2))
    for t in range(k.rounds):
        updates, state = optimizer.update(jnp.asarray(paths.G[t, 0]), state, theta)
        theta = theta + jnp.asarray(updates)
        np.testing.assert_allclose(theta, paths.theta[t + 1, 0], rtol=1e-9)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_gradients_are_those_of_the_loss(world: World, random: np.random.Generator):
    theta, h = random.normal(size=(20, 2)), 1e-6
    for axis in np.eye(2):
        slope = (world.value(theta + h * axis) - world.value(theta - h * axis)) / (2 * h)
        np.testing.assert_allclose(world.gradient(theta) @ axis, slope, atol=1e-7)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_smoothness_is_true_and_nearly_met(world: World, random: np.random.Generator):
    a = random.normal(size=(4000, 2)) * 2
    b = a + 0.01 * random.normal(size=a.shape)
    ratio = np.linalg.norm(world.gradient(a) - world.gradient(b), axis=1) / np.linalg.norm(a - b, axis=1)
    assert 0.4 * world.L < ratio.max() <= world.L * (1 + 1e-9)


def test_wavy_is_pl_and_not_convex(random: np.random.Generator):
    world, theta = WORLDS["wavy"], random.uniform(-6, 6, size=(20_000, 2))
    square = np.sum(world.gradient(theta) ** 2, axis=1)
    assert np.all(square >= 2 / 32 * world.value(theta))
    middle = world.value(np.zeros((1, 2)) + 1.7) - 0.5 * world.value(np.array([[1.4, 1.4], [2.0, 2.0]])).sum()
    assert middle > 0  # a convex function lies below its chords
