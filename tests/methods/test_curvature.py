"""Curvature of more than one direction: against dense inverses, with the noise taken off, at no price."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsofim.errors import InputError
from fedsofim.methods._curvature import grafted, kronecker_solve, scale_by_kronecker, scale_by_rank_k
from fedsofim.methods._sofim import scale_by_sofim
from fedsofim.methods.fedsofim import fedsofim
from method_helpers import TWO_LEAVES, blobs, final, planned

RHO, BETA = 0.3, 0.8
DATA = blobs((12, 9))
CURVATURES = ("rank-one", "rank-k", "kronecker")


def averages(rounds: int = 5) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(3)
    return [{"b": random.normal(size=2), "w": random.normal(size=(3, 2))} for _ in range(rounds)]


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])


def steps_of(transform: Any, gradients: list) -> list[Any]:
    """All steps of a run from one compiled program: an operation at a time would be compiled one by one."""

    def update(state: Any, g: Any) -> tuple[Any, Any]:
        step, state = transform.update(g, state)
        return state, step

    stacked = jax.tree.map(lambda *a: np.stack(a), *gradients)
    found = jax.jit(lambda g: jax.lax.scan(update, transform.init(jax.tree.map(lambda a: a[0], g)), g)[1])(stacked)
    return [jax.tree.map(lambda a, t=t: np.asarray(a[t]), found) for t in range(len(gradients))]


def momenta(gradients: list[np.ndarray], corrected: bool) -> list[np.ndarray]:
    m, out = np.zeros_like(gradients[0]), []
    for t, g in enumerate(gradients):
        m = BETA * m + (1 - BETA) * g
        out.append(m / (1 - BETA ** (t + 1)) if corrected else m)
    return out


@pytest.mark.parametrize(("direction", "corrected"), [("momentum", True), ("gradient", False)])
def test_rank_k_is_the_dense_inverse_of_the_last_k_averages(direction, corrected):
    trees = averages()
    found = steps_of(scale_by_rank_k(RHO, BETA, 3, direction, corrected), trees)
    rows = [flat(g) for g in trees]
    hats = momenta(rows, corrected)
    for t, step in enumerate(found):
        window = rows[max(0, t - 2) : t + 1]
        f = sum(np.outer(g, g) for g in window) / len(window) + RHO * np.eye(8)
        wanted = np.linalg.inv(f) @ (hats[t] if direction == "momentum" else rows[t])
        np.testing.assert_allclose(flat(step), wanted, rtol=1e-8)


def test_rank_k_by_array_is_block_diagonal():
    trees = averages()
    found = steps_of(scale_by_rank_k(RHO, BETA, 2, blocks="leaf"), trees)
    for name in ("w", "b"):
        alone = steps_of(scale_by_rank_k(RHO, BETA, 2), [g[name] for g in trees])
        for step, wanted in zip(found, alone, strict=True):
            np.testing.assert_allclose(step[name], wanted, rtol=1e-9)


@settings(deadline=None, max_examples=12)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 4)), rank=st.integers(1, 7), seed=st.integers(0, 99),
    sigma=st.sampled_from([0.0, 0.4]), direction=st.sampled_from(["momentum", "gradient"]),
)  # fmt: skip
def test_kronecker_is_the_dense_inverse(shape, rank, seed, sigma, direction):
    """Of the k largest eigenvalues of A kept from round to round; all of them from k = p+1."""
    random, memory = np.random.default_rng(seed), 0.9
    heads = [random.normal(size=shape) for _ in range(4)]
    found = steps_of(scale_by_kronecker(RHO, BETA, rank, direction, True, sigma, memory), heads)
    left, right = np.zeros((shape[0], shape[0])), np.zeros((shape[1], shape[1]))
    for t, (g, step) in enumerate(zip(heads, found, strict=True)):
        left = _spectrum(memory * left + (1 - memory) * g @ g.T, lambda e: np.where(e < np.sort(e)[-rank:][0], 0, e))
        right = memory * right + (1 - memory) * g.T @ g
        full = 1 - memory ** (t + 1)
        a, b = (_without(m / full, terms * sigma**2) for m, terms in ((left, shape[1]), (right, shape[0])))
        f = np.kron(a, b) / max(np.trace(a), 1e-300) + RHO * np.eye(g.size)
        wanted = np.linalg.inv(f) @ (momenta(heads, True)[t] if direction == "momentum" else g).reshape(-1)
        np.testing.assert_allclose(np.asarray(step).reshape(-1), wanted, rtol=1e-6, atol=1e-9)


def _spectrum(m: np.ndarray, kept: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    values, vectors = np.linalg.eigh(m)
    return (vectors * kept(values)) @ vectors.T


def _without(m: np.ndarray, noise: float) -> np.ndarray:
    return _spectrum(m, lambda values: np.maximum(values - noise, 0))


def test_with_all_eigenvalues_kronecker_forgets_nothing():
    heads = [g["w"] for g in averages(9)]
    all_of_them, more = (steps_of(scale_by_kronecker(RHO, BETA, rank), heads) for rank in (3, 50))
    few = steps_of(scale_by_kronecker(RHO, BETA, 1), heads)
    assert np.array_equal(all_of_them[-1], more[-1]) and not np.allclose(all_of_them[-1], few[-1], rtol=1e-3)


def test_a_kronecker_step_costs_in_proportion_to_the_parameters():
    """XLA's count of operations, at k = C: about 20·k·d, and twice the features are twice the work."""
    assert work(1000, 10) == pytest.approx(2 * work(500, 10), rel=0.02)
    assert work(500, 10) < 25 * 10 * 5000 and work(500, 3) < work(500, 10) / 2


def work(rows: int, rank: int) -> float:
    transform = scale_by_kronecker(RHO, BETA, rank)
    head = jax.ShapeDtypeStruct((rows, 10), jnp.float32)
    cost: Any = jax.jit(transform.update).lower(head, jax.eval_shape(transform.init, head)).compile().cost_analysis()
    return cost["flops"]


def test_the_noise_that_kronecker_takes_off_is_the_noise_that_is_there():
    """A and B of many averages, less the noise: those of the signal alone."""
    sigma, random = 0.7, np.random.default_rng(0)
    signal = np.outer([3.0, 0.0, 1.0, 0.0], [1.0, -1.0, 2.0])
    averaged = jnp.stack([signal + sigma * random.normal(size=signal.shape) for _ in range(400)])
    transform = scale_by_kronecker(RHO, BETA, rank=4, memory=0.999)
    update = lambda state, g: (transform.update(g, state)[1], None)  # noqa: E731
    end: Any = jax.jit(lambda g: jax.lax.scan(update, transform.init(signal), g)[0])(averaged)
    full = 1 - 0.999**400
    left, right = np.asarray(end.left @ end.left.T) / full, np.asarray(end.right) / full
    assert np.trace(left) - 12 * sigma**2 == pytest.approx(np.sum(signal**2), abs=0.9)
    np.testing.assert_allclose(left - 3 * sigma**2 * np.eye(4), signal @ signal.T, atol=1.5)
    np.testing.assert_allclose(right - 4 * sigma**2 * np.eye(3), signal.T @ signal, atol=1.5)


def test_where_all_curvature_is_noise_it_is_plain_momentum():
    v = np.arange(8.0).reshape(4, 2)  # taken off: nothing is left
    found = jax.jit(kronecker_solve)(1e-2 * np.eye(4)[:, :3], 1e-3 * np.eye(2), v, RHO, (1e-3, 2e-3))
    np.testing.assert_allclose(found, v / RHO, rtol=1e-12)


def test_grafted_has_the_length_of_the_one_and_the_direction_of_the_other():
    trees = averages()
    one, many = scale_by_sofim(RHO, BETA), scale_by_rank_k(RHO, BETA, 3)
    for step, long, towards in zip(
        steps_of(grafted(many, one), trees), steps_of(one, trees), steps_of(many, trees), strict=True
    ):
        assert np.linalg.norm(flat(step)) == pytest.approx(np.linalg.norm(flat(long)))
        cosine = flat(step) @ flat(towards) / np.linalg.norm(flat(step)) / np.linalg.norm(flat(towards))
        assert cosine == pytest.approx(1.0)


def test_curvature_costs_no_privacy():
    one, *others = (planned(DATA, fedsofim(curvature=c), 1.0) for c in CURVATURES)
    for plan in others:
        assert (plan.ledger, plan.multipliers, plan.epsilon) == (one.ledger, one.multipliers, one.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("curvature", CURVATURES[1:])
@pytest.mark.parametrize("lr", [None, 0.05])
def test_a_run_with_it_repeats_and_stays_finite(curvature, lr):
    method = fedsofim(lr, curvature=curvature, rank=2)
    first, again = (final(DATA, method, 5.0, model=TWO_LEAVES) for _ in range(2))
    assert np.array_equal(flat(first), flat(again)) and np.isfinite(flat(first)).all()
    assert not np.array_equal(flat(first), flat(final(DATA, fedsofim(lr), 5.0, model=TWO_LEAVES)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"curvature": "rank-two"}, "rank-k"),
        ({"curvature": "rank-k", "rank": 0}, "rank is 0"),
        ({"curvature": "rank-k", "warmup": 3}, "forms of rank one"),
        ({"curvature": "kronecker", "variant": "ema-only"}, "forms of rank one"),
        ({"curvature": "kronecker", "blocks": "leaf"}, "blocks is 'model'"),
    ],
)
def test_what_does_not_apply_is_refused(settings, words):
    with pytest.raises(InputError, match=words):
        fedsofim(**settings)


def test_kronecker_needs_a_head():
    odd = TWO_LEAVES._replace(init=lambda key, shape, classes: {"w": jnp.zeros((shape[0], classes))})
    with pytest.raises(InputError, match="linear head"):
        planned(DATA, fedsofim(curvature="kronecker"), 1.0, model=odd)
