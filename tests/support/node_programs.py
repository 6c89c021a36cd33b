"""A client's program with what it runs on, executed as a node does: what the tests of deployment noise share."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.audit import Inputs, Program, audit_program
from fedsofim.core.door import Facts
from fedsofim.core.method import Method
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.programs import Public, input_shapes
from fedsofim.core.records import block_shape, in_blocks
from fedsofim.core.site import MAX_SITES
from fedsofim.deploy.execute import Secrets, run
from fedsofim.methods import make

HEAD = softmax_head()
SECRETS = Secrets(own=bytes(32), job=bytes(range(32)))


def inputs_for(shapes: Inputs, x: np.ndarray, y: np.ndarray, round: int = 0, key: int = 0, std: float = 0.0) -> Inputs:
    """What a client's program is run on; state and memory as they begin, parameters not zero."""
    random = np.random.default_rng(7)

    def start(s: Any) -> jax.Array:
        return jnp.asarray(0.3 * random.normal(size=s.shape), s.dtype)

    return Inputs(
        params=jax.tree.map(start, shapes.params),
        state=jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.state),
        memory=jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.memory),
        key=jax.random.key(key),
        index=jnp.int32(0),
        size=jnp.float32(len(y)),
        round=jnp.int32(round),
        noise_std=jnp.float32(0.1),
        stds=jnp.full(MAX_SITES, std, jnp.float32),
        records=jax.tree.map(jnp.asarray, in_blocks(x, y, [np.arange(len(y))])),
    )


def public_for(x: np.ndarray, y: np.ndarray, clip: float = 2.0) -> Public:
    return Public(shape=x.shape[1:], classes=3, blocks=block_shape([len(y)]), clients=1, rounds=5, clip=clip)


def shapes_for(method: Method, x: np.ndarray, y: np.ndarray) -> Inputs:
    return input_shapes(method, HEAD, public_for(x, y))


def prepared(
    client: Callable, x: Any, y: Any = None, rounds: int = 1, clip: float = 1.0, round: int = 0
) -> tuple[Program, Inputs]:
    """client(door) -> upload, audited, with what it runs on: in doubles, so that what leaves shows the lattice."""
    x = np.asarray(x, np.float64)
    y = np.zeros(len(x), np.int32) if y is None else y
    shapes = replace(shapes_for(make("fedgd"), x, y), state=(), memory=())
    doubles = [jax.ShapeDtypeStruct(a.shape, jnp.float64) for a in (shapes.records.x, shapes.records.weight)]
    shapes = replace(shapes, records=shapes.records._replace(x=doubles[0], weight=doubles[1]))
    facts = Facts(rounds=rounds, clients=1, clip=clip, noise_std=0.0)
    program = audit_program(lambda door, *_: (client(door), ()), HEAD, shapes, facts, Phase.ROUND)
    return program, inputs_for(shapes, x, y, round)


def released(client: Callable, x: Any, stds: Mapping[int, float], secrets: Secrets = SECRETS, **more: Any) -> Any:
    """What client(door) uploads."""
    return run(*prepared(client, x, **more), stds, secrets)[0]


def values(x: jax.Array, y: jax.Array) -> jax.Array:
    """The record itself."""
    return x
