"""Mapped over records, a function of one keeps them apart: what XLA would mix is refused, by name and by running."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap

import fedsofim as fs
from fedsofim.core import lanes, opening, walk
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.models import Model
from fedsofim.core.plan import make_plan
from fedsofim.core.primitives import RULES, Rule
from fedsofim.core.records import Records
from fedsofim.deploy.exact_sums import exact_sum
from fedsofim.errors import Refused
from fedsofim.models.cnn import cnn
from leaks import priced

X = np.abs(np.random.default_rng(0).normal(size=(200, 3))).astype(np.float32) + 1
BY_NAME = r"a convolution \(conv_general_dilated\) of {}.*Convolve in float32"
BY_RUNNING = "gave something else for a record when another beside it was not finite"


def correlated(x, dtype, **how):
    """A record with its own beginning: a convolution of two things of a record."""
    d = x.astype(dtype)
    out = jax.lax.conv_general_dilated(d.reshape(1, 1, -1), d[:2].reshape(1, 1, 2), (1,), "VALID", **how)
    return jnp.real(out).ravel().astype(jnp.float32)


def of_exponentials(x):
    return correlated(jnp.exp(x.astype(jnp.float64)), jnp.float64)


def in_a_loop(x):
    return jax.lax.scan(lambda c, _: (correlated(c, jnp.float64).sum() * c, None), x, None, length=1)[0]


def in_a_branch(x):
    return jax.lax.cond(x[0] > 0, lambda v: correlated(v, jnp.float64), lambda v: v[:2], x)


MIXING = {
    "float64": lambda x: correlated(x, jnp.float64),
    "complex64": lambda x: correlated(x, jnp.complex64),
    "complex128": lambda x: correlated(x, jnp.complex128),
    "its result float64": lambda x: correlated(x, jnp.float32, preferred_element_type=jnp.float64),
    "of exponentials": of_exponentials,
    "in a loop": in_a_loop,
    "in a branch": in_a_branch,
}


def in_a_sum(fn):
    return lambda door, params, state, memory: (jnp.sum(door.sum(lambda x, y: fn(x), clip=1.0)) * params, memory)


def in_a_second_moment(fn):
    return lambda door, params, state, memory: (door.second_moment(lambda x, y: fn(x), clip=1.0)[0, 0] * params, memory)


def in_a_scan_of_the_doors(fn):
    def client(door, params, state, memory):
        def step(inner, carry):
            return carry + jnp.sum(inner.sum(lambda x, y: fn(x), clip=1.0))

        return door.scan(step, params, 2), memory

    return client


def trained(model):
    """The plan of training it, or Refused. (No types are mixed where doubles are.)"""
    how: dict = {"budget": fs.Budget(1.0), "rounds": 2}
    with jax.numpy_dtype_promotion("standard"):
        return make_plan(fs.make("fedgd"), model, sizes=(7, 9), shape=(64,), classes=3, **how)


def standardised(dtype):
    """A network whose kernel is normalised, so that no leaf is the convolution itself."""

    def init(key, shape, classes):
        kernel, head = jax.random.split(key)
        return {"w": jax.random.normal(kernel, (4, 1, 3), dtype), "v": jax.random.normal(head, (4, classes), dtype)}

    def logits(p, x):
        w = (p["w"] - p["w"].mean((1, 2), keepdims=True)) / (p["w"].std((1, 2), keepdims=True) + 1e-5)
        hidden = jax.nn.relu(jax.lax.conv_general_dilated(x.astype(dtype)[None, None], w, (1,), "SAME"))
        return hidden.mean(2)[0] @ p["v"]

    return Model(init, lambda p, x, y: -jax.nn.log_softmax(logits(p, x))[y], jax.vmap(logits, (None, 0)))


@pytest.mark.parametrize("place", [in_a_sum, in_a_second_moment, in_a_scan_of_the_doors], ids=lambda v: v.__name__)
@pytest.mark.parametrize("kind", MIXING)
def test_convolutions_that_xla_mixes_are_refused_by_name(kind, place):
    with pytest.raises(Refused, match=BY_NAME.format("(float64|complex64|complex128)")):
        priced(place(MIXING[kind]))


def test_networks_of_doubles_with_convolutions_are_refused():
    with pytest.raises(Refused, match="the per-record function of 'gradient' has " + BY_NAME.format("float64")):
        trained(standardised(jnp.float64))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.int64])
def test_other_convolutions_are_accepted(dtype):
    assert priced(in_a_sum(lambda x: correlated(x, dtype))).releases


@pytest.mark.parametrize("model", [standardised(jnp.float32), cnn((2, 2))], ids=["standardised", "cnn"])
def test_networks_with_convolutions_are_accepted(model):
    assert trained(model).releases


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_what_is_accepted_moves_a_sum_no_further_than_priced(value):
    """The convolution that mixes records as doubles, in floats: at a node and in the simulator."""
    query = priced(in_a_sum(lambda x: correlated(x, jnp.float32))).program.sites[0].query
    other = X.copy()
    other[7] = value

    def at_node(x):
        return exact_sum(query, [], x, np.zeros(len(x), np.int32), 1.0, 2.0**-20) * 2.0**-20

    def simulated(x):
        y, weight = jnp.zeros((1, len(x)), jnp.int32), jnp.ones((1, len(x)), jnp.float32)
        (pair,) = client_sums(query, [], [], Records(jnp.asarray(x[None]), y, weight, jnp.zeros(1, jnp.int32)), 1, 1.0)
        return np.asarray(pair.hi[0])

    for total in (at_node, simulated):
        assert 0 < np.linalg.norm(total(X) - total(other)) <= 2


# --- by running ---------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_by_name(monkeypatch):
    monkeypatch.setattr(walk, "check_apart", lambda label, jaxpr: None)


@pytest.mark.parametrize("kind", ["float64", "complex128", "its result float64", "of exponentials"])
@pytest.mark.parametrize("place", [in_a_sum, in_a_second_moment, in_a_scan_of_the_doors], ids=lambda v: v.__name__)
def test_what_xla_mixes_is_noticed_by_running_it(kind, place, nothing_by_name):
    with pytest.raises(Refused, match=BY_RUNNING):
        priced(place(MIXING[kind]))


def test_a_network_that_xla_mixes_is_noticed_by_running_it(nothing_by_name):
    with pytest.raises(Refused, match=BY_RUNNING):
        trained(standardised(jnp.float64))


@pytest.mark.parametrize("value", lanes.SPOILT)
def test_each_kind_of_record_that_is_tried_shows_it(value, nothing_by_name, monkeypatch):
    monkeypatch.setattr(lanes, "SPOILT", (value,))
    with pytest.raises(Refused, match=BY_RUNNING):
        priced(in_a_sum(of_exponentials))


def test_a_rule_for_mapping_that_was_let_in_is_noticed(monkeypatch):
    @custom_vmap
    def mixed(x):
        return x

    mixed.def_vmap(lambda size, batched, x: (x + jnp.mean(x, axis=0), True))
    for module in (opening, walk):
        monkeypatch.setattr(module, "rule_of", lambda p: RULES.get(p.name, Rule.PURE))
    with pytest.raises(Refused, match=BY_RUNNING):
        priced(in_a_sum(mixed))


def test_a_loop_that_would_not_end_of_what_is_infinite_is_not_run():
    def halved(x):
        return jax.lax.while_loop(lambda v: jnp.sum(v) > 1.0, lambda v: v / 2, x)

    assert priced(in_a_sum(halved)).releases
    assert priced(in_a_sum(lambda x: jax.lax.scan(lambda c, _: (halved(c), None), x, None, length=1)[0])).releases
