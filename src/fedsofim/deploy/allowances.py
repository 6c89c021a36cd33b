"""What a node's policy still allows: the budget that a job may have there, where each node's policy is its budget.

The ledger's releases compose to mu, the cap is worth mu_cap at the policy's delta, and a job of mu' more stays within
it exactly if mu² + mu'² <= mu_cap². So what is left is mu' = sqrt(mu_cap² - mu²), said as an epsilon at that delta.
The job is priced again by the node before it begins and at every request: this number decides nothing, it only helps a
coordinator to ask for what will be granted.
"""

import math
from collections.abc import Sequence

from fedsofim.core.budget import Budget
from fedsofim.core.budgets import AnyBudget, Budgets, simplest
from fedsofim.core.gaussian import EPSILONS, epsilon_of, mu_of
from fedsofim.deploy.clients import Client
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError


def allowance(policy: Policy) -> float:
    """The epsilon, at the policy's delta, that a job may still spend here; 0: none, infinite in a rehearsal."""
    if not math.isfinite(policy.epsilon):
        return math.inf
    return left_of(policy.epsilon, policy.delta, [line for _, line in policy.account.entries()])


def left_of(cap: float, delta: float, lines: Sequence[Line]) -> float:
    """What is left of a cap after these releases.

    >>> left_of(1.0, 1e-5, [])
    1.0
    """
    if not lines:
        return cap
    before = epsilon_of_lines(lines, delta)
    if not before < cap:
        return 0.0
    left = mu_of(cap, delta) ** 2 - mu_of(max(before, EPSILONS[0]), delta) ** 2
    return epsilon_of(math.sqrt(left), delta) if left > 0 else 0.0


def budget_for(order: Order, clients: Sequence[Client]) -> AnyBudget:
    """The order's budget for all, or each node's own: what its policy still allows, and no more than was ordered."""
    if not order.from_nodes:
        return order.budget
    if empty := [c.name for c in clients if c.allows is not None and c.allows[0] < EPSILONS[0]]:
        raise InputError(
            f"the policy of {', '.join(empty)} allows nothing more; the job was not begun, nothing was spent"
        )
    return simplest(Budgets([_of(order, c) for c in clients]))


def _of(order: Order, client: Client) -> Budget:
    if client.allows is None:
        raise InputError(f"{client.name} does not say what its policy still allows; do all run the same version?")
    epsilon, delta = client.allows
    return Budget(min(order.budget.epsilon, epsilon), min(order.budget.delta, delta))
