"""How the noise of one release site is laid out over the rounds, and how many unit releases that is worth.

A mechanism draws the noise of round t in units of the site's std, and states its `cost`: the squared sensitivity of
everything the site releases over the run, for records that move each sum by one unit and noise of unit std.

**What the cost is.** The site releases y_t = S_t + z_t, t = 1..T. One record moves S_t by a vector d_t, |d_t| <= 1,
which may depend on what was released before; z is Gaussian with covariance Σ over the rounds (the same in every
coordinate). Whitened by Σ = LLᵀ, round t moves by (L⁻¹d)_t given the past, so all rounds are mu-GDP (gaussian.py)
with

    mu² = max over |d_t| <= 1 of dᵀΣ⁻¹d,    the cost.

Where Σ⁻¹ has no entry below 0 the maximum is at d = (1, ..., 1), and the cost is 1ᵀΣ⁻¹1. That is so for all mechanisms
here; tests/core/test_mechanisms.py computes both from the noise that is really drawn, for T up to 70. Noise for clients
that are asked now and then (banded.py) has an argument of its own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from fedsofim.core.banded import Banded
from fedsofim.core.normals import normal
from fedsofim.errors import InputError, expect_whole, is_number, is_whole, shown


class Mechanism(Protocol):
    """Frozen and hashable: it is part of the traced program."""

    def cost(self, rounds: int) -> float:
        """Squared sensitivity over noise variance of the run, in units of (record's move / site's std)²."""
        ...

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        """Noise added at this round. The key is the site's own and the same in every round."""
        ...


SCALES = (1e-6, 1e6)  # of a release's noise, in the site's std: float32 draws these without loss


@dataclass(frozen=True, slots=True)
class Independent:
    """Fresh noise every round, `scale` times the site's std.

    Cost: Σ = scale²·I, so dᵀΣ⁻¹d = Σ_t |d_t|²/scale² <= T/scale², reached when every round moves by 1.

    >>> Independent().cost(rounds=70), Independent(scale=2.0).cost(rounds=70)
    (70.0, 17.5)
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        low, high = SCALES
        if not is_number(self.scale) or not low <= self.scale <= high:
            raise InputError(f"noise scale is {shown(self.scale)}; expected a number from {low:g} to {high:g}")
        object.__setattr__(self, "scale", float(self.scale))  # one number, priced and drawn alike

    def cost(self, rounds: int) -> float:
        return rounds / self.scale**2

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        return self.scale * normal(jax.random.fold_in(key, round), shape, dtype)


def draw_tree(mechanism: Mechanism, key: jax.Array, round: jax.Array, like: Sequence) -> list[jax.Array]:
    """Noise for several leaves released together: each leaf has its own key."""
    if len(like) == 1:
        return [mechanism.draw(key, round, like[0].shape, like[0].dtype)]
    keys = jax.random.split(key, len(like))
    return [mechanism.draw(k, round, leaf.shape, leaf.dtype) for k, leaf in zip(keys, like, strict=True)]


def as_mechanism(noise: "float | Mechanism") -> Mechanism:
    """A plain number means independent noise of that size; a cost is believed only of the library's own mechanisms.

    Exactly those types: a subclass could state another cost, and a number known only at run time could be any.
    """
    if is_number(noise):
        return Independent(float(noise))  # type: ignore[arg-type]
    inner = noise.noise if type(noise) is Mischarged else noise
    if type(inner) is Banded and inner is not noise:
        raise InputError(f"noise is {shown(noise)}; banded noise has no published account that a run could repeat")
    if type(inner) not in (Independent, Diagonal, Tree, Banded):
        raise InputError(
            f"noise is {shown(noise)}; expected a number, or Independent, Diagonal, Tree or Banded, whose "
            "costs are proved"
        )
    return noise  # type: ignore[return-value]


def own_mechanism(noise: "float | Mechanism") -> Mechanism:
    """The same mechanism made anew of plain numbers, which its own checks see again; nobody else holds it."""
    known = as_mechanism(noise)
    if type(known) is Mischarged:
        return Mischarged(own_mechanism(known.noise), known.charged)
    if type(known) is Tree:
        return Tree(None if known.restart is None else int(known.restart), bool(known.honaker))
    if type(known) is Diagonal:
        return Diagonal(int(known.rounds))
    if type(known) is Banded:
        return Banded(int(known.rounds), int(known.gap))
    return Independent(float(known.scale))  # type: ignore[attr-defined]


# --- noise laid out over the rounds -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Diagonal:
    """Independent noise growing over the rounds, std at round t ∝ (T-t)^(-1/4), scaled so that the cost is T.

    Noise of round t stays in every later running sum, T-t of them, so early rounds deserve less of it: among
    independent noises this has the least total squared error of the running sums for its cost.

    Cost: Σ is diagonal with σ_t² = a·(T-t)^(-1/2) for t = 0..T-1 and a = Σ_t sqrt(T-t)/T, so the cost is
    Σ_t 1/σ_t² = Σ_t sqrt(T-t)/a = T, reached when every round moves by 1.

    >>> round(Diagonal(rounds=70).cost(rounds=70), 6)
    70.0
    """

    rounds: int

    def __post_init__(self) -> None:
        expect_whole("the schedule's number of rounds", self.rounds, 1)

    def cost(self, rounds: int) -> float:
        if rounds != self.rounds:
            raise InputError(f"the schedule is for {self.rounds} rounds, not {rounds}; make a new one")
        return float(rounds)

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        mean = sum(math.sqrt(left) for left in range(1, self.rounds + 1)) / self.rounds  # a
        scale = jnp.sqrt(mean) * (self.rounds - round).astype(dtype) ** -0.25
        return scale.astype(dtype) * normal(jax.random.fold_in(key, round), shape, dtype)


_HEIGHT_STEP = 2**24  # node ids: height·2^24 + last round of the node; so a leaf's id is its round


@dataclass(frozen=True, slots=True)
class Tree:
    """Binary-tree noise: the running sum of what is released carries the noise of O(log t) tree nodes.

    A node of height h covers 2^h rounds, ending at a multiple of 2^h, and has one Gaussian of the site's std. The
    running sum after m rounds carries one node for each 1 in m's binary form; what is drawn at a round is the change
    of that noise. `restart` begins a new tree every so many rounds; restart=1 is independent noise. `honaker`
    estimates each node from its whole subtree: level j below a node of height h gets weight 2^-j/(2 - 2^-h), and the
    noise variance falls towards half.

    Cost, plain. A node in a running sum ends at k·2^h with k odd: its bit is the lowest of that prefix of m. So round
    m brings in exactly one new node, that of height h(m), the number of 0s at the end of m, and given the past what
    is released tells that node's sum plus its own fresh Gaussian, no more. A record moves the sum over the node's
    2^h(m) rounds by at most 2^h(m), with equality when every round moves alike. The cost is therefore
    Σ_{m=1..T} 4^h(m), which is Σ_h ceil(floor(T/2^h)/2)·4^h, exactly.

    Cost, honaker. Everything released is computed from all completed nodes, right children too, of which a record
    moves one of height h by at most 2^h: at most Σ_h floor(T/2^h)·4^h. It is no less: if all rounds move alike, the
    likelihood ratio of all nodes' values is a function of Σ 2^h·(value), which for a complete subtree of height H is
    2^H·(2 - 2^-H) times its root's estimate, and the roots' estimates are differences of released running sums.

    >>> Tree().cost(rounds=70), Tree(honaker=True).cost(rounds=70), Tree(restart=1).cost(rounds=70)
    (6139.0, 8162.0, 70.0)
    """

    restart: int | None = None
    honaker: bool = False

    def __post_init__(self) -> None:
        if self.restart is not None and (not is_whole(self.restart) or self.restart < 1):
            raise InputError(f"restart is {shown(self.restart)}; expected a whole number of rounds >= 1, or none")
        if not isinstance(self.honaker, bool):
            raise InputError(f"honaker is {shown(self.honaker)}; expected true or false")

    def cost(self, rounds: int) -> float:
        if rounds >= _HEIGHT_STEP:  # the names of nodes would repeat
            raise InputError(f"a tree over {rounds} rounds is too large; expected fewer than {_HEIGHT_STEP}")
        full, rest = divmod(rounds, self.restart or max(rounds, 1))
        return float(full * self._tree_cost(self.restart or rounds) + self._tree_cost(rest))

    def _tree_cost(self, rounds: int) -> int:
        """Of one tree: how many nodes of each height count, times 4^height."""
        every = [rounds >> h for h in range(rounds.bit_length())]
        return sum((n if self.honaker else (n + 1) // 2) * 4**h for h, n in enumerate(every))

    def spread(self, rounds: int) -> float:
        """Mean noise variance of the running sums, relative to that of independent noise of the same std."""
        return sum(self._variance(m) for m in range(1, rounds + 1)) / (rounds * (rounds + 1) / 2)

    def _variance(self, m: int) -> float:
        """Noise variance of the running sum after m rounds: a node for each 1 in a tree's binary form."""

        def of_tree(leaves: int) -> float:
            heights = [h for h in range(leaves.bit_length()) if leaves >> h & 1]
            return sum(1 / (2 - 2.0**-h) if self.honaker else 1.0 for h in heights)

        full, rest = divmod(m, self.restart or m)
        return full * of_tree(self.restart or m) + of_tree(rest)

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        m = round % (self.restart or _HEIGHT_STEP) + 1  # rounds in this tree so far
        top = 31 - jax.lax.clz(m & -m)  # height of the node that this round completes

        def node(height, last) -> jax.Array:
            code = height * _HEIGHT_STEP + round - (m - last)
            return normal(jax.random.fold_in(key, code), shape, dtype)

        draw = _honaker_change if self.honaker else _plain_change
        return draw(node, m, top, jnp.zeros(tuple(shape), dtype))


def tree_levels(rounds: int) -> float:
    """Nodes of a tree that cover one round: its cost if a record took part in one round only."""
    return float(math.ceil(math.log2(rounds)) + 1)


def _plain_change(node: Callable, m, top, zero: jax.Array) -> jax.Array:
    """The completed node enters; the nodes of all lower heights, which m-1 was made of, leave."""

    def add(height, total):
        sign = jnp.where(height == top, 1, -1).astype(zero.dtype)
        return total + sign * node(height, jnp.where(height == top, m, ((m - 1) >> height) << height))

    return jax.lax.fori_loop(jnp.zeros_like(top), top + 1, add, zero)


def _honaker_change(node: Callable, m, top, zero: jax.Array) -> jax.Array:
    """The same with subtree estimates: walk all nodes under the completed one, as a heap (root 1)."""

    def weight(height, depth):
        return 2.0 ** -depth.astype(zero.dtype) / (2 - 2.0 ** -height.astype(zero.dtype))

    def add(i, total):
        depth = 31 - jax.lax.clz(i)
        height = top - depth
        end = (i - (1 << depth) + 1) << height  # last round of the node, counted inside the completed one
        # before this round it lay in a smaller tree, whose height the first 0 among the bits of end-1 tells
        before = 31 - jax.lax.clz((1 << top) - end)
        old = jnp.where(before < 0, 0.0, weight(before, before - height)).astype(zero.dtype)
        return total + (weight(top, depth) - old) * node(height, m - (1 << top) + end)

    return jax.lax.fori_loop(jnp.ones_like(top), 2 << top, add, zero)


# --- wrong accounts, reproduced -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mischarged:
    """`noise`, calibrated as if it cost `charged(rounds)`: only for rerunning numbers with a wrong account.

    The cost stays that of `noise`, whose draws these are, so the epsilon reported is what is really spent: the wrong
    number only decides how large the noise is, never what is said about it. Where `charged` is 0, the
    noise is not calibrated at all: its scale is a std in the data's own units, and epsilon is infinite.
    """

    noise: Mechanism
    charged: Callable[[int], float]

    def cost(self, rounds: int) -> float:
        return self.noise.cost(rounds)

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        return self.noise.draw(key, round, shape, dtype)
