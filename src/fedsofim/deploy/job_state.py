"""How far a job is: everything its next question depends on."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedsofim.core.audit import Program
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan, make_plan
from fedsofim.deploy.clients import Client
from fedsofim.deploy.order import Order
from fedsofim.deploy.wire import Job, Programs, Request, outgoing, programs_of
from fedsofim.methods import make


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job between two questions: a checkpoint holds it all, so a resumed job is bit-identical."""

    order: Order
    job: Job
    clients: tuple[Client, ...]  # in the order of their names
    params: Any
    state: Any  # the server's
    moments: dict[str, Any] | None
    phase: Phase
    round: int  # the next to be asked, from 0

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
        arrays = outgoing(self.programs, self.phase, self.params, self.state, self.moments)
        return Request(self.job, self.phase, self.round, arrays)


@lru_cache(maxsize=8)  # one method object for the life of a job, so that its step is compiled once
def plan_of(order: Order, clients: tuple[Client, ...]) -> Plan:
    """The priced plan: shapes and sizes only."""
    return make_plan(
        make(order.method, dict(order.settings), order.budget.epsilon),
        softmax_head(),
        sizes=[c.size for c in clients],
        shape=clients[0].shape,
        classes=clients[0].classes,
        budget=order.budget,
        rounds=order.rounds,
        clip=order.clip,
        weights=order.weights,
        trust=order.trust,
        standardize=FeatureMoments(share=order.standardize) if order.standardize else None,
    )
