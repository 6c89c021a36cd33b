"""Equations that add rows into a table of zeros: the gradient of an embedding, of which a record touches a few rows.

A record that looks up tokens i_t adds g_t to row i_t. Equal tokens are added up first, in the place of the first of
them: what is left are different rows of the table, so their squares add up to the squared length of the leaf, and every
number of the table gets at most one number from each record. Nothing is left that could cancel.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from fedsofim.core.windows import EXACT

_TOKENS = 512  # at most: each is compared with each


def rows_of(eqn: Any, made: dict[Any, Any]) -> tuple[int, int] | None:
    """(rows added, numbers of each), of an equation that adds rows into a table of zeros; None for any other."""
    if eqn.primitive.name != "scatter-add" or not _by_rows(eqn) or not _zeros(eqn.invars[0], made):
        return None
    table, indices, _ = (v.aval.shape for v in eqn.invars)
    tokens = math.prod(indices[:-1])
    return (tokens, math.prod(table[1:])) if 0 < tokens <= min(_TOKENS, table[0]) else None


def looked_up(eqn: Any, indices: jax.Array, updates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One record's rows: which of the table, and what is added there, zeros where it was added to an earlier one."""
    size = eqn.invars[0].aval.shape[0]
    row = indices.reshape(-1)
    g = updates.reshape(len(row), -1)
    if "CLIP" in str(eqn.params["mode"]):
        row = jnp.clip(row, 0, size - 1)
    inside = (row >= 0) & (row < size)
    same = (row[:, None] == row[None, :]) & inside[:, None] & inside[None, :]
    first = inside & ~jnp.any(jnp.tril(same, -1), axis=1)
    total = jnp.matmul(same.astype(g.dtype), g, precision=EXACT)
    return jnp.where(inside, row, 0).astype(jnp.int32), jnp.where(first[:, None], total, jnp.zeros((), g.dtype))


def tables(eqn: Any, factor: jax.Array, row: jax.Array, g: jax.Array) -> jax.Array:
    """Every group's Σ factor·table, (groups, numbers): factor (groups, n), row (groups·n, tokens), g (…, numbers)."""
    groups, size = factor.shape
    table = eqn.invars[0].aval.shape
    scaled = (g * factor.reshape(-1, 1, 1)).reshape(groups, size * row.shape[1], g.shape[2])
    group = jnp.arange(groups, dtype=jnp.int32)[:, None]
    none = jnp.zeros((groups, table[0], g.shape[2]), g.dtype)
    return none.at[group, row.reshape(groups, -1)].add(scaled).reshape(groups, -1)


def _by_rows(eqn: Any) -> bool:
    """Does every index name one place along the first axis, and is a whole row added there?"""
    d, (table, indices, updates) = eqn.params["dimension_numbers"], (v.aval.shape for v in eqn.invars)
    rows = len(indices) - 1
    return (
        tuple(d.inserted_window_dims) == tuple(d.scatter_dims_to_operand_dims) == (0,)
        and not d.operand_batching_dims
        and tuple(d.update_window_dims) == tuple(range(rows, rows + len(table) - 1))
        and updates == (*indices[:-1], *table[1:])
        and indices[-1] == 1
    )


def _zeros(var: Any, made: dict[Any, Any]) -> bool:
    eqn = None if isinstance(var, Literal) else made.get(var)
    if eqn is None or eqn.primitive.name != "broadcast_in_dim" or not isinstance(eqn.invars[0], Literal):
        return False
    return bool(eqn.invars[0].val == 0)
