"""What a run will release and cost, settled before any record is read.

`plan` audits the method's programs, prices them under the chosen trust and weights, and calibrates the noise.
Everything printed about privacy comes from here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import privacy
from fedsofim.errors import InputError, unknown
from fedsofim.ledger import Inputs, Program, audit
from fedsofim.models import Model
from fedsofim.privacy import Budget, Charge
from fedsofim.records import Records, block_shape
from fedsofim.release import MAX_SITES, Facts
from fedsofim.round import Method, OneGradient
from fedsofim.standardize import PrivateMoments, moments_client

Trust = Literal["local", "secure-sum"]
Weights = Literal["uniform", "size"]


@dataclass(frozen=True)
class Plan:
    """A priced run. `budget` None means no noise at all: for tests and upper bounds, epsilon infinite."""

    method: Method
    model: Model
    program: Program
    setup: Program | None
    multipliers: dict[int, float]  # noise std over clip, per release site
    budget: Budget | None
    rounds: int
    clip: float
    sizes: tuple[int, ...]
    classes: int
    trust: Trust
    weights: Weights
    standardize: PrivateMoments | None = None
    moments: Program | None = None  # the release behind `standardize`

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The ledger: every release site with its count, in the order things happen."""
        return tuple(c for p in (self.moments, self.setup, self.program) if p for c in p.charges)

    @property
    def releases(self) -> int:
        return sum(c.releases for c in self.charges)

    @property
    def pooled(self) -> bool:
        """Do all clients release one gradient at one theta, so that their mean is a single noisy sum?"""
        return type(self.method.client) is OneGradient  # a subclass may upload anything

    @property
    def delta(self) -> float:
        return self.budget.delta if self.budget else 0.0

    @property
    def epsilon(self) -> float:
        """What the ledger really spends, derived from its releases and their noise."""
        return privacy.spent(self.charges, self.multipliers, self.delta) if self.budget else math.inf

    @property
    def mu(self) -> float | None:
        """Composed mu; None where records are sampled, which has no single mu."""
        if any(c.sample < 1 for c in self.charges):
            return None
        return privacy.mu_spent(self.charges, self.multipliers) if self.budget else math.inf

    @property
    def client_weights(self) -> np.ndarray:
        """w_i of the mean of uploads: 1/n (the paper) or |D_i|/N (the pooled objective)."""
        sizes = np.asarray(self.sizes, float)
        return np.full(len(sizes), 1 / len(sizes)) if self.weights == "uniform" else sizes / sizes.sum()

    @property
    def noise_gain(self) -> float:
        """Noise std of the average over that on one client's sum.

        Local trust: every upload carries full noise, so it adds up as sqrt(Σ a_i²), a_i = w_i/|D_i|. Secure sum:
        only Σ_i a_i·S_i is seen, whose sensitivity is max_i a_i·2c, so the total noise is that of the largest.
        """
        a = self.client_weights / np.asarray(self.sizes, float)
        shared = self.trust == "secure-sum" and self.pooled
        return float(a.max() if shared else math.sqrt(np.sum(a**2)))

    @property
    def sum_std(self) -> float:
        """Noise std on one client's clipped sum, at full noise."""
        main = self.program.charges[0]
        return self.multipliers[main.site] * main.clip if self.budget else 0.0

    @property
    def noise_std(self) -> float:
        """Per coordinate of the averaged release."""
        return self.sum_std * self.noise_gain

    @property
    def sigma_g(self) -> float:
        """The paper's multiplier sqrt(n)·s/c, s the noise std on each client's sum (its share under secure sum)."""
        a = self.client_weights / np.asarray(self.sizes, float)
        share = self.noise_gain / math.sqrt(np.sum(a**2))
        return math.sqrt(len(self.sizes)) * share * self.sum_std / self.program.charges[0].clip

    @property
    def facts(self) -> Facts:
        return Facts(self.rounds, len(self.sizes), self.clip, np.float32(self.noise_std))

    def stds(self, program: Program, offset: int = 0) -> np.ndarray:
        """Noise std of each site of a program, in the order the door numbers them."""
        out = np.zeros(MAX_SITES, np.float32)
        for charge in program.charges if self.budget else ():
            unpaid = charge.charged == 0  # its noise is stated by the mechanism itself, in the data's units
            out[charge.site - offset] = 1.0 if unpaid else self.multipliers[charge.site] * charge.clip
        return out


def plan(
    method: Method,
    model: Model,
    *,
    sizes: Sequence[int],
    shape: tuple[int, ...],
    classes: int,
    budget: Budget | None,
    rounds: int,
    clip: float = 10.0,
    trust: Trust = "local",
    weights: Weights = "uniform",
    multiplier: float | None = None,
    standardize: PrivateMoments | None = None,
) -> Plan:
    """Audit and price a method for clients of these sizes. Shapes only: no record is read.

    `multiplier` (noise std over clip) sets the common noise by hand instead of calibrating it; the epsilon is
    then what that spends at the budget's delta.
    """
    _check(sizes, rounds, clip, trust, weights)
    public = (shape, classes, block_shape(sizes), len(sizes), rounds, clip)
    program, setup, moments = audited(method, model, standardize, *public)
    charges = tuple(c for p in (moments, setup, program) if p for c in p.charges)
    if not program.charges:
        raise InputError(f"{method.name}: the client releases nothing; call the door in it")
    if any(c.charged is not None for c in charges) and not method.note:
        raise InputError(f"{method.name}: a release is not charged at its cost; say so in the method's note")
    multipliers = {c.site: 0.0 for c in charges}
    if budget is not None and multiplier is None:
        multipliers = privacy.calibrate(charges, budget)
    elif multiplier is not None:
        multipliers = privacy.at_multiplier(charges, multiplier)
    return Plan(
        method,
        model,
        program,
        setup,
        multipliers,
        budget,
        rounds,
        clip,
        tuple(int(s) for s in sizes),
        classes,
        trust,
        weights,
        standardize,
        moments,
    )


@lru_cache(maxsize=256)
def audited(
    method: Method,
    model: Model,
    standardize: PrivateMoments | None,
    shape: tuple[int, ...],
    classes: int,
    blocks: tuple[int, int],
    clients: int,
    rounds: int,
    clip: float,
) -> tuple[Program, Program | None, Program | None]:
    """The run's programs (rounds, setup, moments), read and counted. Cached: seeds and budgets share a compilation."""
    facts = Facts(rounds, clients, clip, 0.0)
    inputs = input_shapes(method, model, shape, classes, blocks)
    program = audit(method.client, model, inputs, facts, rounds)
    once = inputs._replace(state=(), memory=())
    setup = moments = None
    if method.setup is not None:
        ask = method.setup.client
        setup = audit(lambda door, params, *_: (ask(door, params), ()), model, once, facts, 1, offset=MAX_SITES)
    if standardize is not None:
        moments = audit(moments_client(standardize), model, once, facts, 1, offset=2 * MAX_SITES)
    return program, setup, moments


def input_shapes(method: Method, model: Model, shape: tuple[int, ...], classes: int, blocks: tuple[int, int]) -> Inputs:
    """Shapes of everything a client's program takes."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(lambda k: model.init(k, shape, classes), key)

    def spec(shape, dtype=jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    records = Records(spec((*blocks, *shape)), spec(blocks, jnp.int32), spec(blocks), spec(blocks[:1], jnp.int32))
    return Inputs(
        params=params,
        state=jax.eval_shape(method.init, params),
        memory=jax.eval_shape(method.memory, params),
        key=key,
        index=spec((), jnp.int32),
        size=spec(()),
        round=spec((), jnp.int32),
        noise_std=spec(()),
        stds=spec((MAX_SITES,)),
        records=records,
    )


def _check(sizes: Sequence[int], rounds: int, clip: float, trust: str, weights: str) -> None:
    if rounds < 1:
        raise InputError(f"rounds is {rounds}; expected at least 1")
    if not clip > 0:
        raise InputError(f"clip is {clip}; expected a number above 0")
    if len(sizes) == 0 or min(sizes) < 1:
        raise InputError(f"client sizes are {list(sizes)}; expected at least one client with at least one record each")
    for kind, value, known in (("trust", trust, Trust), ("weights", weights, Weights)):
        if value not in get_args(known):
            raise unknown(kind, value, get_args(known))
