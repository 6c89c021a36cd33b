"""Right answers on records that no round sees, counted privately in a simulation: the program that nodes run
(core/evaluation.py), read and priced as theirs, on all clients' held-out records at once.

Each of n clients adds noise of std s to its own count, so the sum of all has sqrt(n)·s; under secure sum they share s.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.audit import Inputs, Program, audit_program
from fedsofim.core.evaluation import Evaluation, Measured
from fedsofim.core.method import Method, OneGradient
from fedsofim.core.models import Model
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.core.programs import Public, input_shapes
from fedsofim.core.records import block_shape, in_blocks
from fedsofim.core.second_opinion import confirm
from fedsofim.core.site import MAX_SITES
from fedsofim.errors import InputError


def count(plan: Plan, params: Any, x: np.ndarray, y: np.ndarray, mu: float, key: jax.Array) -> Measured:
    """The accuracy on prepared held-out records, at a price of mu to each of them."""
    if plan.task.metric != "accuracy" or not plan.task.by_class:
        raise InputError(f"right answers are counted of classes; {plan.task} has no such count")
    program, inputs = _program(plan.model, plan.shape, plan.classes, len(y))
    (charge,), (site,) = program.charges, program.sites
    std = charge.ratio * charge.clip / mu if mu < np.inf else 0.0  # mu² = (ratio/multiplier)², of one release
    std *= 1.0 if plan.trust == "secure-sum" else float(np.sqrt(len(plan.sizes)))
    given = replace(
        inputs, params=params, key=key, index=jnp.int32(0), size=jnp.float32(len(y)), round=jnp.int32(0),
        noise_std=jnp.float32(0), stds=jnp.zeros(MAX_SITES, jnp.float32).at[site.number].set(std),
        records=jax.tree.map(jnp.asarray, in_blocks(x, y, [np.arange(len(y))])),
    )  # fmt: skip
    excess = float(_run(program, given)[0]["right"][0])
    return Measured(
        after=plan.rounds, accuracy=100 * (0.5 + excess), error=100 * std / len(y), records=len(y), held_out=True
    )


@lru_cache(maxsize=8)
def _program(model: Model, shape: tuple[int, ...], classes: int, records: int) -> tuple[Program, Inputs]:
    """The count's program for so many records, audited and confirmed."""
    nothing = Method("count", OneGradient(), lambda mean, state, params, facts: (params, state))
    public = Public(shape=shape, classes=classes, blocks=block_shape([records]), clients=1, rounds=1, clip=1.0)
    inputs = replace(input_shapes(nothing, model, public), state=(), memory=())
    client = Evaluation(share=0.5).client(model)
    program = audit_program(client, model, inputs, public.facts(()), Phase.EVALUATION, times=1)
    confirm(program, inputs, 1)
    return program, inputs


_run = jax.jit(lambda program, inputs: program(inputs), static_argnums=0)
