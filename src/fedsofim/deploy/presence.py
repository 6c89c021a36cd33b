"""Rounds in which not every client is there.

Under local trust each upload carries all of its own noise, so the guarantee of a client does not depend on who else
comes, and it is charged for what it released. What does depend on it is the average: its weights are those of the
clients that were there, w_i/Σw, and its noise is theirs, s·sqrt(Σ a_i²) with a_i = w_i/|D_i| of these. Methods that
correct for noise are told that.

Under secure sum each client draws so much that any `min_clients` of them have all the noise (secure_sum.py): A·s·
sqrt(present/min_clients) is in the sum, which is then divided by the weights of those present.

Not every job can do without a client: noise laid out over the rounds (a tree's) and what clients remember from the
round before need every round, and what is released once needs everybody.
"""

import math
from collections.abc import Sequence

import jax
import numpy as np

from fedsofim.core.keys import key_of
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.core.pooled import noise_gain
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.noise import laid_out
from fedsofim.deploy.order import Order
from fedsofim.errors import InputError, expect_whole

_REPEATED = (Phase.ROUND, Phase.EVALUATION)


def check_presence(order: Order, plan: Plan) -> None:
    """An error if rounds are to go on without clients that this job cannot do without."""
    if order.min_clients is None or order.min_clients == len(plan.sizes):
        return
    expect_whole("min-clients", order.min_clients, 1)
    if order.min_clients > len(plan.sizes):
        raise InputError(f"min-clients is {order.min_clients}; expected at most the job's {len(plan.sizes)} clients")
    program, inputs = plan.programs[Phase.ROUND], jax.eval_shape(lambda k: plan.model.init(k, plan.shape, plan.classes),
                                                                 key_of(0))  # fmt: skip
    if any(laid_out(site.noise) for site in program.sites) or jax.tree.leaves(plan.method.memory(inputs)):
        raise InputError(
            f"min-clients: {plan.method.name} needs every client in every round (its noise comes back in later rounds, "
            "or clients remember the round before); leave min-clients out"
        )


def fewest(now: JobState) -> int:
    """How many clients the present question needs."""
    wanted = now.order.min_clients
    return len(now.clients) if wanted is None or now.phase not in _REPEATED else wanted


def weights_of(now: JobState, present: Sequence[str]) -> np.ndarray:
    """w_i of those who are there, in the order of the clients; they add up to 1. A count is of all records alike."""
    of_all = [c.counted for c in now.clients] if now.phase is Phase.EVALUATION else now.plan.client_weights
    weights = np.asarray([w for w, c in zip(of_all, now.clients, strict=True) if c.name in present])
    return weights / weights.sum()


def weight_of(now: JobState, present: Sequence[str]) -> float:
    """Σw_i of those who are there, before it is made 1."""
    return sum(w for w, c in zip(now.plan.client_weights, now.clients, strict=True) if c.name in present)


def noise_std_of(now: JobState, present: Sequence[str]) -> float:
    """Noise std per coordinate of a round's average over those who are there."""
    if len(present) == len(now.clients):
        return now.plan.noise_std
    if now.masked:
        return now.plan.noise_std * math.sqrt(len(present) / len(now.clients)) / weight_of(now, present)
    here = np.array([c.name in present for c in now.clients])
    sizes, louder = np.asarray(now.plan.sizes, float)[here], now.plan.louder(Phase.ROUND)[here]
    return now.plan.sum_std * noise_gain(weights_of(now, present) / sizes * louder, shared=False)
