"""What the ledger counts, read from programs rather than from what methods say of themselves."""

import math

import jax
import jax.numpy as jnp
import pytest

from fedsofim.core.mechanisms import Independent, Tree
from fedsofim.core.method import OneGradient, Setup
from fedsofim.core.models import Model
from fedsofim.errors import InputError, Refused
from stranger import priced


def test_one_release_a_round():
    (charge,) = priced(OneGradient()).ledger
    assert (charge.releases, charge.ratio, charge.clip, charge.weight) == (10, 2.0, 10.0, 10.0)


def test_a_scan_of_length_k_counts_k():
    def client(door, params, state, memory):
        return door.scan(lambda inner, y: y - inner.gradient(y), params, 5), memory

    assert priced(client).releases == 50


def test_nested_scans_multiply():
    def client(door, params, state, memory):
        def outer(door, y):
            return door.scan(lambda inner, z: z - inner.gradient(z), y, 3) - door.gradient(y)

        return door.scan(outer, params, 4), memory

    assert sorted(c.releases for c in priced(client).ledger) == [40, 120]


def test_leaves_released_together_are_one_charge():
    def loss(params, x, y):
        return jnp.sum(jnp.square(x @ params["w"] + params["b"] - y.astype(x.dtype)))

    two_leaves = Model(
        lambda key, shape, classes: {"w": jnp.zeros((*shape, 1), jnp.float32), "b": jnp.zeros(1, jnp.float32)},
        loss,
        lambda params, x: x @ params["w"] + params["b"],
    )
    plan = priced(lambda door, params, state, memory: (door.gradient(params), memory), model=two_leaves)
    assert len(plan.ledger) == 1 and plan.releases == 10


def test_two_calls_are_two_charges_with_one_multiplier():
    def client(door, params, state, memory):
        return door.gradient(params) + door.gradient(params + 1), memory

    one, two = priced(OneGradient()), priced(client)
    assert two.releases == 20
    assert one.sigma_g is not None and two.sigma_g == pytest.approx(math.sqrt(2) * one.sigma_g)


def test_relative_noise_is_priced():
    def client(door, params, state, memory):
        return door.gradient(params, noise=2.0) + door.gradient(params, noise=Independent(0.5)), memory

    plan = priced(client)
    assert [c.weight for c in plan.ledger] == [10 / 4, 10 * 4]
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9)


def test_one_shot_setup_with_a_share():
    setup = Setup(
        lambda door, params: door.second_moment(lambda x, y: x, clip=2.0, share=0.2), lambda mean, state: state
    )
    plan = priced(OneGradient(), setup=setup)
    cov, grad = plan.ledger
    assert (cov.releases, grad.releases) == (1, 10)
    assert cov.ratio == math.sqrt(2) and cov.clip == 4.0
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9)
    assert cov.mu_squared(plan.multipliers[cov.site]) == pytest.approx(0.2 * (plan.mu or 0) ** 2)


def test_control_flow_on_public_and_released_values_is_allowed():
    def client(door, params, state, memory):
        g = jax.jit(door.gradient)(params)
        g = jax.lax.cond(jnp.sum(g) > 0, lambda v: v, lambda v: 2 * v, g)
        g = jax.lax.fori_loop(0, 3, lambda i, v: v * 0.9, g)
        _n, g = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1])), (jnp.int32(0), g))
        return jnp.where(door.round > 2, g, 0.5 * g), memory

    assert priced(client).releases == 10


@pytest.mark.slow
def test_sampled_release_is_priced_by_pld():
    plan = priced(OneGradient(sample=0.1), sizes=(500, 500))
    assert plan.mu is None
    assert 0.98 < plan.epsilon <= 1.0
    assert plan.sum_std < priced(OneGradient(), sizes=(500, 500)).sum_std


def test_sampling_under_noise_laid_out_over_rounds_is_refused():
    with pytest.raises(Refused, match="no accountant"):
        priced(OneGradient(Tree(), sample=0.1))


def test_a_mechanism_that_states_its_own_cost_is_refused():
    class Free(Independent):
        def cost(self, rounds):
            return 1e-9

    with pytest.raises(InputError, match="whose costs are proved"):
        priced(OneGradient(Free()))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda g: g, "returned one .*; expected two: the upload, and the memory"),
        (lambda g: (g,), "returned 1 values; expected two"),
        (lambda g: (g, (), ()), "returned 3 values; expected two"),
        (lambda g: None, "returned one NoneType; expected two"),
    ],
)
def test_a_client_that_does_not_return_an_upload_and_a_memory(returned, message):
    with pytest.raises(InputError, match=f"the client {message}"):
        priced(lambda door, params, state, memory: returned(door.gradient(params)))
