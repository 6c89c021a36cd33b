"""A linear head as one matrix with the bias in the last row, whichever way its parameters are kept."""

from typing import Any

import jax
import jax.numpy as jnp

from fedsofim.errors import InputError


def matrix(params: Any) -> jax.Array:
    """(p+1, C) from an array of that shape or from {"w": (p, C), "b": (C,)}.

    >>> matrix({"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}).shape
    (4, 2)
    """
    if isinstance(params, dict) and {k: getattr(a, "ndim", None) for k, a in params.items()} == {"w": 2, "b": 1}:
        return jnp.concatenate([params["w"], params["b"][None]])
    if not isinstance(params, dict) and getattr(params, "ndim", 0) == 2:
        return params
    shapes = jax.tree.map(lambda a: a.shape, params)
    raise InputError(f"this method needs a linear head, theta (p+1, C) or w (p, C) with b (C,); the model has {shapes}")


def inverse_of(moment: jax.Array, gamma: Any) -> tuple[jax.Array, jax.Array]:
    """P = (A₊ + γI)⁻¹ of a noisy second moment A, and tr(P·A₊)/tr(A₊).

    A₊ is the nearest positive semidefinite matrix: noise can make eigenvalues negative, but the true ones are
    not, so P is positive definite with eigenvalues at most 1/γ.
    """
    values, vectors = jnp.linalg.eigh(moment)
    values = jnp.maximum(values, 0.0)
    inverse = 1 / (values + gamma)
    shrink = jnp.sum(values * inverse) / jnp.maximum(jnp.sum(values), 1e-30)
    return (vectors * inverse) @ vectors.T, shrink


def unmatrix(m: jax.Array, like: Any) -> Any:
    """The matrix in the form of `like`."""
    return {"w": m[:-1], "b": m[-1]} if isinstance(like, dict) else m
