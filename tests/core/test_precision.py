"""Sums and noise are float32 or better, whatever the leaves of a model or of a per-record function are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.jaxprs import open_jaxpr
from fedsofim.core.models import Model
from fedsofim.core.release import dp_release
from fedsofim.core.site import MAX_SITES
from fedsofim.simulation.simulator import keys
from leaks import priced

pytestmark = pytest.mark.optimised

LOW = [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn]


def released_dtypes(jaxpr) -> set:
    outs: list[Any] = [v.aval for e in open_jaxpr(jaxpr)[0].eqns if e.primitive is dp_release for v in e.outvars]
    return {aval.dtype for aval in outs}


@pytest.mark.parametrize("dtype", LOW, ids=lambda d: d.__name__)
def test_a_sum_of_low_precision_is_released_in_float32(dtype):
    def client(door, params, state, memory):
        low = door.sum(lambda x, y: x.astype(dtype), clip=1.0)
        assert low.dtype == dtype  # what comes back is what was asked for: rounding after the noise is free
        moment = door.second_moment(lambda x, y: x.astype(dtype), clip=1.0)
        return params * low.astype(params.dtype)[0] * moment.astype(params.dtype)[0, 0], memory

    assert released_dtypes(priced(client).program.jaxpr) == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("dtype", LOW[:2], ids=lambda d: d.__name__)
def test_a_model_of_low_precision_has_noise_of_all_sizes(dtype):
    """In bfloat16 the noise itself had 128 values, the largest 2.9 sigma; of 40,000 fine ones some are beyond 3.5."""
    model = Model(
        init=lambda key, shape, classes: jnp.zeros((200, 200), dtype),
        loss=lambda theta, x, y: jnp.sum(theta.astype(x.dtype)) * x[0],
        logits=lambda theta, x: jnp.zeros((len(x), 3)),
    )
    plan = priced(lambda door, params, state, memory: (door.gradient(params), memory), model)
    assert released_dtypes(plan.program.jaxpr) == {jnp.dtype(jnp.float32)}
    inputs = noise_only(plan, dtype)
    upload, _ = plan.program(inputs)
    assert upload.dtype == dtype
    found = np.asarray(upload, np.float64)
    assert np.abs(found).max() > 3.5 and abs(found.std() - 1) < 0.03
    assert len(np.unique(found)) > 300


def noise_only(plan, dtype):
    """Inputs without records and with noise of std 1."""
    from fedsofim.core.audit import Inputs
    from fedsofim.core.records import Records

    return Inputs(
        params=jnp.zeros((200, 200), dtype),
        state=jnp.int32(3),
        memory=jnp.float32(0),
        key=keys(0)[1],
        index=jnp.int32(0),
        size=jnp.float32(1),
        round=jnp.int32(0),
        noise_std=jnp.float32(1),
        stds=jnp.ones(MAX_SITES, jnp.float32),
        records=Records(*(jnp.zeros(v.aval.shape, v.aval.dtype) for v in plan.program.jaxpr.jaxpr.invars[-4:])),
    )


def test_in_float64_everything_is_float64():
    with jax.enable_x64(True):

        def client(door, params, state, memory):
            total = door.sum(lambda x, y: x.astype(jnp.float64), clip=1.0)
            return params * total.astype(params.dtype)[0], memory

        assert released_dtypes(priced(client).program.jaxpr) == {jnp.dtype(jnp.float64)}
