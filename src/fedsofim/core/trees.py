"""Sums and differences of pytrees."""

from typing import Any

import jax
import jax.numpy as jnp


def add(a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: x + y, a, b)


def subtract(a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: x - y, a, b)


def zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)
