"""A stranger's client, read by the audit alone: nobody runs it for a second opinion."""

from collections.abc import Callable

import jax.numpy as jnp

from fedsofim.core.audit import Program, audit_program
from fedsofim.core.method import Method
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.programs import Public, input_shapes

ROUNDS = 5


def audited(client: Callable) -> Program:
    """The program of client(door, params, state, memory) over five rounds of two clients; state and memory: numbers."""
    method = Method(
        "stranger",
        client,
        lambda mean, state, params, facts: (params, state),
        init=lambda params: jnp.float32(3),
        memory=lambda params: jnp.float32(0),
    )
    public = Public(shape=(3,), classes=3, blocks=(2, 9), clients=2, rounds=ROUNDS, clip=1.0)
    head = softmax_head()
    return audit_program(client, head, input_shapes(method, head, public), public.facts(()), Phase.ROUND)
