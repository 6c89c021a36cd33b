"""Steps that read their reach off the first release: within bounds, noise taken off, and as before without it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsofim.core.door import Facts
from fedsofim.core.units import AS_THEY_COME, prepared_units
from fedsofim.methods import make
from fedsofim.methods._adaptive import scale_by_adaptive
from fedsofim.methods._sofim import scale_by_sofim
from fedsofim.methods._steps import _reach, far, gradient_step, measured, scale_by_step, sign_step, sofim_step

CLASSES, CLIP = 10, 3.0
FACTS = Facts(rounds=50, clients=20, clip=CLIP, noise_std=0.0, units=prepared_units(CLASSES))
SHAPE = (41, CLASSES)


def gradient(apart: float, seed: int = 0) -> jax.Array:
    """An average whose length says that classes are so far apart, in units of the clip."""
    g = np.random.default_rng(seed).normal(size=SHAPE)
    return jnp.asarray(g / np.linalg.norm(g) * apart * CLIP / np.sqrt(CLASSES), jnp.float32)


@pytest.mark.parametrize(
    "apart, times", [(0.0, 0.8), (0.2, 0.8), (0.4, 0.8), (0.5, 1.0), (0.7, 1.4), (0.8, 1.6), (50.0, 1.6)]
)
def test_the_reach_grows_with_the_distance_of_the_classes_within_bounds(apart: float, times: float):
    assert float(_reach(FACTS, gradient(apart))) == pytest.approx(times * FACTS.units.reach, rel=1e-5)


def test_noise_is_taken_off():
    """Noise twice as long as what is measured, of which Δ² is known to 0.1: it is believed to four fifths, and moves
    the reach by nothing else on average. Not taken off, it would be at its end."""
    std = 2 * 0.6 * CLIP / np.sqrt(CLASSES) / np.sqrt(np.prod(SHAPE))
    facts = FACTS._replace(noise_std=np.float32(std))
    draws = [
        gradient(0.6) + jnp.asarray(std * np.random.default_rng(s).normal(size=SHAPE), jnp.float32) for s in range(400)
    ]
    squares = [float(jnp.sum(jnp.square(d))) for d in draws]
    assert np.mean(squares) - np.prod(SHAPE) * std**2 == pytest.approx((0.6 * CLIP) ** 2 / CLASSES, rel=0.05)
    found = np.array([float(_reach(facts, d)) for d in draws]) / FACTS.units.reach
    assert np.mean(found) == pytest.approx(2 * np.sqrt(0.3 + 0.8 * (0.36 - 0.3)), abs=0.03)
    assert np.mean([float(_reach(FACTS, d)) for d in draws]) == pytest.approx(1.6 * FACTS.units.reach, rel=1e-3)


def test_what_drowned_in_noise_says_nothing():
    """Noise ten times the clip: Δ² would be known to 70, so it is the usual one."""
    std = 10 * CLIP / np.sqrt(np.prod(SHAPE))
    facts = FACTS._replace(noise_std=np.float32(std))
    for seed in range(20):
        draw = gradient(0.8) + jnp.asarray(std * np.random.default_rng(seed).normal(size=SHAPE), jnp.float32)
        assert float(_reach(facts, draw)) == pytest.approx(2 * np.sqrt(0.3) * FACTS.units.reach, rel=0.02)


def test_the_first_average_decides_and_no_other():
    seen = []

    def build(facts: Facts) -> optax.GradientTransformation:
        seen.append(facts.units.reach)
        return optax.scale_by_learning_rate(facts.units.reach)

    update = measured(build)(FACTS)
    state = update.init(gradient(0.5))
    for apart in (0.5, 0.8, 0.4):
        _, state = update.update(gradient(apart), state)
    assert [round(float(r) / FACTS.units.reach, 4) for r in seen[-3:]] == [1.0, 1.0, 1.0]
    assert float(state.reach) == pytest.approx(FACTS.units.reach)  # type: ignore[union-attr]


PLAIN = {
    "fedgd": lambda f: scale_by_step(None, lambda d: gradient_step(f, d)),
    "fedadam": lambda f: optax.chain(
        scale_by_adaptive("adam", beta1=0.9, beta2=0.99, tau=1e-3, bias_corrected=True),
        scale_by_step(None, lambda d: sign_step(f, d)),
    ),
    "fedyogi": lambda f: optax.chain(
        scale_by_adaptive("yogi", beta1=0.9, beta2=0.99, tau=1e-3, bias_corrected=True),
        scale_by_step(None, lambda d: sign_step(f, d)),
    ),
    "fedsofim": lambda f: optax.chain(
        scale_by_sofim(rho=0.5, beta=0.9, direction="momentum", bias_correction=False),
        scale_by_step(None, lambda d: sofim_step(f, d, 0.5, 0.9)),
    ),
}
GIVEN = {
    "fedadam": {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "bias_corrected": True},
    "fedyogi": {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "bias_corrected": True},
    "fedsofim": {"rho": 0.5, "beta": 0.9, "weight_decay": 0.0},
}


@pytest.mark.parametrize("name", PLAIN)
def test_on_records_as_they_come_the_steps_are_those_of_the_plain_optimizer(name: str):
    facts = FACTS._replace(units=AS_THEY_COME, noise_std=np.float32(0.01))
    method, plain = make(name, GIVEN.get(name, {})), PLAIN[name](facts)
    params = theirs = gradient(1.0, seed=7)
    state, inner = method.init(params), plain.init(params)
    for seed in range(4):
        mean = gradient(0.5 + seed, seed)
        params, state = method.server(mean, state, params, facts)
        updates, inner = plain.update(mean, inner, theirs)
        theirs = optax.apply_updates(theirs, updates)
        np.testing.assert_array_equal(np.asarray(params), np.asarray(theirs))


@pytest.mark.parametrize("name", PLAIN)
def test_on_prepared_records_far_classes_take_longer_first_steps(name: str):
    method = make(name, GIVEN.get(name, {}))
    params = jnp.zeros(SHAPE, jnp.float32)
    facts = FACTS._replace(noise_std=np.float32(1e-3))

    def ratio(apart: float, against: float) -> float:
        """First steps by averages of one direction, each over the step of the plain reach."""
        steps = [method.server(gradient(a), method.init(params), params, f)[0] for a, f in (
            (apart, facts), (apart, facts._replace(units=facts.units._replace(classes=0))))]  # fmt: skip
        return float(jnp.linalg.norm(steps[0]) / jnp.linalg.norm(steps[1])) / against

    assert ratio(0.8, 1.6) == pytest.approx(1.0, rel=1e-3)
    assert ratio(0.1, 0.8) == pytest.approx(1.0, rel=1e-3)


# --- how far it pays to go ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loud, times", [(1.0, 1.0), (0.05, 1.0), (0.03, (5 / 3) ** 0.5), (0.02, 1.5), (0.0, 1.5)])
def test_the_less_noise_the_further_it_goes_within_bounds(loud: float, times: float):
    """`loud` is a round's noise in units of the clip."""
    spread = jnp.float32((loud * CLIP) ** 2)
    assert float(far(FACTS, spread)) == pytest.approx(times * FACTS.units.reach, rel=1e-5)


def test_records_as_they_come_have_one_reach():
    facts = FACTS._replace(units=AS_THEY_COME)
    assert far(facts, jnp.float32(0.0)) == AS_THEY_COME.reach == far(facts, jnp.float32(1e6))


def test_a_step_is_the_bounds_best_for_that_reach():
    """η = D/sqrt(T·(B² + d·σ²)), with D for the noise that there is."""
    std, d = 0.01, 410
    facts = FACTS._replace(noise_std=np.float32(std))
    spread = d * std**2
    reach = FACTS.units.reach * np.clip(np.sqrt(0.05 / (np.sqrt(spread) / CLIP)), 1, 1.5)
    wanted = reach / CLIP / np.sqrt(50 * ((FACTS.units.early * CLIP) ** 2 + spread))
    assert float(gradient_step(facts, d)) == pytest.approx(wanted, rel=1e-5)
    assert float(sign_step(facts, d)) == pytest.approx(reach / CLIP / np.sqrt(50 * d), rel=1e-5)
