"""Noise that is taken back later, for rounds in which other clients are asked than before.

Clients take turns: who is asked in round t is asked again in round t + G, not before (participation.py). Under secure
sum the noise of a round is made by all n clients: those who are not asked send their share of it and nothing else. So
each can take part of its earlier noise back in a later round, whoever is asked there, and the sums that a server
adds up carry less of it. z = C⁻¹·w, w fresh standard normals of every round: z_t = w_t - Σ_j c_j·z_{t-j}, for which a
client keeps its last b - 1 draws.

**Cost.** C is lower triangular with 1 = c_0, c_1, ..., c_{b-1} from its diagonal down and nothing further. By
mechanisms.py a run costs max dᵀΣ⁻¹d = max |C·d|², where d_t is how a record moves round t, |d_t| <= 1. A record moves
the rounds t = g, g + G, g + 2G, ... of its client's group alone, and with b <= G bands no two of these columns of C
have a row in common. So |C·d|² = Σ_t |d_t|²·|C·e_t|² <= Σ_t |C·e_t|², the sum over the group's rounds, with equality
at |d_t| = 1 whatever their signs. Later columns of C are cut off by the last round, so the first group, g = 0,
pays most:

    cost = Σ_j n_j·c_j²,    n_j how many of the rounds 0, G, 2G, ... are before T - j.

**Which c.** The noise of the running sums is A·C⁻¹·w, A lower triangular ones: of total variance Σ_t (T-t)·h_t², h the
running sums of the first column of C⁻¹. At one budget the noise's variance grows with the cost, so c is chosen to
make cost·Σ_t (T-t)·h_t² least, numerically: whatever c comes out, it is priced as it is.

Where every upload is seen (local trust) nobody but the group that is asked could take noise back, and that is the one
that would then be told apart from it: refused there (plan_checks.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.normals import normal
from fedsofim.errors import InputError, expect_whole

_LONGEST = 10_000  # rounds: every draw goes back to the first


@dataclass(frozen=True, slots=True)
class Banded:
    """Noise C⁻¹·w over all rounds of a run, for clients that are asked `gap` rounds apart.

    >>> one, four = Banded(rounds=64, gap=1), Banded(rounds=64, gap=4)
    >>> one.cost(64), round(four.cost(16), 1)
    (64.0, 31.9)
    >>> round(one.spread(64) * one.cost(64), 1), round(four.spread(64) * four.cost(16), 1)
    (64.0, 5.2)
    """

    rounds: int
    gap: int

    def __post_init__(self) -> None:
        expect_whole("rounds of banded noise", self.rounds, 1)
        expect_whole("gap of banded noise", self.gap, 1)
        if self.rounds > _LONGEST:
            raise InputError(f"banded noise over {self.rounds} rounds goes back too far; expected at most {_LONGEST}")

    @property
    def coefficients(self) -> tuple[float, ...]:
        """c_0 = 1, ..., c_{b-1}."""
        return best_coefficients(self.rounds, self.gap)

    def cost(self, rounds: int) -> float:
        """Of a client that is asked so often, every `gap` rounds from the first on."""
        if rounds != math.ceil(self.rounds / self.gap):
            raise InputError(
                f"banded noise over {self.rounds} rounds is for clients that are asked every {self.gap} rounds, "
                f"{math.ceil(self.rounds / self.gap)} times; it was asked to price {rounds} times"
            )
        c = np.asarray(self.coefficients)
        return float(np.sum(_columns(self.rounds, self.gap, len(c)) * c**2))

    def spread(self, rounds: int) -> float:
        """Mean noise variance of the running sums, relative to that of independent noise of the same std."""
        h = np.cumsum(_inverse(self.coefficients, rounds))
        return float(np.sum(_left(rounds) * h**2)) / (rounds * (rounds + 1) / 2)

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        """Noise of this round of the run, whoever is asked in it: all of it, of all clients together."""
        weights = jnp.asarray(_inverse(self.coefficients, self.rounds), dtype)

        def add(s: jax.Array, total: jax.Array) -> jax.Array:
            return total + weights[round - s] * normal(jax.random.fold_in(key, s), shape, dtype)

        return jax.lax.fori_loop(jnp.zeros_like(round), round + 1, add, jnp.zeros(tuple(shape), dtype))


@lru_cache(maxsize=64)
def best_coefficients(rounds: int, gap: int) -> tuple[float, ...]:
    """The c of at most `gap` bands that make cost times running sums' variance least."""
    bands = min(gap, rounds)
    if bands == 1:
        return (1.0,)
    from scipy.optimize import minimize  # slow to import, and only wanted here

    root = np.cumprod([1.0, *((j - 0.5) / j for j in range(1, bands))])  # of running sums: (1 - x)^(-1/2)
    found = minimize(_loss, root[1:], (rounds, gap), jac=True, method="L-BFGS-B", options={"ftol": 1e-7})
    return (1.0, *(float(c) for c in found.x))


def _loss(rest: np.ndarray, rounds: int, gap: int) -> tuple[float, np.ndarray]:
    """log(cost·variance) of c = (1, rest), and its gradient in the rest: ∂h/∂c_j is h*(first column of C⁻¹), negated
    and j rounds later."""
    c = np.concatenate([[1.0], rest])
    count, left = _columns(rounds, gap, len(c)), _left(rounds)
    inverse = _inverse(c, rounds)
    h = np.cumsum(inverse)
    variance, cost = float(np.sum(left * h**2)), float(np.sum(count * c**2))
    back = np.convolve(inverse, h)[:rounds]
    moved = np.array([-2 * np.sum((left * h)[j:] * back[: rounds - j]) for j in range(1, len(c))])
    return math.log(variance * cost), moved / variance + 2 * (count * c)[1:] / cost


def _inverse(c: Sequence[float] | np.ndarray, rounds: int) -> np.ndarray:
    """The first column of C⁻¹: what of a fresh draw is in the noise of its round and of each later one."""
    c = np.asarray(c, float)
    column = np.zeros(rounds)
    column[0] = 1.0
    for t in range(1, rounds):
        reach = min(t, len(c) - 1)
        column[t] = -np.dot(c[1 : reach + 1], column[t - reach : t][::-1])
    return column


def _left(rounds: int) -> np.ndarray:
    """T - t: in how many running sums what enters in round t is."""
    return np.arange(rounds, 0, -1.0)


def _columns(rounds: int, gap: int, bands: int) -> np.ndarray:
    """n_j: how many of the first group's columns of C reach j rows down."""
    return np.array([math.ceil((rounds - j) / gap) for j in range(bands)], float)
