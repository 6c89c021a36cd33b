"""Our side of every comparison, through the same functions that a run uses."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from clock import Turn, timed
from problem import BETA, CLIP, LR, RHO, initial_theta

from fedsofim import native
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.clipping import guarded
from fedsofim.core.cohort import Carry, Cohort
from fedsofim.core.door import Door, Facts
from fedsofim.core.method import Method
from fedsofim.core.plan import Plan
from fedsofim.core.round import federated_round
from fedsofim.data.partition import Split
from fedsofim.methods.fedavg import many_steps
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.simulation import simulator
from fedsofim.simulation.simulator import Static, cohort_of, start
from fedsofim.simulation.training import plan_for

ROUNDS = 70


def one_theta(data: Split) -> Plan:
    """DP-FedSOFIM: every client releases a gradient at the same theta."""
    return plan_for(data, fedsofim(lr=LR, rho=RHO, beta=BETA), Budget(1.0), ROUNDS, clip=CLIP)


def theta_per_client(data: Split) -> Plan:
    """DP-FedAvg written with a loop of one local step: each client's theta is its own."""
    return plan_for(data, many_steps(1, 0.1, 1.0), Budget(1.0), ROUNDS, clip=CLIP)


def round_of(plan: Plan, data: Split, fused: bool = True) -> Callable[[], object]:
    """One compiled round, going on from the last; noise and server step included. `fused` False leaves the sums to
    XLA, as on a machine without a C++ compiler."""
    init_key, noise_key = simulator.keys(0)
    cohort = cohort_of(plan, data, noise_key, plan.pooled)
    rules = Static.of(plan, plan.pooled, plan.rounds).rules

    def step(carry: Carry, cohort: Cohort, t: jax.Array) -> tuple[Carry, jax.Array]:
        return federated_round(rules, cohort, carry, t), t + 1

    now = [start(plan, data, init_key), jnp.int32(0)]
    with kept_from_native() if not fused else nullcontext():
        compiled = jax.jit(step, donate_argnums=0).lower(now[0], cohort, now[1]).compile()

    def run() -> None:
        now[:] = jax.block_until_ready(compiled(now[0], cohort, now[1]))

    return run


def one_of_ten(plan: Plan, data: Split) -> Turn:
    """A round as a run makes it: a tenth of a call of ten."""
    init_key, noise_key = simulator.keys(0)
    cohort = cohort_of(plan, data, noise_key, plan.pooled)
    static = Static.of(plan, plan.pooled, plan.rounds)  # measured after round 70, which is not among them
    test = jax.device_put((data.dataset.x_test, data.dataset.y_test))
    now = [start(plan, data, init_key), simulator.unmeasured(plan.rounds)]

    def ten() -> None:
        now[:] = jax.block_until_ready(simulator.rounds_between(static, cohort, test, *now, np.int32(0), np.int32(10)))

    turn = timed(ten)
    return lambda repeats: [t / 10 for t in turn(repeats)]


@contextmanager
def kept_from_native() -> Iterator[None]:
    """What is traced in here leaves its sums to XLA."""
    before = os.environ.get(native.SWITCH)
    os.environ[native.SWITCH] = "0"
    try:
        yield
    finally:
        os.environ.pop(native.SWITCH)
        os.environ |= {native.SWITCH: before} if before is not None else {}


def fused_pass(data: Split) -> Callable[[], object]:
    """The sums of a round with one theta alone, without noise and step."""
    plan = one_theta(data)
    records = cohort_of(plan, data, jax.random.key(0), True).records
    theta = jnp.asarray(initial_theta(data))
    site = plan.program.sites[0]
    compiled = jax.jit(lambda theta, records: client_sums(site.query, [theta], [False], records, 1, site.clip))
    return lambda: jax.block_until_ready(compiled(theta, records))


def clipped_sums(data: Split, theta: np.ndarray | None = None) -> np.ndarray:
    """Every client's clipped sum at theta, without noise, (clients, p+1, C), as a round with local steps has it."""

    def client(door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        total = door.gradient(params)
        return total, total

    return np.asarray(_once(data, client, theta, pooled=False).memory)


def clipped_mean(data: Split, theta: np.ndarray | None = None) -> np.ndarray:
    """The mean over clients of their mean clipped gradients, as a round with one shared theta has it."""
    return np.asarray(_once(data, fedsofim().client, theta, pooled=True).params)


def _once(data: Split, client: Callable, theta: np.ndarray | None, pooled: bool) -> Carry:
    """One round without noise whose new parameters are the mean of the uploads."""

    def server(mean: Any, state: Any, params: Any, facts: Facts) -> tuple[Any, Any]:
        return mean, state

    method = Method("sums", client, server, memory=(lambda params: ()) if pooled else jnp.zeros_like)
    plan = plan_for(data, method, NO_PRIVACY, 1, clip=CLIP / guarded(1.0))  # we clip a little below it, peers do not
    key = jax.random.key(0)
    carry = start(plan, data, key)
    carry = carry._replace(params=jnp.asarray(initial_theta(data) if theta is None else theta))
    rules = Static.of(plan, pooled, every=1).rules
    once = jax.jit(lambda cohort, carry: federated_round(rules, cohort, carry, jnp.int32(0)))
    return once(cohort_of(plan, data, key, pooled), carry)
