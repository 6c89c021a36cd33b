"""Noise laid out over rounds: its law and its price."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core import mechanisms
from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Mischarged, Tree, as_mechanism
from fedsofim.errors import InputError

T = 21


def running_sums(mechanism: Mechanism, draws: int = 4000) -> np.ndarray:
    """Noise of the running sums, (draws, T)."""

    def run(key):
        return jax.lax.map(lambda t: mechanism.draw(key, t, (), jnp.float32), jnp.arange(T, dtype=jnp.int32))

    return np.cumsum(jax.vmap(run)(jax.random.split(jax.random.key(0), draws)), axis=1)


# --- the price, from the noise that is drawn ----------------------------------------------------------------

HEIGHTS = 7  # of a tree over 70 rounds


def drawn_from(mechanism: Mechanism, rounds: int, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """B (rounds, normals): the noise of the rounds is B·(independent standard normals).

    Every draw is replaced by the unit vector of its key's place among all keys that a mechanism could ask for.
    """
    key = jax.random.key(3)
    codes = np.concatenate([h * 2**24 + np.arange(rounds) for h in range(HEIGHTS)])
    known = jax.random.key_data(jax.vmap(lambda code: jax.random.fold_in(key, code))(codes))

    def unit_vector(asked, shape, dtype):
        return jnp.all(known == jax.random.key_data(asked), axis=1).astype(dtype)

    monkeypatch.setattr(mechanisms, "normal", unit_vector)
    draw = jax.jit(lambda t: mechanism.draw(key, t, (len(codes),), jnp.float32))
    return np.stack([draw(jnp.int32(t)) for t in range(rounds)]).astype(float)


LAYOUTS = {
    "independent": lambda rounds: Independent(2.0),
    "diagonal": Diagonal,
    "tree": lambda rounds: Tree(),
    "honaker": lambda rounds: Tree(honaker=True),
    "tree, restart 6": lambda rounds: Tree(restart=6),
    "honaker, restart 6": lambda rounds: Tree(restart=6, honaker=True),
    "mischarged": lambda rounds: Mischarged(Tree(), lambda rounds: 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2, 3, 8, 11, 32, 70])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_price_is_that_of_the_noise_drawn(layout: str, rounds: int, monkeypatch):
    """The cost is the largest dᵀΣ⁻¹d with |d_t| <= 1: at d = (1, ..., 1), since Σ⁻¹ has no entry below 0."""
    mechanism = LAYOUTS[layout](rounds)
    drawn = drawn_from(mechanism, rounds, monkeypatch)
    inverse = np.linalg.inv(drawn @ drawn.T)
    assert inverse.min() > -1e-4 * inverse.max()
    assert mechanism.cost(rounds) == pytest.approx(inverse.sum(), rel=1e-4)


def nodes(rounds: int) -> list[tuple[int, int]]:
    """(first round, last round] of every completed node, by brute force."""
    spans = [(e - 2**h, e) for h in range(rounds.bit_length()) for e in range(1, rounds + 1)]
    return [(a, e) for a, e in spans if a >= 0 and e % (e - a) == 0]


def in_a_running_sum(rounds: int) -> set[tuple[int, int]]:
    """Those of them that a running sum carries: the pieces of 1..m by m's binary form."""
    found = set()
    for m in range(1, rounds + 1):
        end = 0
        for h in reversed(range(m.bit_length())):
            if m >> h & 1:
                found.add((end, end := end + 2**h))
    return found


@pytest.mark.parametrize("rounds", [*range(1, 20), 64, 70])
def test_tree_price_is_that_of_the_nodes_released(rounds: int):
    """Every round moves a node of height h by 1, altogether by 2^h. Right children matter to subtree estimates only."""
    assert Tree().cost(rounds) == sum((e - a) ** 2 for a, e in in_a_running_sum(rounds))
    assert Tree(honaker=True).cost(rounds) == sum((e - a) ** 2 for a, e in nodes(rounds))


@pytest.mark.parametrize("honaker", [False, True])
def test_trees_that_begin_anew_cost_what_each_costs(honaker: bool):
    one = Tree(honaker=honaker)
    assert Tree(restart=10, honaker=honaker).cost(25) == 2 * one.cost(10) + one.cost(5)
    assert Tree(restart=1, honaker=honaker).cost(70) == Independent().cost(70)
    assert one.cost(0) == 0


def test_seventy_rounds():
    assert (Tree().cost(70), Tree(honaker=True).cost(70)) == (6139, 8162)


# --- what is refused ----------------------------------------------------------------------------------------


SCALES: list[Any] = [0, 0.0, -1.0, 1e-38, 1e-170, 9.9e-7, 1.1e6, math.inf, math.nan, True, "1", None, jnp.ones(())]
RESTARTS: list[Any] = [0, -1, 2.5, True, "2", math.nan]


@pytest.mark.parametrize(
    "senseless",
    [
        *(lambda s=s: Independent(s) for s in SCALES),
        *(lambda s=s: as_mechanism(s) for s in [*SCALES, np.ones(2)]),
        *(lambda r=r: Tree(restart=r) for r in RESTARTS),
        *(lambda r=r: Diagonal(r) for r in [*RESTARTS, None]),
        lambda: Tree(honaker=1),  # type: ignore[arg-type]
        lambda: Tree().cost(2**24),
        lambda: as_mechanism(Mischarged(Mischarged(Tree(), lambda r: 1.0), lambda r: 1.0)),
        lambda: jax.jit(as_mechanism)(1.0),
        lambda: jax.jit(Independent)(1.0),
    ],
)
def test_senseless_noise_is_refused_in_words(senseless):
    with pytest.raises(InputError, match=r"expected|restart it before"):
        senseless()


def test_numbers_of_any_kind_become_one_number():
    numbers: list[Any] = [2, 2.0, np.float32(2), np.int64(2)]
    for one in numbers:
        assert as_mechanism(one) == Independent(2.0)
        assert type(Independent(one).scale) is float


def test_a_cost_is_believed_only_of_exactly_the_librarys_own():
    class Cheap(Tree):
        def cost(self, rounds: int) -> float:
            return 1.0

    class CheapNoise(Mischarged):
        pass

    for forged in (Cheap(), Mischarged(Cheap(), lambda rounds: 1.0), CheapNoise(Tree(), lambda rounds: 1.0)):
        with pytest.raises(InputError, match="costs are proved"):
            as_mechanism(forged)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_instance_cannot_carry_a_cost_of_its_own(layout: str):
    honest = LAYOUTS[layout](3)
    with pytest.raises(AttributeError):
        object.__setattr__(honest, "cost", lambda rounds: 0.0)


# --- the law ------------------------------------------------------------------------------------------------


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
