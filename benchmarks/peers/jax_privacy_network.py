"""jax-privacy: clipped_grad of a network, client by client, in micro-batches (see jax_privacy_clipped.py)."""

import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp
import jax_privacy.clipping  # pyright: ignore[reportMissingImports]
import numpy as np
from networks_problem import read_network, row
from turns import serve, sofim_step

MICRO_BATCH = {"mlp": 32, "cnn": 32}  # not searched: the peer may be quicker with another


def logits(p: Any, x: jax.Array) -> jax.Array:
    """Of one record."""
    if "k1" not in p:
        return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    h = pooled(jax.nn.relu(conv(x.reshape(1, 28, 28, 1), p["k1"], 3) + p["b1"]))
    h = pooled(jax.nn.relu(conv(h, p["k2"], 0) + p["b2"])).reshape(-1)
    return jax.nn.relu(h @ p["w3"] + p["b3"]) @ p["w4"] + p["b4"]


def conv(x: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
    edges = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, kernel, (2, 2), edges, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(h: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")


def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return -jax.nn.log_softmax(logits(p, x))[y]


def main() -> None:
    problem = read_network()
    micro = MICRO_BATCH["cnn" if "k1" in problem.params else "mlp"]
    clients, sizes = [], jnp.array([len(y) for y in problem.y])
    for x, y in zip(problem.x, problem.y, strict=True):
        more = -len(y) % micro
        parts = (
            np.pad(x, [(0, more)] + [(0, 0)] * (x.ndim - 1)),
            np.pad(y, (0, more)),
            np.arange(len(y) + more) >= len(y),
        )
        clients.append(tuple(jnp.asarray(a) for a in parts))
    clipped = jax_privacy.clipping.clipped_grad(
        loss, l2_clip_norm=problem.clip, batch_argnums=(1, 2), keep_batch_dim=False, microbatch_size=micro
    )
    clipped_sum = jax.jit(lambda p, x, y, mask: row(clipped(p, x, y, is_padding_example=mask), jnp.concatenate))
    params = {name: jnp.asarray(value) for name, value in problem.params.items()}
    flat = row(params, jnp.concatenate)
    state = [flat, jnp.zeros_like(flat), jax.random.key(0)]

    def tree(flat: jax.Array) -> Any:
        names = sorted(params)
        parts = jnp.split(flat, np.cumsum([params[n].size for n in names])[:-1])
        return {n: part.reshape(params[n].shape) for n, part in zip(names, parts, strict=True)}

    @jax.jit
    def server(theta: jax.Array, momentum: jax.Array, key: jax.Array, sums: list[jax.Array]):
        key, now = jax.random.split(key)
        noisy = jnp.stack(sums) + problem.std * jax.random.normal(now, (len(sums), *theta.shape))
        return *sofim_step(problem, jnp.mean(noisy / sizes[:, None], axis=0), momentum, theta), key  # type: ignore[arg-type]

    def one_round() -> None:
        now = tree(state[0])
        state[:] = jax.block_until_ready(server(*state, [clipped_sum(now, *c) for c in clients]))

    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jax-privacy", "jax")]
    sums = np.stack([np.asarray(clipped_sum(params, *c)) for c in clients])
    serve(", ".join(versions), sums, one_round)


if __name__ == "__main__":
    main()
