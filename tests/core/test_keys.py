"""Keys are of one generator, whatever the process has as its default: in `unsafe_rbg`, client i would draw in round t
what client t draws in round i, and a method's second call in round 0 what its first draws in round 1."""

from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
from fedsofim.core.audit import Inputs
from fedsofim.core.keys import is_own_generator, is_own_key, key_of, key_of_words
from fedsofim.core.second_opinion import stand_ins
from fedsofim.errors import Refused
from fedsofim.simulation.simulator import keys
from leaks import priced

OTHERS = ("unsafe_rbg", "rbg")


def twice(door, params, state, memory):
    """Two sums a round, both of nothing: what comes out is their noise."""
    sums = [door.sum(lambda x, y: jnp.zeros(3, x.dtype), clip=1.0) for _ in range(2)]
    return jnp.stack(sums), memory


def kept(mean, state, params, facts):
    step, seen = state
    return params, (step + 1, seen.at[step].set(mean))


def run_twice(toy, seed=0):
    method = fs.Method("twice", twice, kept, init=lambda params: (jnp.int32(0), jnp.zeros((2, 2, 3), jnp.float32)))
    run = fs.train(toy, method, fs.Budget(1.0), rounds=2, recipe="paper", preparation=(), seed=seed)
    return np.asarray(run.state[1])


@pytest.mark.parametrize("other", OTHERS)
def test_a_run_draws_what_it_draws_whatever_the_default_is(toy, other):
    with jax.default_prng_impl(other):
        found = run_twice(toy)
    jax.clear_caches()  # JAX's, which do not ask by which default a key was made
    assert np.array_equal(found, run_twice(toy))


def test_no_noise_comes_twice_where_folding_in_commutes(toy):
    """What is drawn by call 1 in round 0 is not what call 0 draws in round 1."""
    with jax.default_prng_impl("unsafe_rbg"):
        noise = run_twice(toy)
    assert len(np.unique(noise.reshape(-1, 3), axis=0)) == 4


def test_none_comes_twice_in_the_older_way_of_drawing_either(toy):
    with jax.threefry_partitionable(False):
        noise = run_twice(toy)
    assert len(np.unique(noise.reshape(-1, 3), axis=0)) == 4 and not np.array_equal(noise, run_twice(toy))


@pytest.mark.parametrize("other", OTHERS)
def test_the_keys_of_a_run_are_of_one_generator(other):
    wanted = [jax.random.key_data(key).tolist() for key in jax.random.split(jax.random.key(5))]
    with jax.default_prng_impl(other):
        assert [jax.random.key_data(key).tolist() for key in keys(5)] == wanted
        assert is_own_key(key_of(5).dtype) and is_own_generator(key_of(5).dtype._impl)  # type: ignore[union-attr]
        theirs = jax.random.key(5).dtype
        assert not is_own_key(theirs) and not is_own_generator(theirs._impl)  # type: ignore[union-attr]
        assert is_own_key(key_of_words(np.ones((3, 2), np.uint32)).dtype)


@pytest.mark.parametrize("other", OTHERS)
def test_keys_of_another_generator_are_refused_in_words(other):
    """In a stranger's program, where it makes them by JAX's default."""

    def client(door, params, state, memory):
        turned = jax.random.normal(jax.random.key(1), (3,), jnp.float32)
        return door.sum(lambda x, y: x * turned, clip=1.0), memory

    assert priced(client).releases
    with jax.default_prng_impl(other), pytest.raises(Refused, match="another generator than threefry2x32"):
        priced(lambda *given: client(*given))


def test_stand_ins_for_public_keys_are_of_it_too():
    """A memory may hold one."""
    with jax.default_prng_impl("unsafe_rbg"):
        key = jax.eval_shape(lambda: key_of(0))
        given: dict = dict.fromkeys(field.name for field in fields(Inputs))
        assert is_own_key(stand_ins(Inputs(**given | {"memory": key})).memory.dtype)
