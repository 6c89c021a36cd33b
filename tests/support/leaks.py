"""A stranger's client in the smallest frame that prices it: what the tests of leaks share."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from fedsofim.core.budget import Budget
from fedsofim.core.method import Method
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.plan import Plan, make_plan


def method_of(client: Callable) -> Method:
    """A method with this client; its state is the number 3, a client's memory the number 0."""
    return Method(
        "stranger",
        client,
        lambda mean, state, params, facts: (params - mean, state),
        init=lambda params: jnp.int32(3),
        memory=lambda params: jnp.float32(0),
    )


def priced(client: Callable, model: Model | None = None, **how: Any) -> Plan:
    """The plan of a run of it, or Refused."""
    given: dict[str, Any] = {
        "sizes": (7, 9), "shape": (3,), "classes": 3, "budget": Budget(1.0), "rounds": 5,
    }  # fmt: skip
    return make_plan(method_of(client), model or softmax_head(), **(given | how))
