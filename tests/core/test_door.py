"""The door: what comes out is the clipped sum plus noise of the right size, fresh for every call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.clipping import guarded
from fedsofim.core.door import Door, Facts
from fedsofim.core.models import softmax_head
from fedsofim.core.records import in_blocks
from fedsofim.core.site import MAX_SITES
from fedsofim.errors import InputError, Refused
from normality import accepts
from stranger import priced

HEAD = softmax_head()
FACTS = Facts(rounds=5, clients=1, clip=1.0, noise_std=0.0)
X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.arange(30) % 3
THETA = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32)


def door_for(x, y, key=0, std=0.0, model=HEAD):
    """A door on concrete records, as a node would hold it."""
    laid = in_blocks(np.asarray(x, np.float32), np.asarray(y, np.int32), [np.arange(len(y))])
    laid = jax.tree.map(jnp.asarray, laid)
    stds = jnp.full(MAX_SITES, std, jnp.float32)
    return Door(
        _records=laid,
        _model=model,
        _key=jax.random.key(key),
        _index=jnp.int32(0),
        _stds=stds,
        _sites=[],
        size=jnp.float32(len(y)),
        round=jnp.int32(0),
        facts=FACTS,
    )


@pytest.mark.slow
def test_gradient_is_the_clipped_sum():
    wanted = np.zeros((5, 3))
    for x, y in zip(X, Y, strict=True):
        g = np.asarray(jax.grad(HEAD.loss)(THETA, jnp.asarray(x, jnp.float32), jnp.int32(y)), float)
        wanted += g * min(1.0, guarded(1.0) / float(np.linalg.norm(g)))
    np.testing.assert_allclose(door_for(X, Y).gradient(THETA), wanted, rtol=1e-4, atol=1e-4)


def test_generic_model_gives_the_same():
    generic = HEAD._replace(gradient=None)
    np.testing.assert_allclose(
        door_for(X, Y, model=generic).gradient(THETA), door_for(X, Y).gradient(THETA), rtol=1e-4, atol=1e-5
    )


def test_a_closed_form_is_accepted_only_from_the_library():
    class Mine:
        ratio, wide = 1e-9, True  # claims to be far less sensitive than it is

    cheat = HEAD._replace(gradient=Mine())
    np.testing.assert_allclose(
        door_for(X, Y, model=cheat).gradient(THETA), door_for(X, Y).gradient(THETA), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", [HEAD, HEAD._replace(gradient=None)])
def test_a_sweep_gives_what_each_setting_gives_alone(model):
    """The executor's vmap over settings, seven of them: not a multiple of those done side by side."""
    many = jnp.stack([THETA * s for s in range(7)])
    swept = jax.vmap(lambda theta: door_for(X, Y, std=1.0, model=model).gradient(theta))(many)
    alone = [door_for(X, Y, std=1.0, model=model).gradient(theta) for theta in many]
    np.testing.assert_allclose(swept, jnp.stack(alone), rtol=1e-4, atol=1e-4)


def noise_sample(std):
    """The noise on 2,000 coordinates of a sum of zeros."""
    wide = np.zeros((3, 2000))
    return np.asarray(door_for(wide, np.zeros(3), key=7, std=std).sum(lambda x, y: x, clip=1.0))


def test_noise_has_the_stated_size():
    sample = noise_sample(std=3.0)
    assert accepts(sample, 3.0)
    assert not accepts(sample, 3.0 * 2 / 3)
    assert not accepts(sample, 3.0 * 3 / 2)


def test_every_call_has_its_own_noise():
    door = door_for(X, Y, std=1.0)
    first, second = (np.ravel(door.gradient(THETA)) for _ in range(2))
    assert len(np.intersect1d(first, second)) == 0


@pytest.mark.slow
def test_no_key_is_used_twice():
    with jax.debug_key_reuse(True):
        door = door_for(X, Y, std=1.0)
        door.gradient(THETA)
        door.sum(lambda x, y: {"a": x, "b": x}, clip=1.0)
        door.scan(lambda inner, t: t + inner.gradient(t), THETA, 3)


@pytest.mark.slow
def test_poisson_sampling_keeps_the_stated_share():
    door = door_for(np.ones((4000, 1)), np.zeros(4000))
    kept = door.sum(lambda x, y: x, clip=1.0, sample=0.25)
    assert abs(float(kept[0]) - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75)
    again = door.sum(lambda x, y: x, clip=1.0, sample=0.25)
    assert float(kept[0]) != float(again[0])  # drawn afresh


@pytest.mark.slow
def test_second_moment_is_symmetric_with_noise_of_the_right_size():
    noisy = door_for(np.zeros((5, 60)), np.zeros(5), std=2.0).second_moment(lambda x, y: x, clip=1.0)
    np.testing.assert_array_equal(noisy, noisy.T)
    off = np.asarray(noisy)[np.triu_indices(60, 1)]
    assert accepts(off, 2.0 / np.sqrt(2))
    assert accepts(np.diag(noisy), 2.0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda d: d.gradient(THETA, clip=0.0),
        lambda d: d.gradient(THETA, clip=float("nan")),
        lambda d: d.gradient(THETA, noise=0.0),
        lambda d: d.gradient(THETA, sample=0.0),
        lambda d: d.gradient(THETA, share=1.0),
        lambda d: d.sum(lambda x, y: y, clip=1.0),
        lambda d: d.second_moment(lambda x, y: {"a": x, "b": x}, clip=1.0),
    ],
)
def test_senseless_requests(ask):
    with pytest.raises(InputError, match=r"expected|needs"):
        ask(door_for(X, Y))


def test_too_many_releases_written_out():
    def client(door, params, state, memory):
        return [door.gradient(params) for _ in range(MAX_SITES + 1)], memory

    with pytest.raises(Refused, match=r"use door\.scan"):
        priced(client)
