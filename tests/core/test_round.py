"""One round: all clients at once are each alone, the server sees their weighted mean, memory stays where it was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.cohort import Carry, Cohort
from fedsofim.core.method import Method, OneGradient
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.pooled import ask_pooled, pool
from fedsofim.core.programs import Public, read_programs
from fedsofim.core.records import block_shape, in_blocks
from fedsofim.core.round import Rules, ask_each, federated_round

HEAD = softmax_head()
SIZES, WEIGHTS = (3, 40, 11), np.array([0.5, 0.3, 0.2])
PUBLIC = Public(shape=(4,), classes=3, blocks=block_shape(SIZES), clients=3, rounds=5, clip=1.0)
ROWS = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
X = np.random.default_rng(0).normal(size=(sum(SIZES), 4)).astype(np.float32)
Y = (np.arange(sum(SIZES)) % 3).astype(np.int32)
THETA = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32)


def remembering(door, params, state, memory):
    """Uploads a gradient, and keeps how often it was asked and who it is."""
    return door.gradient(params) / door.size, memory + jnp.stack([jnp.float32(1), door.size])


METHOD = Method(
    "remembering",
    remembering,
    lambda mean, state, params, facts: (params - facts.noise_std * mean, state + 1),
    init=lambda params: jnp.int32(0),
    memory=lambda params: jnp.zeros(2, jnp.float32),
)


def cohort(std: float, sizes=SIZES, records=None) -> Cohort:
    return Cohort(
        records=jax.tree.map(jnp.asarray, in_blocks(X, Y, ROWS) if records is None else records),
        sizes=jnp.asarray(sizes, jnp.float32),
        weights=jnp.asarray(WEIGHTS, jnp.float32),
        stds=jnp.full(64, std, jnp.float32),
        noise_std=jnp.float32(0.5),
        key=jax.random.key(3),
    )


def program_of(method: Method, model: Model = HEAD):
    return read_programs(method, model, (), PUBLIC)[Phase.ROUND]


CARRY = Carry(THETA, jnp.int32(0), jnp.zeros((3, 2), jnp.float32))


@pytest.mark.slow
@pytest.mark.parametrize("model", [HEAD, HEAD._replace(gradient=None)], ids=["closed form", "generic"])
def test_all_clients_side_by_side_are_each_alone(model):
    """Noise included: a client's key is its own."""
    program, all_of_them, t = program_of(METHOD, model), cohort(std=1.0), jnp.int32(2)
    mean, memory = ask_each(program, all_of_them, CARRY, t)
    alone = []
    for i, size in enumerate(all_of_them.sizes):
        index, key = jnp.int32(i), jax.random.fold_in(all_of_them.key, i)
        alone.append(program(all_of_them.inputs(CARRY, t, memory=CARRY.memory[i], key=key, index=index, size=size)))
    uploads = np.stack([upload for upload, _ in alone])
    np.testing.assert_allclose(mean, np.tensordot(WEIGHTS, uploads, 1), rtol=1e-4, atol=1e-5)
    assert np.array_equal(memory, np.stack([kept for _, kept in alone]))


def test_the_server_sees_the_mean_and_the_noise_of_it():
    program, clients, t = program_of(METHOD), cohort(std=0.0), jnp.int32(0)
    after = federated_round(Rules(METHOD, program, PUBLIC.facts(()), pooled=False), clients, CARRY, t)
    mean, _ = ask_each(program, clients, CARRY, t)
    np.testing.assert_allclose(after.params, THETA - 0.5 * mean, rtol=1e-6)
    assert int(after.state) == 1
    assert np.asarray(after.memory).tolist() == [[1, 3], [1, 40], [1, 11]]


@pytest.mark.slow
@pytest.mark.parametrize("model", [HEAD, HEAD._replace(gradient=None)], ids=["closed form", "generic"])
def test_pooled_is_the_mean_of_all(model):
    method = Method("plain", OneGradient(), lambda mean, state, params, facts: (params, state))
    program, carry, t = program_of(method, model), Carry(THETA, (), ()), jnp.int32(0)
    records = pool(X, Y, ROWS, WEIGHTS / np.array(SIZES), tile=program.sites[0].query.tile)
    pooled, _ = ask_pooled(program, cohort(0.0, sizes=[1.0], records=records), carry, t)
    mean, _ = ask_each(program, cohort(0.0), carry, t)
    np.testing.assert_allclose(pooled, mean, rtol=1e-4, atol=1e-6)
