"""Deployment noise: exactly normal, from secret bits, and laid out over the rounds as the ledger prices it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedsofim.core.banded import Banded
from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Mischarged, Tree
from fedsofim.deploy import noise
from fedsofim.deploy.noise import BITS, Bits, cost_of_round, draw, laid_out, lattice_normal, lattice_std, scale_of_round
from fedsofim.errors import Refused

SECRET = bytes(range(32))
OTHER = bytes(range(1, 33))
MANY = 200_000


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return lattice_normal(Bits(SECRET, "many"), MANY)


@pytest.fixture(scope="module")
def z(draws: np.ndarray) -> np.ndarray:
    return (draws + 0.5) * 2.0**-BITS


# --- the normal ---------------------------------------------------------------------------------------------


def normal_at_all(sample: np.ndarray) -> float:
    return float(stats.kstest(sample, "norm").pvalue)  # type: ignore[attr-defined]


def test_standard_normal_and_neither_smaller_nor_larger(z: np.ndarray):
    assert normal_at_all(z) > 0.01
    assert normal_at_all(z * 2 / 3) < 1e-12
    assert normal_at_all(z * 3 / 2) < 1e-12
    assert normal_at_all(z + 0.02) < 1e-6  # so a shift of a fiftieth would be seen too


@pytest.mark.parametrize("beyond", [2.0, 3.0, 4.0])
@pytest.mark.parametrize("side", [-1, 1])
def test_tails_hold_as_many_as_they_should(z: np.ndarray, beyond: float, side: int):
    count = int(np.sum(side * z > beyond))
    assert stats.binomtest(count, MANY, float(stats.norm.sf(beyond))).pvalue > 1e-3
    assert count > 0


def test_moments(z: np.ndarray):
    assert np.mean(z) == pytest.approx(0, abs=4 / math.sqrt(MANY))
    assert np.std(z) == pytest.approx(1, abs=4 / math.sqrt(2 * MANY))
    assert np.mean(z**4) == pytest.approx(3, abs=4 * math.sqrt(96 / MANY))


def test_integers_down_to_the_last_bit(draws: np.ndarray):
    assert draws.dtype == np.int64
    assert len(np.unique(draws)) > 0.9999 * MANY
    for shift in (0, 8, 16):  # at this scale a normal is flat: low bytes are uniform
        counts = np.bincount((draws >> shift) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.binomtest(int(np.sum(draws < 0)), MANY, 0.5).pvalue > 1e-3


def test_draws_do_not_depend_on_each_other(z: np.ndarray):
    for lag in (1, 2, 64):
        assert abs(np.mean(z[lag:] * z[:-lag])) < 4 / math.sqrt(MANY)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_draws(count: int):
    assert lattice_normal(Bits(SECRET), count).shape == (count,)


# --- bits ---------------------------------------------------------------------------------------------------


def test_words_are_uniform():
    words = Bits(SECRET, "words").words(100_000)
    assert words.dtype == np.uint64
    assert stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue > 1e-3
    ones = [int(np.sum(words >> np.uint64(b) & np.uint64(1))) for b in range(64)]
    assert all(abs(n - 50_000) < 5 * math.sqrt(25_000) for n in ones)


def test_a_stream_never_repeats_itself():
    bits = Bits(SECRET, "stream")
    read = np.concatenate([bits.words(n) for n in (1, 5000, 20_000, 3, 9000)])  # over several blocks
    assert len(np.unique(read)) == len(read)


def test_equal_secrets_and_labels_and_only_those_give_equal_noise():
    def of(secret: bytes, label: str) -> np.ndarray:
        return lattice_normal(Bits(secret, label), 4000)

    first = of(SECRET, "a")
    assert np.array_equal(first, of(SECRET, "a"))
    for other in (of(OTHER, "a"), of(SECRET, "b"), of(SECRET, "a/0"), of(SECRET, "")):
        assert not np.any(first == other)
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / math.sqrt(4000)


def test_secrets_come_from_the_operating_system(monkeypatch):
    assert len(noise.fresh_secret()) == 32
    assert noise.fresh_secret() != noise.fresh_secret()
    monkeypatch.setattr("os.urandom", lambda n: b"\7" * n)
    assert noise.fresh_secret() == b"\7" * 32


# --- the price of a round -----------------------------------------------------------------------------------

LAYOUTS: list[Mechanism] = [Independent(1.0), Independent(2.0), Tree(), Tree(restart=8), Tree(restart=1)]


@pytest.mark.parametrize("rounds", [1, 2, 7, 8, 9, 70])
@pytest.mark.parametrize("mechanism", [*LAYOUTS, "diagonal"], ids=str)
def test_rounds_add_up_to_the_price_of_the_run(mechanism: Mechanism | str, rounds: int):
    layout = Diagonal(rounds) if isinstance(mechanism, str) else mechanism
    each = [cost_of_round(layout, t, rounds) for t in range(rounds)]
    assert sum(each) == pytest.approx(layout.cost(rounds), rel=1e-12)
    assert all(cost > 0 for cost in each)


@pytest.mark.parametrize("restart", [None, 8, 6, 1])
def test_every_beginning_of_a_run_has_paid_for_what_it_released(restart: int | None):
    """1ᵀΣ⁻¹1 of the rounds so far, Σ the covariance of the noise that nodes draw (mechanisms.py)."""
    tree, rounds = Tree(restart), 70
    terms = [noise.tree_terms(tree, t) for t in range(rounds)]
    names = sorted({node for each in terms for _, node in each})
    drawn = np.zeros((rounds, len(names)))
    for t, each in enumerate(terms):
        for sign, node in each:
            drawn[t, names.index(node)] = sign
    paid = np.cumsum([cost_of_round(tree, t, rounds) for t in range(rounds)])
    for so_far in range(1, rounds + 1):
        part = drawn[:so_far]
        assert paid[so_far - 1] == pytest.approx(np.linalg.inv(part @ part.T).sum(), rel=1e-9)


def test_a_wrong_account_is_not_believed():
    cheap = Mischarged(Independent(1.0), lambda rounds: 0.0)
    assert sum(cost_of_round(cheap, t, 5) for t in range(5)) == 5.0
    assert laid_out(Mischarged(Tree(), lambda rounds: 1.0))


@pytest.mark.parametrize("round", [0, 3, 9])
@pytest.mark.parametrize("mechanism", [Independent(2.0), Diagonal(10)], ids=str)
def test_a_rounds_scale_is_the_simulators(mechanism: Mechanism, round: int):
    at = (jax.random.key(0), jnp.int32(round), (5,), jnp.float32)
    ratio = np.asarray(mechanism.draw(*at)) / np.asarray(Independent(1.0).draw(*at))
    np.testing.assert_allclose(ratio, scale_of_round(mechanism, round), rtol=1e-5)


# --- trees --------------------------------------------------------------------------------------------------


def nodes_after(m: int, restart: int | None) -> set[tuple[int, int, int]]:
    """The tree nodes (tree, height, end) that the running sum of m rounds carries: the 1s of binary forms."""
    whole, rest = divmod(m, restart) if restart else (0, m)
    found = set()
    for tree, size in [*((i, restart or 0) for i in range(whole)), (whole, rest)]:
        end = 0
        for height in reversed(range(size.bit_length())):
            if size >> height & 1:
                end += 1 << height
                found.add((tree, height, end))
    return found


ROUNDS, WIDE = 13, 4000


def assert_tree_like(released: np.ndarray, restart: int | None) -> None:
    """Running sums of unit noise (rounds, coordinates) covary by the nodes they share."""
    sums = np.cumsum(released, axis=0)
    found = sums @ sums.T / WIDE
    carried = [nodes_after(m + 1, restart) for m in range(ROUNDS)]
    wanted = np.array([[len(a & b) for b in carried] for a in carried], float)
    spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / WIDE)
    assert np.all(np.abs(found - wanted) < 5 * spread)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [None, 8, 3, 1])
def test_running_sums_carry_the_nodes_of_a_binary_tree_as_in_the_simulator(restart: int | None):
    tree = Tree(restart)
    ours = np.stack([draw(tree, t, WIDE, SECRET, "tree") for t in range(ROUNDS)]) * 2.0**-BITS
    assert_tree_like(ours, restart)
    simulated = jax.jit(lambda t: tree.draw(jax.random.key(0), t, (WIDE,), jnp.float32))
    assert_tree_like(np.stack([simulated(jnp.int32(t)) for t in range(ROUNDS)]).astype(float), restart)


@pytest.mark.parametrize("power", [1, 2, 4, 8])
def test_a_completed_tree_leaves_one_node_only(power: int):
    total = sum(draw(Tree(), t, WIDE, SECRET, "tree") for t in range(power)) * 2.0**-BITS
    assert np.std(total) == pytest.approx(1, abs=5 / math.sqrt(2 * WIDE))


def test_fresh_noise_in_every_round_where_there_is_no_tree():
    assert not laid_out(Independent(1.0))
    assert not laid_out(Diagonal(4))
    assert laid_out(Tree())
    first, second = (draw(Independent(1.0), 0, WIDE, secret, "n") for secret in (SECRET, OTHER))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(WIDE)


def test_a_plain_trees_terms_are_not_those_of_subtree_estimates():
    with pytest.raises(Refused, match="plain tree"):
        noise.tree_terms(Tree(honaker=True), 0)


# --- the room for rounding ----------------------------------------------------------------------------------


@given(
    multiple=st.floats(0.01, 14.0),  # noise std in sensitivities: 14 is epsilon 1 over 70 rounds
    sensitivity=st.floats(1e-6, 1e6),
    coordinates=st.integers(1, 50_000),
)
def test_the_std_grows_by_less_than_a_millionth_and_hides_the_rounding(multiple, sensitivity, coordinates):
    std = multiple * sensitivity
    larger = lattice_std(std, sensitivity, coordinates)
    assert std <= larger < std * (1 + 1e-6)
    rounded = sensitivity + larger * 2.0**-BITS * math.sqrt(coordinates)
    assert rounded / larger <= sensitivity / std


def test_noise_too_coarse_for_the_lattice_is_refused():
    with pytest.raises(Refused, match="lattice"):
        lattice_std(1e12, 1.0, 650)


def test_ties_cost_next_to_nothing():
    assert 0 < noise.slack(650) * 70 < 1e-12
    assert noise.slack(1300) == 2 * noise.slack(650)


# --- kinds that nobody draws here ---------------------------------------------------------------------------


class Foreign:
    """Says that it is as cheap as one likes, and that it equals anything."""

    scale = 1.0
    noise = Independent()

    def cost(self, rounds: int) -> float:
        return 1e-9

    def draw(self, *a: object) -> float:
        return 0.0

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class Cheaper(Independent):
    def cost(self, rounds: int) -> float:
        return 1e-9


STRANGE: list[Any] = [Foreign(), Cheaper(), Banded(8, 2), Mischarged(Foreign(), lambda rounds: 1.0)]  # type: ignore[arg-type]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda v: type(v).__name__)
def test_noise_of_a_kind_that_nobody_draws_here_is_refused_everywhere(strange: Mechanism):
    for use in (
        lambda: laid_out(strange),
        lambda: cost_of_round(strange, 0, 3),
        lambda: scale_of_round(strange, 0),
        lambda: draw(strange, 0, 4, SECRET, "x"),
        lambda: noise.draws_of_release(strange, 3),
    ):
        with pytest.raises(Refused, match="is not drawn at nodes"):
            use()
    assert not noise.is_plain(strange)
