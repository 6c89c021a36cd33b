"""Noise laid out over rounds: its law and its price."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Tree
from fedsofim.errors import InputError

T = 21


def running_sums(mechanism: Mechanism, draws: int = 4000) -> np.ndarray:
    """Noise of the running sums, (draws, T)."""

    def run(key):
        return jax.lax.map(lambda t: mechanism.draw(key, t, (), jnp.float32), jnp.arange(T, dtype=jnp.int32))

    return np.cumsum(jax.vmap(run)(jax.random.split(jax.random.key(0), draws)), axis=1)


def nodes(rounds: int) -> list[tuple[int, int]]:
    """(first round, last round] of every completed node, by brute force."""
    spans = [(e - 2**h, e) for h in range(rounds.bit_length()) for e in range(1, rounds + 1)]
    return [(a, e) for a, e in spans if a >= 0 and e % (e - a) == 0]


def test_tree_price_is_that_of_all_nodes_with_full_participation():
    for rounds in (1, 2, 7, 64, 70):
        assert Tree().cost(rounds) == sum((e - a) ** 2 for a, e in nodes(rounds))
    assert Tree(restart=10).cost(25) == 2 * Tree().cost(10) + Tree().cost(5)
    assert Tree(restart=1).cost(70) == Independent().cost(70)


@pytest.mark.slow
@pytest.mark.parametrize(("restart", "honaker"), [(None, False), (None, True), (6, False), (6, True)])
def test_running_sums_carry_the_noise_of_few_nodes(restart: int | None, honaker: bool):
    tree = Tree(restart, honaker)
    measured = running_sums(tree).var(axis=0)
    wanted = []
    for m in range(1, T + 1):
        trees = [restart] * ((m - 1) // restart) + [(m - 1) % restart + 1] if restart else [m]
        bits = [h for size in trees for h in range(6) if size >> h & 1]
        wanted.append(sum(1 / sum(2.0**-j for j in range(h + 1)) if honaker else 1.0 for h in bits))
    assert np.allclose(measured, wanted, rtol=0.12)  # five standard errors of a variance from 4000 draws
    assert tree.spread(T) == pytest.approx(np.mean(wanted) / ((T + 1) / 2))


def test_nodes_of_a_tree_are_drawn_once():
    """What one node adds it takes away: after 4 rounds the noise of rounds 1 to 3 is gone."""
    sums = running_sums(Tree())
    assert abs(np.corrcoef(sums[:, 2], sums[:, 3])[0, 1]) < 0.08  # 3 = {2, 1} and 4 = {4} share no node
    assert np.corrcoef(sums[:, 1], sums[:, 2])[0, 1] == pytest.approx(1 / math.sqrt(2), abs=0.05)


def test_diagonal_schedule():
    each = np.diff(running_sums(Diagonal(T)), axis=1, prepend=0.0).std(axis=0)
    wanted = (T - np.arange(T)) ** -0.25
    assert np.allclose(each / each[0], wanted / wanted[0], rtol=0.08)
    assert np.sum(1 / each**2) == pytest.approx(Diagonal(T).cost(T), rel=0.03)
    with pytest.raises(InputError, match="make a new one"):
        Diagonal(T).cost(T + 1)


@pytest.mark.slow
def test_diagonal_beats_independent_noise_and_the_tree_at_equal_price():
    def error(mechanism: Mechanism) -> float:
        return float(np.mean(running_sums(mechanism) ** 2) * mechanism.cost(T))

    independent = error(Independent())
    assert error(Diagonal(T)) < independent < error(Tree(honaker=True)) < error(Tree())
