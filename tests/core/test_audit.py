"""What the ledger counts, read from programs rather than from what methods say of themselves."""

import math

import jax
import jax.numpy as jnp
import pytest

from fedsofim.core import accounting as privacy
from fedsofim.core.budget import Budget
from fedsofim.core.mechanisms import Independent, Tree
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.plan import make_plan
from fedsofim.core.method import Method, OneGradient, Setup
from fedsofim.errors import InputError, Refused


def priced(client, rounds=10, model=None, budget: Budget | None = Budget(1.0), sizes=(7, 9), setup=None, **kwargs):
    method = Method("stranger", client, lambda mean, state, params, facts: (params, state), setup=setup)
    return plan(
        method, model or softmax_head(), sizes=sizes, shape=(3,), classes=3, budget=budget, rounds=rounds, **kwargs
    )


def test_one_release_a_round():
    (charge,) = priced(OneGradient()).charges
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

    assert sorted(c.releases for c in priced(client).charges) == [40, 120]


def test_leaves_released_together_are_one_charge():
    def loss(params, x, y):
        return jnp.sum(jnp.square(x @ params["w"] + params["b"] - y.astype(x.dtype)))

    two_leaves = Model(
        lambda key, shape, classes: {"w": jnp.zeros((*shape, 1), jnp.float32), "b": jnp.zeros(1, jnp.float32)},
        loss,
        lambda params, x: x @ params["w"] + params["b"],
    )
    settled = priced(lambda door, params, state, memory: (door.gradient(params), memory), model=two_leaves)
    assert len(settled.charges) == 1 and settled.releases == 10


def test_two_calls_are_two_charges_with_one_multiplier():
    def client(door, params, state, memory):
        return door.gradient(params) + door.gradient(params + 1), memory

    one, two = priced(OneGradient()), priced(client)
    assert two.releases == 20
    assert two.sigma_g == pytest.approx(math.sqrt(2) * one.sigma_g)


def test_relative_noise_is_priced():
    def client(door, params, state, memory):
        return door.gradient(params, noise=2.0) + door.gradient(params, noise=Independent(0.5)), memory

    settled = priced(client)
    assert [c.weight for c in settled.charges] == [10 / 4, 10 * 4]
    assert settled.epsilon == pytest.approx(1.0, rel=1e-9)


def test_one_shot_setup_with_a_share():
    setup = Setup(
        lambda door, params: door.second_moment(lambda x, y: x, clip=2.0, share=0.2), lambda mean, state: state
    )
    settled = priced(OneGradient(), setup=setup)
    cov, grad = settled.charges
    assert (cov.releases, grad.releases) == (1, 10)
    assert cov.ratio == math.sqrt(2) and cov.clip == 4.0
    assert settled.epsilon == pytest.approx(1.0, rel=1e-9)
    assert cov.mu_squared(settled.multipliers[cov.site]) == pytest.approx(0.2 * (settled.mu or 0) ** 2)


def test_control_flow_on_public_and_released_values_is_allowed():
    def client(door, params, state, memory):
        g = jax.jit(door.gradient)(params)
        g = jax.lax.cond(jnp.sum(g) > 0, lambda v: v, lambda v: 2 * v, g)
        g = jax.lax.fori_loop(0, 3, lambda i, v: v * 0.9, g)
        _n, g = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1])), (jnp.int32(0), g))
        jax.debug.print("released {}", jnp.sum(g))
        return jnp.where(door.round > 2, g, 0.5 * g), memory

    assert priced(client).releases == 10


def test_sampled_release_is_priced_by_pld():
    settled = priced(OneGradient(sample=0.1), sizes=(500, 500))
    assert settled.mu is None
    assert 0.98 < settled.epsilon <= 1.0
    assert settled.sigma_g < priced(OneGradient(), sizes=(500, 500)).sigma_g


def test_sampling_under_noise_laid_out_over_rounds_is_refused():
    with pytest.raises(Refused, match="no accountant"):
        priced(OneGradient(Tree(), sample=0.1))


def test_a_mechanism_that_states_its_own_cost_is_refused():
    class Free(Independent):
        def cost(self, rounds):
            return 1e-9

    with pytest.raises(InputError, match="whose costs are proved"):
        priced(OneGradient(Free()))


def test_a_subclass_of_the_one_gradient_client_gets_no_discount():
    class More(OneGradient):
        def __call__(self, door, params, state, memory):
            return door.gradient(params) ** 2, memory

    assert not priced(More()).pooled
    assert priced(More(), trust="secure-sum").noise_std == priced(More()).noise_std


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_price_of_trust_and_weights(weights):
    """Local noise adds up over clients; of a secure sum only the largest weight must be hidden."""
    sizes = (10, 100, 1000)
    local = priced(OneGradient(), sizes=sizes, weights=weights)
    secure = priced(OneGradient(), sizes=sizes, weights=weights, trust="secure-sum")
    s = local.sum_std
    assert s == pytest.approx(20 * math.sqrt(10) / Budget(1.0).mu)  # s = 2c·sqrt(R)/mu whatever the weights
    a = [1 / 3 / n for n in sizes] if weights == "uniform" else [1 / sum(sizes)] * 3
    assert local.noise_std == pytest.approx(s * math.sqrt(sum(v * v for v in a)))
    assert secure.noise_std == pytest.approx(s * max(a))
    assert local.epsilon == pytest.approx(secure.epsilon)


def test_local_steps_keep_their_local_noise_under_secure_sum():
    """Noise of other clients does not cover what a client's own next step already used."""

    def client(door, params, state, memory):
        return door.scan(lambda inner, y: y - inner.gradient(y), params, 2), memory

    assert priced(client, trust="secure-sum").noise_std == priced(client).noise_std


def test_a_hand_set_multiplier_gives_epsilon_back():
    calibrated = priced(OneGradient(), budget=Budget(3.0))
    by_hand = priced(OneGradient(), multiplier=calibrated.multipliers[0])
    assert by_hand.epsilon == pytest.approx(3.0, rel=1e-9)


def test_without_a_budget_there_is_no_guarantee():
    settled = priced(OneGradient(), budget=None)
    assert settled.epsilon == math.inf and settled.noise_std == 0.0


@pytest.mark.parametrize(
    "bad", [{"rounds": 0}, {"clip": 0.0}, {"sizes": ()}, {"sizes": (3, 0)}, {"trust": "blind"}, {"weights": "x"}]
)
def test_senseless_runs(bad):
    with pytest.raises(InputError):
        priced(OneGradient(), **bad)


def test_a_client_that_releases_nothing():
    with pytest.raises(InputError, match="releases nothing"):
        priced(lambda door, params, state, memory: (params, memory))


def test_calibration_covers_the_ledger_exactly():
    settled = priced(OneGradient(), rounds=33, budget=Budget(0.7, 1e-6))
    assert privacy.spent(settled.charges, settled.multipliers, 1e-6) == pytest.approx(0.7, rel=1e-9)
