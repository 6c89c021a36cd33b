"""What a per-record function may hold: a record meets public numbers and itself, and nothing happens on the side.

Each function is tried where users write them: in `door.sum`, in `door.second_moment`, and in a model's loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from fedsofim.core.models import softmax_head
from fedsofim.errors import InputError, Refused
from leaks import priced

SEEN: list = []
ARRAY = np.linspace(0, 1, 3).astype(np.float32)


def prints(x):
    jax.debug.print("{}", x)
    return x


def calls_back(x):
    jax.debug.callback(SEEN.append, x)
    return x


def calls_back_ordered(x):
    io_callback(SEEN.append, None, x, ordered=True)
    return x


def calls_back_and_returns(x):
    return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def prints_inside_a_jit(x):
    return jax.jit(prints)(x)


def prints_inside_a_loop(x):
    return jax.lax.fori_loop(0, 2, lambda i, v: prints(v), x)


def prints_in_a_branch(x):
    return jax.lax.cond(x[0] > 0, prints, lambda v: v, x)


def captures(x):
    return x * ARRAY


def captures_inside_a_jit(x):
    return jax.jit(lambda v: v * ARRAY)(x)


def captures_inside_a_checkpoint_in_a_scan(x):
    return jax.lax.scan(lambda c, _: (jax.checkpoint(lambda v: v * ARRAY)(c), None), x, None, length=2)[0]


@custom_vmap
def mixed(x):
    return x


@mixed.def_vmap
def _mixed(size, batched, x):
    return jnp.broadcast_to(jnp.sum(x, axis=0), x.shape) * 1e3, True


def maps_by_its_own_rule(x):
    return mixed(x)


def maps_by_its_own_rule_inside(x):
    return jax.lax.scan(lambda c, _: (jax.jit(mixed)(c), None), x, None, length=1)[0]


def over_an_axis(x):
    return jax.vmap(lambda v: jax.lax.psum(v, "records"), axis_name="records")(x[None])[0]


def through_a_reference(x):
    kept = jax.new_ref(jnp.zeros_like(x))
    kept[...] = x
    return kept[...]


def keys_of_its_own_kind(x):
    from jax.extend.random import define_prng_impl

    impl = define_prng_impl(
        key_shape=(2,),
        seed=lambda s: jnp.zeros(2, jnp.uint32),
        split=lambda k, shape: jnp.broadcast_to(k, (*shape, 2)),
        random_bits=lambda k, width, shape: jnp.zeros(shape, f"uint{width}"),
        fold_in=lambda k, n: k,
        name="mine",
        tag="mine",
    )
    return x * jax.random.uniform(jax.random.key(0, impl=impl), dtype=x.dtype)


ACTS = "remove the print or callback"
RECORD_FUNCTIONS = [
    (prints, ACTS), (calls_back, ACTS), (calls_back_ordered, ACTS), (calls_back_and_returns, ACTS),
    (prints_inside_a_jit, ACTS), (prints_inside_a_loop, ACTS), (prints_in_a_branch, ACTS),
    (captures, "captures an array"), (captures_inside_a_jit, "captures an array"),
    (captures_inside_a_checkpoint_in_a_scan, "captures an array"),
    (maps_by_its_own_rule, "'custom_vmap_call' is not an operation that the audit knows"),
    (maps_by_its_own_rule_inside, "'custom_vmap_call' is not an operation"),
    (through_a_reference, "'new_ref' is not an operation|remove the print"),
    (keys_of_its_own_kind, "another generator|is told its impl"),
]  # fmt: skip


def in_a_sum(fn):
    return lambda door, params, state, memory: (door.sum(lambda x, y: fn(x), clip=1.0), memory)


def in_a_second_moment(fn):
    return lambda door, params, state, memory: (door.second_moment(lambda x, y: fn(x), clip=1.0)[0, 0], memory)


@pytest.mark.parametrize("place", [in_a_sum, in_a_second_moment], ids=lambda v: v.__name__)
@pytest.mark.parametrize("fn, message", RECORD_FUNCTIONS, ids=lambda v: getattr(v, "__name__", ""))
def test_it_is_refused_in(place, fn, message, capfd):
    with pytest.raises(Refused, match=message):
        priced(place(fn))
    assert not SEEN and capfd.readouterr().out == ""


# (JAX 0.10.2 cannot differentiate a reference)
IN_A_LOSS = [pair for pair in RECORD_FUNCTIONS if pair[0] is not through_a_reference]


@pytest.mark.parametrize("fn, message", IN_A_LOSS, ids=lambda v: getattr(v, "__name__", ""))
def test_it_is_refused_in_a_loss(fn, message):
    head = softmax_head()
    model = head._replace(loss=lambda params, x, y: head.loss(params, fn(x), y), gradient=None)
    with pytest.raises(Refused, match=message):
        priced(lambda door, params, state, memory: (door.gradient(params), memory), model)


@pytest.mark.parametrize("fn", [prints, calls_back, calls_back_ordered, maps_by_its_own_rule], ids=lambda v: v.__name__)
def test_on_released_values_it_is_refused_too(fn):
    """Records and keys are in reach of the whole program; and a rule for mapping would run unread."""
    with pytest.raises(Refused, match=f"{ACTS}|not an operation"):
        priced(lambda door, params, state, memory: (fn(door.gradient(params)), memory))


def test_a_key_in_a_record_function_is_refused():
    def client(door, params, state, memory):
        return door.sum(lambda x, y: x * jax.random.uniform(door._key, dtype=x.dtype), clip=1.0), memory

    with pytest.raises(Refused, match="depends on the noise key"):
        priced(client)


def test_a_raw_record_rule_is_not_run_by_the_simulator():
    """What was read is what runs: a rule for mapping over clients that gives raw sums never gets there."""

    @custom_vmap
    def honest(noisy, raw):
        return noisy

    honest.def_vmap(lambda size, batched, noisy, raw: (jnp.broadcast_to(raw, (size, 4, 3)), True))

    def client(door, params, state, memory):
        return honest(door.gradient(params), jnp.sum(door._records.x)), memory

    with pytest.raises(Refused, match="custom_vmap_call"):
        priced(client)


def ordinary(x):
    """All kinds of honest things."""
    x = jax.checkpoint(jnp.tanh)(jax.nn.relu(x)) + jax.nn.softmax(x)
    x = jax.lax.fori_loop(0, 3, lambda i, v: jnp.sort(v) * 0.9, x)
    x = jax.lax.while_loop(lambda v: jnp.sum(v * v) > 1.0, lambda v: v / 2, x)
    x = jax.lax.cond(x[0] > 0, lambda v: v, lambda v: -v, x)
    x = x.at[jnp.argmax(x)].add(1.0) + jnp.cumsum(x)[::-1] + jax.nn.one_hot(jnp.argmin(x), 3, dtype=x.dtype)
    x = x + jnp.linalg.norm(x) + jax.random.normal(jax.random.key(0), (3,), x.dtype)
    return x + jnp.linalg.solve(jnp.eye(3, dtype=x.dtype), x)


@pytest.mark.parametrize("nothing", [lambda x: {}, lambda x: x[:0]])
def test_a_function_that_returns_nothing_is_an_error(nothing):
    with pytest.raises(InputError, match="returned no numbers"):
        priced(in_a_sum(nothing))


@pytest.mark.parametrize("place", [in_a_sum, in_a_second_moment], ids=lambda v: v.__name__)
def test_ordinary_functions_are_accepted(place):
    assert priced(place(ordinary)).releases == 5
