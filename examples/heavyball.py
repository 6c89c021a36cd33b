"""Local heavy-ball: K noisy steps with a velocity that stays at the client. K releases a round."""

import jax
import jax.numpy as jnp

from fedsofim import Method


def heavyball(client_lr: float = 0.1, momentum: float = 0.5, local_steps: int = 2) -> Method:
    """K local heavy-ball steps from the shared model."""

    def client(door, params, state, memory):
        def step(inner, carry):
            y, v = carry
            g = jax.tree.map(lambda s: s / inner.size, inner.gradient(y))
            v = jax.tree.map(lambda v, g: momentum * v + g, v, g)
            return jax.tree.map(lambda y, v: y - client_lr * v, y, v), v

        y, velocity = door.scan(step, (params, memory), local_steps)
        return jax.tree.map(jnp.subtract, y, params), velocity

    def server(mean, state, params, facts):
        return jax.tree.map(jnp.add, params, mean), state

    return Method("heavyball", client, server, memory=lambda params: jax.tree.map(jnp.zeros_like, params))
