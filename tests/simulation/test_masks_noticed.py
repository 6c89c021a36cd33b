"""Whose key decides who takes part: that of the records' own client, and of nobody else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal

from fedsofim.core.audit import Inputs, audit_program
from fedsofim.core.door import Facts
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr
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


def both_clients(leaves: int = 1) -> Callable[[jax.Array, Any], Any]:
    """run(keys, round): what a program that samples its records gives at two clients with these keys."""
    inputs = two_clients()
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), inputs)

    def client(door, params, state, memory):
        return door.sum(lambda x, y: [x] * leaves, clip=2.0, sample=0.5), memory

    facts = Facts(rounds=3, clients=2, clip=1.0, noise_std=0.0)
    program = audit_program(client, HEAD, shapes, facts, Phase.ROUND)

    def run(keys: jax.Array, round: Any) -> Any:
        def one(key, index):
            return program(replace(inputs, key=key, index=index, round=jnp.int32(round)))[0]

        return jax.vmap(one)(keys, jnp.arange(2, dtype=jnp.int32))

    return run


def keys_of(seeds: tuple[int, int]) -> jax.Array:
    return jnp.stack([jax.random.key(s) for s in seeds])


def taking_part(seeds: tuple[int, int]) -> np.ndarray:
    """(clients, records of each): who of its own each client summed, under keys of these seeds."""
    (sums,) = both_clients()(keys_of(seeds), 0)
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


# --- what each key is used for ------------------------------------------------------------------------------


class Uses:
    """Keys from which numbers were drawn, and keys from which other keys were made, as a program runs."""

    def __init__(self) -> None:
        self.drawn: list[bytes] = []
        self.parents: set[bytes] = set()

    def run(self, jaxpr: Any, consts: Any, args: Any) -> list:
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self.equation(eqn, [read(a) for a in eqn.invars]), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, eqn: Any, values: list) -> list:
        name = eqn.primitive.name
        inner = [j for p in eqn.params.values() for j in jaxprs_in(p)]
        if name == "jit":
            return self.run(*open_jaxpr(inner[0]), values)
        assert not any("random" in str(j) for j in inner)  # or this test would not see it
        if name == "random_bits":
            self.drawn += self.words(values[0])
        elif name in ("random_fold_in", "random_split"):
            self.parents |= set(self.words(values[0]))
        out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
        return list(out) if eqn.primitive.multiple_results else [out]

    @staticmethod
    def words(keys: jax.Array) -> list[bytes]:
        return [row.tobytes() for row in np.asarray(jax.random.key_data(keys)).reshape(-1, 2)]


@pytest.mark.parametrize("leaves", [1, 2])
def test_a_key_that_numbers_are_drawn_from_makes_no_other_key(leaves: int):
    """Noise of one round beside the masks of all: children of a key are bits of it, which its noise would tell of."""
    program = jax.make_jaxpr(both_clients(leaves))(keys_of((1, 2)), jnp.int32(0))
    uses = Uses()
    for t in range(3):
        uses.run(program.jaxpr, program.consts, [keys_of((1, 2)), jnp.int32(t)])
    assert len(uses.drawn) == 3 * (2 * leaves + 2)  # of every round: noise of two clients, and two blocks' masks
    assert len(set(uses.drawn)) == len(uses.drawn)
    assert not uses.parents & set(uses.drawn)
