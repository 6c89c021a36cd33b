"""Whose key decides who takes part: that of the records' own client, and of nobody else."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.audit import Inputs, audit_program
from fedsofim.core.door import Facts
from fedsofim.core.phase import Phase
from fedsofim.core.records import in_blocks
from fedsofim.methods import make
from node_programs import HEAD, inputs_for, shapes_for

EACH = 64


def two_clients() -> Inputs:
    """Every record a unit vector of its own; the first half is client 0's."""
    x, y = np.eye(2 * EACH, dtype=np.float32), np.zeros(2 * EACH, np.int32)
    shapes = replace(shapes_for(make("fedgd"), x, y), state=(), memory=())
    parts = np.split(np.arange(2 * EACH), 2)
    return replace(inputs_for(shapes, x, y), records=jax.tree.map(jnp.asarray, in_blocks(x, y, parts)))


def taking_part(seeds: tuple[int, int]) -> np.ndarray:
    """(clients, records of each): who of its own each client summed, under keys of these seeds."""
    inputs = two_clients()
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), inputs)

    def client(door, params, state, memory):
        return door.sum(lambda x, y: x, clip=2.0, sample=0.5), memory

    facts = Facts(rounds=1, clients=2, clip=1.0, noise_std=0.0)
    program = audit_program(client, HEAD, shapes, facts, Phase.ROUND)
    keys = jnp.stack([jax.random.key(s) for s in seeds])
    sums = jax.vmap(lambda key, i: program(replace(inputs, key=key, index=i))[0])(keys, jnp.arange(2, dtype=jnp.int32))
    sums = np.asarray(sums)
    assert not sums[0, EACH:].any() and not sums[1, :EACH].any()
    return np.stack([sums[0, :EACH], sums[1, EACH:]]) > 0.5


def test_the_key_of_each_client_draws_its_own_mask():
    """64 fair coins: other ones agree in 60 or more places with a chance of 1e-13."""
    first, again, other = (taking_part(seeds) for seeds in ((1, 2), (1, 2), (1, 3)))
    assert np.array_equal(first, again)
    assert np.array_equal(first[0], other[0])
    assert 4 < np.sum(first[1] == other[1]) < 60
    assert 4 < np.sum(first[0] == first[1]) < 60
