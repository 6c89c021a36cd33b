"""One federated round: the page to read first.

Every client runs the method's client program behind its door; the server averages what was uploaded and takes a step.
That is all this page says. What a method is: method.py. What leaves through the door: door.py and release.py. How a
program is read and priced: audit.py and plan.py. Where all clients can be asked in one call: pooled.py.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsofim.core.audit import Program
from fedsofim.core.cohort import Carry, Cohort
from fedsofim.core.door import Facts
from fedsofim.core.method import Method
from fedsofim.core.pooled import ask_pooled
from fedsofim.core.programs import made_by_all


class Rules(NamedTuple):
    """What of a round is fixed before it begins: pure functions, public numbers and a flag."""

    method: Method
    program: Program  # the client's, as audited
    facts: Facts
    pooled: bool  # ask all clients in one call (pooled.py)


def federated_round(rules: Rules, cohort: Cohort, carry: Carry, t: jax.Array) -> Carry:
    """Every client answers through its door; the server averages and takes a step."""
    ask = ask_pooled if rules.pooled else ask_each
    groups = rules.facts.groups
    if groups > 1:
        return _round_of_group(rules, cohort, carry, t, groups)
    if rules.facts.attendance < 1:
        cohort = cohort.attended(rules.facts.attendance, t)
    mean, memory = ask(rules.program, cohort, carry, t)
    return _stepped(rules, cohort, carry, mean, memory)


def _round_of_group(rules: Rules, cohort: Cohort, carry: Carry, t: jax.Array, groups: int) -> Carry:
    """The same where groups of clients take turns (participation.py); the others keep what they have in memory. Noise
    goes by how often a client was asked, or by the round where all clients make it."""
    ask, together, group = ask_pooled if rules.pooled else ask_each, made_by_all(rules.program), t % groups
    present, mine = cohort.group(group, together), jax.tree.map(lambda m: m[group], carry.memory)
    mean, kept = ask(rules.program, present, carry._replace(memory=mine), t if together else t // groups)
    memory = jax.tree.map(lambda every, m: every.at[group].set(m), carry.memory, kept)
    return _stepped(rules, present, carry, mean, memory)


def _stepped(rules: Rules, cohort: Cohort, carry: Carry, mean: Any, memory: Any) -> Carry:
    facts = rules.facts._replace(noise_std=cohort.noise_std)
    params, state = rules.method.server(mean, carry.state, carry.params, facts)
    return Carry(params, state, memory)


def ask_each(program: Program, cohort: Cohort, carry: Carry, t: jax.Array) -> tuple[Any, Any]:
    """Every client's audited program side by side, then the weighted mean of the uploads."""

    def client(memory: Any, index: jax.Array, size: jax.Array) -> tuple[Any, Any]:
        key = jax.random.fold_in(cohort.key, index)
        return program(cohort.inputs(carry, t, memory=memory, key=key, index=index, size=size))

    indices = jnp.arange(len(cohort.sizes), dtype=jnp.int32)
    uploads, memory = jax.vmap(client)(carry.memory, indices, cohort.sizes)
    return jax.tree.map(lambda u: jnp.tensordot(cohort.weights.astype(u.dtype), u, 1), uploads), memory
