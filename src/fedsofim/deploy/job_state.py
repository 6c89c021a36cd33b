"""How far a job is: everything its next question depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedsofim import models
from fedsofim.core.audit import Program
from fedsofim.core.evaluation import Measured
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan, make_plan
from fedsofim.core.preparation import Map, prepared
from fedsofim.deploy.allowances import budget_for
from fedsofim.deploy.clients import Client
from fedsofim.deploy.order import Order
from fedsofim.deploy.wire import Job, Programs, Request, outgoing, programs_of
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.recipes import Choices, Situation, by_hand, choose


@dataclass(frozen=True, kw_only=True)
class FalseSum:
    """A secure sum that was thrown away: who took part in it, and who of them is known to have spoiled it."""

    phase: Phase
    round: int
    present: tuple[str, ...]
    accused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job between two questions: a checkpoint holds it all, so a resumed job is bit-identical."""

    order: Order
    job: Job
    clients: tuple[Client, ...]  # in the order of their names
    params: Any
    state: Any  # the server's
    released: Mapping[Phase, Mapping[str, np.ndarray]]  # for the preparation: the means, by phase
    phase: Phase
    round: int  # the next to be asked, from 0
    absent: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # who was not there, by round, from 0
    late: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # whose answers came when their round was over

    measured: tuple[Measured, ...] = ()  # accuracies that the nodes counted
    attempt: int = 0  # how often the present sum came out false
    false_sums: tuple[FalseSum, ...] = ()  # those of the whole job

    @property
    def finished(self) -> bool:
        return self.phase is Phase.ROUND and self.round >= self.job.rounds

    @property
    def masked(self) -> bool:
        """Do uploads come under masks, so that only their sum says anything?"""
        return self.job.trust == "secure-sum"

    @property
    def plan(self) -> Plan:
        return plan_of(self.order, self.clients)

    @property
    def programs(self) -> Programs:
        return programs_of(self.job, max(c.size for c in self.clients))

    @property
    def program(self) -> Program:
        """The client's program of the present phase."""
        return self.programs.by_phase[self.phase]

    def request(self) -> Request:
        arrays = outgoing(self.programs, self.phase, self.params, self.state, self.released)
        number = len(self.measured) if self.phase is Phase.EVALUATION else self.round
        return Request(self.job, self.phase, number, arrays, self.attempt)

    @property
    def false_so_far(self) -> tuple[FalseSum, ...]:
        """The sums of the present question that were thrown away."""
        return self.false_sums[len(self.false_sums) - self.attempt :]

    @property
    def choices(self) -> Choices:
        """What is run, and why, where the recipe chose it."""
        return choices_of(self.order, self.clients)

    @property
    def map(self) -> Map:
        """From records as the nodes hold them to what the parameters are for; known once all of it was released."""
        if missing := [p for p in self.job.mean_stds if p not in self.released]:
            raise InputError(f"the preparation's {', '.join(missing)} were not yet released; go on with the job first")
        return prepared(self.plan.preparation, self.released, self.job.mean_stds)

    def predict(self, x: Any) -> np.ndarray:
        """Predicted classes of records as the nodes hold them (records x features)."""
        x, shape = np.asarray(x, np.float32), self.clients[0].shape
        if x.shape[1:] != shape or x.ndim == 0:
            raise InputError(f"predict got an array of shape {x.shape}; expected records of shape {shape} each")
        return np.asarray(self.plan.model.logits(self.params, jnp.asarray(self.map(x)))).argmax(axis=-1)


def choices_of(order: Order, clients: tuple[Client, ...]) -> Choices:
    """What the recipe makes of these clients, and what was ordered by hand in its place."""
    model = models.unless_head(order.model, dict(order.model_settings))
    situation = Situation(
        budget=budget_for(order, clients),
        sizes=tuple(c.size for c in clients),
        shape=clients[0].shape,
        classes=clients[0].classes,
        trust=order.trust,
        head=model is None,
        takes="any features" if model is None else model.takes,
        min_clients=order.min_sum,
        quiet=order.weights == "quiet",
    )
    return by_hand(
        choose(order.recipe, situation),
        method=order.method,
        settings=dict(order.settings),
        rounds=order.rounds,
        clip=order.clip,
        weights=order.weights,
        preparation=(FeatureMoments(share=order.standardize),) if order.standardize else None,
    )


@lru_cache(maxsize=8)  # one method object for the life of a job, so that its step is compiled once
def plan_of(order: Order, clients: tuple[Client, ...]) -> Plan:
    """The priced plan: shapes and sizes only."""
    chosen = choices_of(order, clients)
    return make_plan(
        make(chosen.method, dict(chosen.settings), order.budget.epsilon),
        models.unless_head(order.model, dict(order.model_settings)) or softmax_head(chosen.start),
        sizes=[c.size for c in clients],
        shape=clients[0].shape,
        classes=clients[0].classes,
        budget=budget_for(order, clients),
        rounds=chosen.rounds,
        clip=chosen.clip,
        weights=chosen.weights,
        trust=order.trust,
        preparation=chosen.preparation,
        evaluation=order.evaluation(chosen.rounds),
        min_clients=order.min_sum,
        unit=order.unit,
        places=order.places,
    )
