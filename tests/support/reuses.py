"""Every way found to draw one noise twice, with what the refusal must say."""

from dataclasses import replace

import jax
import jax.numpy as jnp


def step(door, theta):
    return theta - door.gradient(theta)


def scan_in_a_jit_called_twice(door, params, state, memory):
    local = jax.jit(lambda theta: door.scan(step, theta, 1) - theta)
    return local(params) - local(params + 1), memory


def scan_in_a_checkpoint_called_twice(door, params, state, memory):
    local = jax.jit(jax.checkpoint(lambda theta: door.scan(step, theta, 2) - theta))
    return local(params) - local(params + 1), memory


def nested_scans_in_a_jit_called_twice(door, params, state, memory):
    inner = jax.jit(lambda theta: door.scan(lambda d, t: d.scan(step, t, 2), theta, 2))
    return inner(params) - inner(2 * params), memory


def twice_through_a_derivative(door, params, state, memory):
    @jax.custom_jvp
    def noisy(theta):
        return door.gradient(theta)

    noisy.defjvp(lambda p, t: (noisy(*p), t[0]))
    once = jax.jit(noisy)
    return once(params) - once(params + 1), memory


def twice_in_the_body_of_a_scan(door, params, state, memory):
    def body(inner, theta):
        noisy = jax.jit(inner.gradient)
        return theta - noisy(theta) + noisy(theta + 1)

    return door.scan(body, params, 3), memory


def copied_door(door, params, state, memory):
    twin = replace(door, _sites=[])
    return door.gradient(params) - twin.gradient(params + 1), memory


def renumbered_door(door, params, state, memory):
    """Another number, so another price, but the key of the first."""
    first = door.gradient(params)
    twin = replace(door, _sites=[None, None], _key=door._key)
    object.__setattr__(twin, "_next_key", lambda: jax.random.fold_in(door._key, 0))
    return first - twin.gradient(params + 1), memory


def public_key(door, params, state, memory):
    return replace(door, _key=jax.random.key(7)).gradient(params), memory


def key_of_the_state(door, params, state, memory):
    return replace(door, _key=jax.random.fold_in(door._key, state)).gradient(params), memory


def chosen_key(door, params, state, memory):
    a, b = jax.random.split(door._key)
    key = jax.lax.select(state > 3, jax.random.key_data(a), jax.random.key_data(b))
    return replace(door, _key=jax.random.wrap_key_data(key)).gradient(params), memory


def keys_scanned_twice(door, params, state, memory):
    keys = jax.random.split(jax.random.fold_in(door._key, 9), 3)

    def run(theta):
        return jax.lax.scan(lambda t, k: (step(replace(door, _key=k, _sites=[]), t), None), theta, keys)[0]

    return run(params) - run(params + 1), memory


def keys_scanned_backwards_too(door, params, state, memory):
    keys = jax.random.split(jax.random.fold_in(door._key, 9), 3)
    both = jnp.stack([keys, keys[::-1]], axis=1)

    def body(theta, pair):
        return step(replace(door, _key=pair[0]), theta) - step(replace(door, _key=pair[1]), theta), None

    return jax.lax.scan(body, params, both)[0], memory


def key_carried_along(door, params, state, memory):
    def body(carry, _):
        theta, key = carry
        return (step(replace(door, _key=key), theta), key), None

    return jax.lax.scan(body, (params, jax.random.fold_in(door._key, 1)), None, length=3)[0][0], memory


def release_that_is_also_a_scan(door, params, state, memory):
    """A release's own key with a number folded in is the key of its leaf of that number."""
    pair = door.sum(lambda x, y: {"a": x, "b": x}, clip=1.0)
    twin = replace(door, _key=jax.random.fold_in(door._key, 0))
    return pair["b"] - twin.sum(lambda x, y: -x, clip=1.0), memory


def split_of_one_key_by_two_lengths(door, params, state, memory):
    def run(theta, length):
        keys = jax.random.split(jax.random.fold_in(door._key, 9), length)
        fresh = replace(door, _sites=[])
        return jax.lax.scan(lambda t, k: (step(replace(fresh, _key=k, _sites=[]), t), None), theta, keys)[0]

    return run(params, 2) - run(params, 3), memory


def outer_keys_in_an_inner_loop(door, params, state, memory):
    keys = jax.random.split(jax.random.fold_in(door._key, 9), 3)

    def inner(theta):
        return jax.lax.scan(lambda t, k: (step(replace(door, _key=k), t), None), theta, keys)[0]

    return jax.lax.scan(lambda t, _: (inner(t), None), params, None, length=2)[0], memory


REUSES = [
    (scan_in_a_jit_called_twice, "would draw the same noise"),
    (scan_in_a_checkpoint_called_twice, "would draw the same noise"),
    (nested_scans_in_a_jit_called_twice, "would draw the same noise"),
    (twice_through_a_derivative, "would draw the same noise"),
    (twice_in_the_body_of_a_scan, "would draw the same noise"),
    (copied_door, "would draw the same noise"),
    (renumbered_door, "not drawn by the door's own key"),
    (public_key, "not drawn by the door's own key"),
    (key_of_the_state, "not drawn by the door's own key"),
    (chosen_key, "not drawn by the door's own key|not an operation"),
    (keys_scanned_twice, "would draw the same noise"),
    (keys_scanned_backwards_too, "not drawn by the door's own key"),
    (key_carried_along, "repeat in every step|not drawn by the door's own key"),
    (release_that_is_also_a_scan, "not drawn by the door's own key"),
    (split_of_one_key_by_two_lengths, "would draw the same noise"),
    (outer_keys_in_an_inner_loop, "repeat in every step"),
]


def honest_scans(door, params, state, memory):
    there = door.scan(lambda d, t: d.scan(step, step(d, t), 2), params, 3)
    remat = door.scan(lambda d, t: jax.checkpoint(lambda theta: step(d, theta))(t), there, 4)
    return remat + jax.jit(door.gradient)(params), memory
