"""How the audit follows values through loops, branches and closures: leaks that take a way round, and honest twins."""

import jax
import jax.numpy as jnp
import pytest

from audited import audited
from fedsofim.errors import Refused


def releases_of(client) -> int:
    return sum(charge.releases for charge in audited(client).charges)


def raw(door) -> jax.Array:
    return jnp.mean(door._records.x)


def drawn(door) -> jax.Array:
    return jax.random.normal(jax.random.fold_in(door._key, 99), (), jnp.float32)


ZERO = 0.0


def zero() -> jax.Array:
    return jnp.float32(ZERO)


# --- ways round, each from one value to another ------------------------------------------------------------


def by_while(value, clean):
    """Read in the body of a while-loop that a public counter ends."""
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + value), (jnp.int32(0), clean))[1]


def by_while_carry(value, clean):
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (jnp.int32(0), value + clean))[1]


def by_slow_while(value, clean):
    """Three variables later: each step moves it on by one."""

    def body(c):
        i, a, b, out = c
        return i + 1, a + value, b + a, out + b

    return jax.lax.while_loop(lambda c: c[0] < 5, body, (jnp.int32(0), clean, clean, clean))[3]


def by_fori(value, clean):
    def body(i, c):
        a, b, out = c
        return a + value, b + a, out + b

    return jax.lax.fori_loop(0, jnp.int32(4), body, (clean, clean, clean))[2]


def by_slow_scan(value, clean):
    def body(c, _):
        a, b, out = c
        return (a + value, b + a, out + b), None

    return jax.lax.scan(body, (clean, clean, clean), None, length=4)[0][2]


def by_scan_input(value, clean):
    return jax.lax.scan(lambda c, x: (c + x, None), clean, jnp.stack([clean, value]))[0]


def by_scan_output(value, clean):
    return jnp.sum(jax.lax.scan(lambda c, _: (c, c + value), clean, None, length=2)[1])


def by_while_in_scan(value, clean):
    return jax.lax.scan(lambda c, _: (by_while(value, c), None), clean, None, length=2)[0]


def by_scan_in_while(value, clean):
    return jax.lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, by_slow_scan(value, c[1])), (jnp.int32(0), clean)
    )[1]


def by_branch(value, clean):
    return jax.lax.cond(clean > 0, lambda a, b: a, lambda a, b: b, clean, value)


def by_second_branch_only(value, clean):
    return jax.lax.switch(jnp.int32(0), [lambda a: clean, lambda a: a + 1, lambda a: clean], value)


def by_jit(value, clean):
    return jax.jit(lambda a, b: (b, a))(value, clean)[1]


def by_while_in_jit(value, clean):
    return jax.jit(by_slow_while)(value, clean)


def by_index(value, clean):
    return jnp.arange(10, dtype=jnp.float32)[jnp.int32(value)] + clean


WAYS = [
    by_while, by_while_carry, by_slow_while, by_fori, by_slow_scan, by_scan_input, by_scan_output, by_while_in_scan,
    by_scan_in_while, by_branch, by_second_branch_only, by_jit, by_while_in_jit, by_index,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("place", ["upload", "memory"])
@pytest.mark.parametrize("source, name", [(raw, "records"), (drawn, "key")], ids=["records", "key"])
def test_what_depends_on_a_private_value_does_not_leave(way, place, source, name):
    def client(door, params, state, memory):
        total, leak = door.gradient(params), way(source(door), zero())
        return (total + leak, memory) if place == "upload" else (total, leak)

    with pytest.raises(Refused, match=name):
        audited(client)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_the_same_way_is_open_to_public_and_released_values(way):
    """Else the refusals above would say nothing about the way."""

    def client(door, params, state, memory):
        total = door.gradient(params)
        return total + way(jnp.mean(total), zero()) + way(state, zero()), way(memory, zero())

    assert releases_of(client) == 5


# --- decisions ----------------------------------------------------------------------------------------------


def ended_by(value, clean):
    return jax.lax.while_loop(lambda c: c < value, lambda c: c + 1, clean)


def ended_late_by(value, clean):
    """The condition reads a variable that is private only after the second step."""

    def body(c):
        i, a, b = c
        return i + 1, a + value, b + a

    return jax.lax.while_loop(lambda c: (c[0] < 5) & (c[2] < 10), body, (jnp.int32(0), clean, clean))[0]


def chosen_by(value, clean):
    return jax.lax.cond(value > 0, lambda: clean, lambda: clean + 1)


@pytest.mark.parametrize("way", [ended_by, ended_late_by, chosen_by], ids=lambda w: w.__name__)
@pytest.mark.parametrize("source, name", [(raw, "records"), (drawn, "key")], ids=["records", "key"])
def test_no_private_value_decides(way, source, name):
    def client(door, params, state, memory):
        return door.gradient(params), memory + 0 * way(source(door), zero()).astype(jnp.float32)

    with pytest.raises(Refused, match=name):
        audited(client)


# --- per-record functions -----------------------------------------------------------------------------------


def key_itself(door):
    key = door._key
    return lambda x, y: x + jax.random.normal(key, x.shape, x.dtype)


def key_folded(door):
    key = jax.random.fold_in(door._key, 5)
    return lambda x, y: x * jax.random.uniform(key, (), x.dtype)


def number_of_the_key(door):
    number = drawn(door)
    return lambda x, y: x + number


def number_through_a_loop(door):
    number = by_slow_while(drawn(door), zero())
    return lambda x, y: x + number


def number_inside_jit(door):
    number = drawn(door)
    return lambda x, y: jax.jit(lambda a: a + number)(x)


def mean_of_all(door):
    number = by_slow_while(raw(door), zero())
    return lambda x, y: x - number


def first_record(door):
    x0 = door._records.x[0, 0]
    return lambda x, y: jnp.where(x > x0, x, 0.0)


CLOSED_OVER = [
    (key_itself, "key"), (key_folded, "key"), (number_of_the_key, "key"), (number_through_a_loop, "key"),
    (number_inside_jit, "key"), (mean_of_all, "records"), (first_record, "records"),
]  # fmt: skip


@pytest.mark.parametrize("build, name", CLOSED_OVER, ids=lambda v: getattr(v, "__name__", ""))
@pytest.mark.parametrize("how", ["sum", "second moment", "in a scan"])
def test_a_per_record_function_closes_over_nothing_private(build, name, how):
    def client(door, params, state, memory):
        fn = build(door)
        if how == "sum":
            return door.sum(fn, clip=1.0), memory
        if how == "second moment":
            return door.second_moment(fn, clip=1.0), memory
        return door.scan(lambda inner, c: c + inner.sum(fn, clip=1.0), jnp.zeros(3, jnp.float32), 2), memory

    with pytest.raises(Refused, match=name):
        audited(client)


def test_it_may_close_over_public_and_released_values():
    def client(door, params, state, memory):
        centre = door.sum(lambda x, y: x, clip=1.0) / door.size
        return door.sum(lambda x, y: (x - centre) * state + memory, clip=1.0), memory

    assert releases_of(client) == 10
