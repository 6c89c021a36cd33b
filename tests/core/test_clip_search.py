"""A clip that finds itself: it finds the quantile, its price is that of a fixed clip, and records cannot set it."""

import math
from typing import Any

import dp_accounting as dpa
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import pld

import fedsofim as fs
from fedsofim.core.budget import NO_PRIVACY
from fedsofim.core.clip_search import VOTE, ClipState, next_scale
from fedsofim.core.door import Facts
from fedsofim.core.voting import with_vote
from fedsofim.errors import InputError, Refused
from fedsofim.simulation.simulator import simulate_to_end
from leaks import priced
from method_helpers import TWO_LEAVES, blobs, planned, start

DATA = blobs((40, 40))
STILL = 1e-9  # a step so small that gradients stay what they are at the start


def lengths_at_start() -> np.ndarray:
    x = np.concatenate([DATA.dataset.x_train, np.ones((80, 1))], axis=1).astype(float)
    z = x @ start(DATA)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(80), DATA.dataset.y_train] -= 1
    return np.linalg.norm(x, axis=1) * np.linalg.norm(p, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.8])
def test_the_quantile_is_found_from_a_clip_that_is_far_off(quantile: float):
    wanted = np.quantile(lengths_at_start(), [quantile - 0.06, quantile + 0.06])
    method = fs.fedgd(lr=STILL, clip_quantile=quantile)
    for clip in (0.1, 100.0):
        end, _ = simulate_to_end(planned(DATA, method, math.inf, 60, clip=clip), DATA, 0, every=60)
        assert wanted[0] < clip * float(end.state.scale) < wanted[1]


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_any_model_is_clipped_alike_pooled_or_apart(apart: bool):
    """The head as two arrays has gradients of the same length, so the clip is the same too."""
    how = {"lr": STILL, "clip_quantile": 0.5}
    zero = TWO_LEAVES._replace(init=lambda *given: jax.tree.map(jnp.zeros_like, TWO_LEAVES.init(*given)))
    plans = [planned(DATA, fs.fedgd(**how), math.inf, 12, clip=2.0, model=m) for m in (zero, fs.softmax_head(0.0))]
    ends = [simulate_to_end(plan, DATA, 0, every=12, apart=apart)[0] for plan in plans]
    assert float(ends[0].state.scale) == pytest.approx(float(ends[1].state.scale), rel=0.02)
    assert float(ends[0].state.scale) != pytest.approx(1.0, rel=0.1)


def test_its_price_is_that_of_a_fixed_clip_by_an_independent_accountant():
    fixed, found = (planned(DATA, fs.fedsofim(clip_quantile=q), 1.0, rounds=11) for q in (None, 0.5))
    (before,), (charge,) = fixed.ledger, found.ledger
    assert "vote on the clip" in charge.label
    assert (charge.clip, charge.ratio, charge.releases, charge.weight) == (before.clip, 2.0, 11, before.weight)
    assert found.multipliers == fixed.multipliers
    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dpa.GaussianDpEvent(found.multipliers[charge.site]), 11)
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=5e-3)


def test_mini_batches_vote_too_and_are_priced_as_mini_batches_are():
    fixed, found = (planned(DATA, fs.fedgd(clip_quantile=q), 1.0, batch_rate=0.2) for q in (None, 0.5))
    assert found.multipliers == fixed.multipliers and found.ledger[0].sample == 0.2


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_a_records_vector_is_no_longer_than_the_clip_whatever_the_gradient(scale: float):
    """So one record moves the sum by 2c, and what the vote is worth of it is its part."""
    clip, random = 2.0, np.random.default_rng(1)

    def gradient_of(x, y, factor):
        return jax.tree.map(lambda g: factor.astype(g.dtype) * g, {"a": x, "b": jnp.outer(x, y)})

    fn = with_vote(gradient_of, clip, VOTE)
    x = random.normal(size=(60, 4)) * 10.0 ** random.uniform(-6, 6, (60, 1))
    y = random.normal(size=(60, 3))
    gradient, vote = jax.jit(jax.vmap(lambda x, y: fn(x, y, scale)))(x, y)
    length = np.sqrt(sum(np.square(np.asarray(g)).reshape(60, -1).sum(1) for g in gradient.values()))
    true = np.sqrt((x**2).sum(1) * (1 + (y**2).sum(1)))
    assert np.hypot(length, vote).max() <= clip * (1 + 1e-5)
    np.testing.assert_allclose(vote, np.where(true <= scale * clip, 1, -1) * clip * math.sqrt(VOTE), rtol=1e-6)
    wanted = math.sqrt(1 - VOTE) * clip * np.minimum(true / (scale * clip), 1)
    np.testing.assert_allclose(length, wanted, rtol=1e-4)


def clip_from_records(door, params, state, memory):
    longest = jnp.max(jnp.abs(door._records.x))
    return door.gradient_and_vote(params, longest, VOTE)[0], memory


def clip_from_key(door, params, state, memory):
    return door.gradient_and_vote(params, jax.random.uniform(door._key), VOTE)[0], memory


def clip_from_state(door, params, state, memory):
    return door.gradient_and_vote(params, state, VOTE)[0], memory


def clip_from_a_release(door, params, state, memory):
    longest = door.sum(lambda x, y: jnp.max(jnp.abs(x)), clip=1.0) / door.size
    return door.gradient_and_vote(params, longest, VOTE)[0], memory


@pytest.mark.parametrize(("cheat", "words"), [(clip_from_records, "records"), (clip_from_key, "noise key")])
def test_a_clip_that_depends_on_raw_records_is_refused(cheat, words):
    with pytest.raises(Refused, match=f"uses a value that depends on the {words}.*beyond the clip"):
        priced(cheat)


def test_a_clip_that_depends_on_what_was_released_is_not():
    assert priced(clip_from_state).releases == 5
    assert priced(clip_from_a_release).releases == 10


def test_the_louder_the_vote_the_less_is_it_believed():
    state = ClipState(scale=jnp.float32(1.0), unit=jnp.float32(1.0), t=jnp.int32(30), inner=())
    all_within = jnp.float32(VOTE**0.5)
    quiet, loud = (next_scale(state, all_within, 0.5, Facts(40, 2, 1.0, noise)) for noise in (0.0, 1.0))
    assert float(quiet) == pytest.approx(math.exp(-0.2 * 0.5))
    assert abs(math.log(float(loud))) < 0.01 * abs(math.log(float(quiet)))


@pytest.mark.parametrize(("t", "clip"), [(3, 1.5), (30, 6.0)])
def test_a_method_is_told_the_rounds_noise_and_the_clip_that_was_found_at_first(t: int, clip: float):
    """A clip that shrinks since records are fitted must not make steps longer without end."""
    told: list[tuple] = []

    def server(mean, state, params, facts):
        told.append((mean, facts))
        return params, state

    method = fs.adaptive_clip(fs.Method("mine", fs.OneGradient(), server), 0.5)
    state = ClipState(scale=jnp.float32(0.5), unit=jnp.float32(2.0), t=jnp.int32(t), inner=())
    _, after = method.server((jnp.ones(2), jnp.float32(0.0)), state, jnp.zeros(2), Facts(40, 2, 3.0, 0.2))
    ((mean, facts),) = told
    assert float(facts.noise_std) == pytest.approx(0.1 / math.sqrt(1 - VOTE))
    np.testing.assert_allclose(mean, 0.5 / math.sqrt(1 - VOTE), rtol=1e-6)
    assert float(facts.clip) == pytest.approx(clip) == pytest.approx(3 * float(after.unit))


def test_what_it_is_not_for():
    wrong: list[Any] = [0, 1, -0.5, "half"]
    for quantile in wrong:
        with pytest.raises(InputError, match="strictly between"):
            fs.adaptive_clip(fs.fedgd(), quantile)
    for method in (fs.make("fedavg"), fs.fedsofim(local_steps=2)):
        with pytest.raises(InputError, match="one gradient a round"):
            fs.adaptive_clip(method)
    with pytest.raises(InputError, match="one gradient a round"):
        fs.fedadam(local_steps=3, clip_quantile=0.5)


@pytest.mark.slow
def test_a_sweep_is_the_same_run(monkeypatch):
    from fedsofim.simulation import sweep

    given = {"lr": 0.3, "clip_quantile": 0.5}
    swept = sweep.scores(DATA, "fedgd", [given], NO_PRIVACY, 3, seeds=(0,))
    run = fs.train(DATA, fs.fedgd(**given), NO_PRIVACY, 3, recipe="paper")
    assert float(swept[0, 0]) == pytest.approx(run.accuracy, abs=1e-3)
