"""What is attacked: a method under a budget, with the programs and the noise that really run.

The attacked client holds a few records beside the canary. Its programs are read anew for as many clients as there are
trials side by side (worlds.py, trials.py), which changes the shape of the records' array and nothing else: the charges
must be the plan's own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from fedsofim.attack.claims import Claim, claim_of
from fedsofim.core.audit import Program
from fedsofim.core.budget import Budget
from fedsofim.core.keys import key_of
from fedsofim.core.method import Method
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan, make_plan
from fedsofim.core.preparation import Step
from fedsofim.core.programs import Public, read_programs
from fedsofim.core.queries import SoftmaxGradient
from fedsofim.core.records import block_shape
from fedsofim.errors import InputError

CLASSES = 2  # with two, the gradients of the two labels point exactly against each other


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A method, its budget and its surroundings."""

    method: Method
    budget: Budget
    rounds: int = 70
    clip: float = 10.0
    model: Model = softmax_head()
    preparation: tuple[Step, ...] = ()  # at most one step, which releases something
    features: int = 8
    records: int = 4
    phases: tuple[Phase, ...] = ()  # attacked ones; empty: all there are
    own_server: bool = False  # parameters move as the method's server moves them; else the attacker holds them

    @property
    def plan(self) -> Plan:
        """The run as it is priced: one client, who is attacked."""
        return make_plan(
            self.method,
            self.model,
            sizes=[self.records],
            shape=(self.features,),
            classes=CLASSES,
            budget=self.budget,
            rounds=self.rounds,
            clip=self.clip,
            preparation=self.preparation,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """What really runs, and what was promised of it."""

    setting: Setting
    plan: Plan
    claim: Claim
    phases: tuple[Phase, ...]
    programs: Callable[[int], Mapping[Phase, Program]]  # for so many clients side by side
    stds: Mapping[Phase, np.ndarray]  # of the noise, at the number of each site
    round_seen: Callable[[Any], Any]  # which round the client believes it is in

    @property
    def start(self) -> Any:
        return loud_start(self.setting.model, self.setting.features)


def loud_start(model: Model, features: int) -> Any:
    """Parameters where gradients are loud: zero for the head, where all classes are as likely."""
    found = model.init(key_of(0), (features,), CLASSES)
    return jax.tree.map(jnp.zeros_like, found) if type(model.gradient) is SoftmaxGradient else found


def honest(setting: Setting) -> Engine:
    """The engine as it is."""
    if len(setting.preparation) > 1 or any(step.phase is None for step in setting.preparation):
        raise InputError(
            f"the preparation is {setting.preparation}; expected at most one step, one that releases something: attack "
            "each of them by itself, since records are the attacker's own anyway"
        )
    plan = setting.plan
    phases = tuple(phase for phase in plan.programs if not setting.phases or phase in setting.phases)
    if missing := [phase for phase in setting.phases if phase not in plan.programs]:
        raise InputError(f"{setting.method.name} has no phase '{missing[0]}'; it has {', '.join(plan.programs)}")
    return Engine(
        setting=setting,
        plan=plan,
        claim=claim_of(plan, phases),
        phases=phases,
        programs=lambda clients: programs_for(setting, plan, clients),
        stds={phase: plan.stds_by_site(phase) for phase in plan.programs},
        round_seen=lambda t: t,
    )


def programs_for(setting: Setting, plan: Plan, clients: int) -> Mapping[Phase, Program]:
    """The plan's programs, read for the records of so many clients."""
    public = Public(
        shape=(setting.features,),
        classes=CLASSES,
        blocks=block_shape([setting.records] * clients),
        clients=1,
        rounds=setting.rounds,
        clip=setting.clip,
    )
    programs = read_programs(setting.method, setting.model, setting.preparation, public)
    assert all(programs[phase].charges == plan.programs[phase].charges for phase in programs)
    return programs


# --- programs with other sites ------------------------------------------------------------------------------


def with_sites(program: Program, change: Callable[[Any], Any]) -> Program:
    """A program in which every release stands as `change` makes it: nobody audits the outcome."""

    def value(v: Any) -> Any:
        if isinstance(v, ClosedJaxpr):
            return ClosedJaxpr(opened(v.jaxpr), v.consts)
        if isinstance(v, Jaxpr):
            return opened(v)
        return type(v)(map(value, v)) if type(v) in (tuple, list) else v

    def opened(jaxpr: Any) -> Any:
        return jaxpr.replace(eqns=[equation(eqn) for eqn in jaxpr.eqns])

    def equation(eqn: Any) -> Any:
        if "site" in eqn.params:
            return eqn.replace(params=eqn.params | {"site": change(eqn.params["site"])})
        return eqn.replace(params={k: value(v) for k, v in eqn.params.items()})

    return replace(program, jaxpr=value(program.jaxpr))


def reading_all(program: Program) -> Program:
    """The program with every record read for certain: what the attacker computes with, who cannot see the sample."""
    sampled = any(site.sample < 1 for site in program.sites)
    return with_sites(program, lambda site: site._replace(sample=1.0)) if sampled else program
