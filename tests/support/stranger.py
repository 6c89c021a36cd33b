"""A stranger's client in the plainest method, planned for two small clients: what tests of prices share."""

from collections.abc import Callable, Sequence
from typing import Any

from fedsofim.core.budget import Budget
from fedsofim.core.method import Method, Setup
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.plan import Plan, make_plan


def stranger(client: Callable, setup: Setup | None = None, **more: Any) -> Method:
    """A method whose server changes nothing."""
    return Method("stranger", client, lambda mean, state, params, facts: (params, state), setup=setup, **more)


def priced(
    client: Callable,
    rounds: Any = 10,
    *,
    model: Model | None = None,
    budget: Budget = Budget(1.0),
    sizes: Sequence[int] = (7, 9),
    setup: Setup | None = None,
    **more: Any,
) -> Plan:
    """The plan of a stranger's client."""
    return make_plan(
        stranger(client, setup),
        model or softmax_head(),
        sizes=sizes,
        shape=(3,),
        classes=3,
        budget=budget,
        rounds=rounds,
        **more,
    )
