"""Programs that leak, each written the way a mistake is written, with what the refusal must say."""

import jax
import jax.numpy as jnp
import numpy as np


def honest(door, params, state, memory):
    return door.gradient(params) / door.size, memory


def raw_mean_added(door, params, state, memory):
    upload, memory = honest(door, params, state, memory)
    return upload + jnp.mean(door._records.x), memory


def labels_counted(door, params, state, memory):
    return {"step": door.gradient(params), "count": jnp.sum(door._records.y == 0)}, memory


def leak_through_carry(door, params, state, memory):
    def body(carry, _):
        theta, hidden = carry
        return (theta + hidden, jnp.mean(door._records.x)), None  # tainted only from the second step on

    (theta, _), _ = jax.lax.scan(body, (params, jnp.float32(0)), None, length=3)
    return door.gradient(params) + theta, memory


def leak_into_memory(door, params, state, memory):
    return door.gradient(params), jnp.mean(door._records.x)


def key_uploaded(door, params, state, memory):
    return door.gradient(params), jax.random.normal(door._key, ())


def noise_known(door, params, state, memory):
    return door.gradient(params) + jax.random.normal(
        jax.random.fold_in(door._key, 0), params.shape, params.dtype
    ), memory


def branch_on_data(door, params, state, memory):
    upload = door.gradient(params)
    return jax.lax.cond(jnp.mean(door._records.x) > 0, lambda u: u, lambda u: -u, upload), memory


def python_branch_on_data(door, params, state, memory):
    upload = door.gradient(params)
    return (upload if jnp.mean(door._records.x) > 0 else -upload), memory


def select_on_data(door, params, state, memory):
    return jnp.where(jnp.mean(door._records.x) > 0, door.gradient(params), 0.0), memory


RECORDS = np.ones((4, 3), np.float32)


def closure(door, params, state, memory):
    return door.gradient(params) + RECORDS.mean(axis=0), memory


def closure_in_record_function(door, params, state, memory):
    total = door.sum(lambda x, y: x * jnp.asarray(RECORDS)[0], clip=1.0)
    return total, memory


def closure_in_jit(door, params, state, memory):
    return jax.jit(lambda g: g * RECORDS[0])(door.gradient(params)), memory


def release_in_while(door, params, state, memory):
    def body(carry):
        i, theta = carry
        return i + 1, theta - door.gradient(theta)

    return jax.lax.while_loop(lambda c: c[0] < state, body, (jnp.int32(0), params))[1], memory


def release_in_branch(door, params, state, memory):
    return jax.lax.cond(door.round > 3, lambda: door.gradient(params), lambda: params), memory


def while_on_data(door, params, state, memory):
    count = jax.lax.while_loop(lambda c: c < jnp.max(door._records.x), lambda c: c + 1, jnp.float32(0))
    return door.gradient(params), count


def same_noise_each_step(door, params, state, memory):
    return jax.lax.scan(lambda theta, _: (theta - door.gradient(theta), None), params, None, length=5)[0], memory


def same_noise_by_fori(door, params, state, memory):
    return jax.lax.fori_loop(0, 5, lambda i, theta: theta - door.gradient(theta), params), memory


def same_noise_by_jit(door, params, state, memory):
    noisy = jax.jit(lambda theta: door.gradient(theta))
    return noisy(params) - noisy(params + 1), memory


def door_reused_inside_scan(door, params, state, memory):
    return door.scan(lambda inner, theta: theta - door.gradient(theta), params, 5), memory


def release_under_vmap(door, params, state, memory):
    return jax.vmap(door.gradient)(jnp.stack([params, 2 * params])), memory


def record_function_sees_all(door, params, state, memory):
    centre = jnp.mean(door._records.x, axis=(0, 1))
    return door.sum(lambda x, y: x - centre, clip=1.0), memory


def record_kept(door, params, state, memory):
    kept = []
    total = door.sum(lambda x, y: kept.append(x) or x, clip=1.0)
    return total + kept[0], memory


def label_kept(door, params, state, memory):
    kept = []
    total = door.sum(lambda x, y: kept.append(y) or x, clip=1.0)
    return total + kept[0].astype(total.dtype), memory


def printed(door, params, state, memory):
    jax.debug.print("mean {}", jnp.mean(door._records.x))
    return honest(door, params, state, memory)


def called_back(door, params, state, memory):
    seen = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), jnp.float32), jnp.mean(door._records.x))
    return door.gradient(params), seen


def door_in_the_record_function(door, params, state, memory):
    return door.sum(lambda x, y: door.gradient(params), clip=1.0), memory


def reduced_oddly(door, params, state, memory):
    """A reduction whose rule ignores its operand in name; what is not looked into counts as using everything."""
    first = jax.lax.reduce(door._records.x, jnp.float32(0), lambda a, b: a, (0, 1, 2))
    return door.gradient(params), first


CHEATS = [
    (raw_mean_added, "upload depends on the records"),
    (labels_counted, r"upload \['count'\] depends on the records"),
    (leak_through_carry, "upload depends on the records"),
    (leak_into_memory, "client memory depends on the records"),
    (key_uploaded, "client memory depends on the key"),
    (noise_known, "upload depends on the key"),
    (branch_on_data, "branch is decided by a value that depends on the records"),
    (python_branch_on_data, "branches in Python"),
    (select_on_data, "upload depends on the records"),
    (closure, r"captures an array of shape \(3,\)"),
    (closure_in_record_function, "captures an array of shape"),
    (closure_in_jit, "captures an array of shape"),
    (release_in_while, "while-loop.*use door.scan"),
    (release_in_branch, "inside a branch"),
    (while_on_data, "while-loop is decided by a value that depends on the records"),
    (same_noise_each_step, "repeat in every step.*use door.scan"),
    (same_noise_by_fori, "repeat in every step.*use door.scan"),
    (same_noise_by_jit, "would draw the same noise"),
    (door_reused_inside_scan, "repeat in every step"),
    (release_under_vmap, "inside a vmap"),
    (record_function_sees_all, "beyond the clip"),
    (record_kept, "kept and used outside"),
    (label_kept, "kept and used outside"),
    (printed, "remove the print or callback"),
    (called_back, "remove the print or callback"),
    (reduced_oddly, "'reduce' is not an operation that the audit knows"),
    (door_in_the_record_function, "itself opens the door"),
]
