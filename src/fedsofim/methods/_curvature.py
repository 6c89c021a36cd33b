"""Curvature of more than one direction, from the same private averages: post-processing, so it costs no privacy.

SOFIM's F = M̂ M̂ᵀ + ρI knows one direction (_sofim.py). Two richer proxies, each inverted exactly:

    rank-k      F = (1/k)·Σ_{s=t-k+1..t} G_s G_sᵀ + ρI, the last k averages themselves. With U = [G_s]/sqrt(k), by
                Woodbury, H·v = (v - U·(ρI_k + UᵀU)⁻¹·Uᵀv)/ρ, in O(kd) time and k buffers of d numbers.
    kronecker   F = (A ⊗ B)/τ + ρI for a head, mat(G) of shape (p+1, C): A and B are running means of mat(G)·mat(G)ᵀ
                and mat(G)ᵀ·mat(G), τ = tr A. Of A only the k largest eigenvalues are kept, as columns Y with A = Y·Yᵀ
                and Yᵀ·Y = diag(λ): the next A is that of the k largest of [sqrt(m)·Y, sqrt(1-m)·mat(G)], which is an
                eigendecomposition of k+C numbers. With B = R diag(b) Rᵀ, by Woodbury,
                H·v = mat(v)/ρ - Y·[(Yᵀ mat(v) R) · c_ij]·Rᵀ, c_ij = (a_i/λ_i)·b_j/(τ·ρ·(a_i·b_j/τ + ρ)),
                in O(kd·(1 + k/C) + Cd) time, O(kd) for k about C, and (p+1)·k + C² numbers. With k = p+1 it is exact.

The noise in an average has a public covariance, σ²I, so mat(G)·mat(G)ᵀ has C·σ²·I too much on average and
mat(G)ᵀ·mat(G) has (p+1)·σ²·I: both are taken off (a_i is λ_i less C·σ²), and eigenvalues that fall below 0 are set to
0. What noise is left has mean zero. Both proxies have the trace of rank one's: that of the outer product of an average.

Either is applied to M̂ (direction="momentum") or to G ("gradient"), as rank one is.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedsofim.core.trees import zeros
from fedsofim.errors import InputError, expect_whole, is_number, shown
from fedsofim.methods._heads import matrix, unmatrix
from fedsofim.methods._sofim import Blocks, Direction
from fedsofim.methods._steps import check_decay, scaled, traced


class WindowState(NamedTuple):
    t: jax.Array  # updates made so far
    momentum: Any
    window: Any  # the last k averages, (k, ...) for each array; zeros before there were so many


def scale_by_rank_k(
    rho: Any = 0.5,
    beta: Any = 0.9,
    rank: int = 4,
    direction: Direction = "momentum",
    bias_correction: bool = True,
    blocks: Blocks = "model",
) -> optax.GradientTransformation:
    """H·M̂ or H·G with F = (1/k)·Σ G_s G_sᵀ + ρI over the last k averages, one F for all or one for each array.

    >>> optimizer = scale_by_rank_k(rho=0.5, rank=1, direction="gradient")
    >>> step, _ = optimizer.update(jnp.ones(3), optimizer.init(jnp.ones(3)))
    >>> [round(float(s), 4) for s in step]  # 1/(0.5 + 3)
    [0.2857, 0.2857, 0.2857]
    """
    _check(rho, beta)
    expect_whole("rank", rank, 1)

    def init(params: Any) -> WindowState:
        window = jax.tree.map(lambda p: jnp.zeros((rank, *p.shape), p.dtype), params)
        return WindowState(jnp.zeros((), jnp.int32), zeros(params), window)

    def update(updates: Any, state: WindowState, params: Any = None) -> tuple[Any, WindowState]:
        del params
        momentum, corrected = _momentum(updates, state, beta, bias_correction)
        place = state.t % rank
        window = jax.tree.map(lambda w, g: w.at[place].set(g), state.window, updates)
        seen = jnp.minimum(state.t + 1, rank)  # k while there are fewer: the mean is over those there are
        step = _woodbury(window, seen, corrected if direction == "momentum" else updates, rho, blocks)
        return step, WindowState(state.t + 1, momentum, window)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def _woodbury(window: Any, seen: jax.Array, v: Any, rho: Any, blocks: Blocks) -> Any:
    """(v - U·(ρI_k + UᵀU)⁻¹·Uᵀv)/ρ, with one small system for all arrays or one for each."""
    leaves, tree = jax.tree.flatten(v)
    rows = [w.reshape(w.shape[0], -1) / jnp.sqrt(seen.astype(w.dtype)) for w in jax.tree.leaves(window)]
    flat = [leaf.reshape(-1) for leaf in leaves]
    grams, alongs = [u @ u.T for u in rows], [u @ f for u, f in zip(rows, flat, strict=True)]
    if blocks == "model":
        grams, alongs = [sum(grams)] * len(rows), [sum(alongs)] * len(rows)
    parts = zip(flat, rows, grams, alongs, strict=True)
    steps = [(f - u.T @ _solved(gram, along, rho)) / rho for f, u, gram, along in parts]
    return tree.unflatten([s.reshape(leaf.shape).astype(leaf.dtype) for s, leaf in zip(steps, leaves, strict=True)])


def _solved(gram: Any, along: Any, rho: Any) -> jax.Array:
    return jnp.linalg.solve(rho * jnp.eye(len(along), dtype=gram.dtype) + gram, along)


class KroneckerState(NamedTuple):
    t: jax.Array
    momentum: Any
    left: jax.Array  # Y: the largest part of the running mean of mat(G)·mat(G)ᵀ, noise and all: (p+1, k)
    right: jax.Array  # running mean of mat(G)ᵀ·mat(G), noise and all: (C, C)


def scale_by_kronecker(
    rho: Any = 0.5,
    beta: Any = 0.9,
    rank: int = 4,
    direction: Direction = "momentum",
    bias_correction: bool = True,
    noise_std: Any = 0.0,
    memory: Any = 0.95,
) -> optax.GradientTransformation:
    """H·M̂ or H·G with F = (A ⊗ B)/tr A + ρI of a head's averages, whose noise has std `noise_std` per coordinate.

    `rank`: how many eigenvalues of A are kept, p+1 at most. `memory`: the decay of A and B, which are corrected for
    their start at 0. Needs a linear head.
    """
    _check(rho, beta)
    check_decay(memory=memory)
    expect_whole("rank", rank, 1)

    def init(params: Any) -> KroneckerState:
        head = matrix(params)
        rows, columns = head.shape
        left, right = jnp.zeros((rows, min(rank, rows)), head.dtype), jnp.zeros((columns, columns), head.dtype)
        return KroneckerState(jnp.zeros((), jnp.int32), zeros(params), left, right)

    def update(updates: Any, state: KroneckerState, params: Any = None) -> tuple[Any, KroneckerState]:
        del params
        momentum, corrected = _momentum(updates, state, beta, bias_correction)
        g = matrix(updates)
        left, right = _largest(state.left, g, memory), memory * state.right + (1 - memory) * (g.T @ g)
        full = 1 - memory ** (state.t + 1).astype(g.dtype)
        v = matrix(corrected if direction == "momentum" else updates)
        variance = jnp.square(jnp.asarray(noise_std)).astype(g.dtype)
        noise = (g.shape[1] * variance, g.shape[0] * variance)
        step = kronecker_solve(left / jnp.sqrt(full), right / full, v, rho, noise)
        return unmatrix(step.astype(g.dtype), updates), KroneckerState(state.t + 1, momentum, left, right)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def _largest(left: jax.Array, g: jax.Array, memory: Any) -> jax.Array:
    """Y of the k largest eigenvalues of m·Y·Yᵀ + (1-m)·mat(G)·mat(G)ᵀ: its columns are orthogonal."""
    both = jnp.concatenate([jnp.sqrt(memory) * left, jnp.sqrt(1 - memory) * g], axis=1).astype(g.dtype)
    return both @ jnp.linalg.eigh(both.T @ both)[1][:, -left.shape[1] :]


def kronecker_solve(left: jax.Array, right: jax.Array, v: jax.Array, rho: Any, noise: tuple[Any, Any]) -> jax.Array:
    """mat((A ⊗ B/tr A + ρI)⁻¹·vec(v)) of A = Y·Yᵀ, Y the orthogonal columns `left`, and B `right`, both without what
    noise adds to each of their eigenvalues, and nowhere below 0."""
    size = jnp.sum(jnp.square(left), axis=0)
    a = jnp.maximum(size - noise[0], 0.0)
    b, r = jnp.linalg.eigh(right)
    curvature = jnp.outer(a, jnp.maximum(b - noise[1], 0.0)) / jnp.maximum(jnp.sum(a), jnp.finfo(a.dtype).tiny)
    less = curvature / (rho * (curvature + rho)) / jnp.where(a > 0, size, 1.0)[:, None]  # where a is 0, so is it
    return v / rho - left @ ((left.T @ v @ r) * less) @ r.T


def grafted(
    direction: optax.GradientTransformation, length: optax.GradientTransformation
) -> optax.GradientTransformation:
    """Steps with the direction of one transformation and the length of the other's.

    So that rank one's automatic step, fixed on validation records, serves every curvature.
    """

    def init(params: Any) -> tuple[Any, Any]:
        return direction.init(params), length.init(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        towards, first = direction.update(updates, state[0], params)
        as_long, second = length.update(updates, state[1], params)
        factor = _length(as_long) / jnp.maximum(_length(towards), 1e-30)
        return scaled(factor, towards), (first, second)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def _length(tree: Any) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def _momentum(updates: Any, state: Any, beta: Any, bias_correction: bool) -> tuple[Any, Any]:
    """(M, M̂)."""
    momentum = jax.tree.map(lambda m, g: beta * m + (1 - beta) * g, state.momentum, updates)
    if not bias_correction:
        return momentum, momentum
    return momentum, jax.tree.map(lambda m: m / (1 - beta ** (state.t + 1).astype(m.dtype)), momentum)


def _check(rho: Any, beta: Any) -> None:
    check_decay(beta=beta)
    if not traced(rho) and not (is_number(rho) and rho > 0):
        raise InputError(f"rho is {shown(rho)}; expected a number above 0, or F has no inverse")
