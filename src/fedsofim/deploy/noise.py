"""Noise for deployment: exact Gaussian draws on a lattice, from OS entropy.

Floating-point Gaussian noise leaks through its low bits: which doubles a sampler can produce depends on the
value it is added to. Here nothing is added in floating point. With lattice step g = s·2^-32 (s the std):

* every record's clipped vector is rounded to integers in units of g, and integers are summed: exact;
* to each coordinate floor(2^32·z) is added, z a standard normal, so that what leaves is the integer
  n + floor(2^32·z) = floor(n + 2^32·z): a function of the ideal mechanism n·g + s·z, hence as private as it;
* rounding moves a record's vector by at most g·sqrt(d)/2, so the sum's sensitivity is ratio·clip + g·sqrt(d).
  `lattice_std` makes s larger by just that much: the price stays ratio·clip/std as the ledger states it.

z is drawn by Karney's rejection method, which only compares uniform random numbers: no logarithm, no cosine, no
rounding. Uniforms have 64 bits and a tie counts as "not less", so a draw's law is within TIES·2^-64 of the normal
law; the account takes that off delta (`slack`). Bits are SHAKE-256 of a 32-byte secret. A job has one from the
operating system, kept in the node's ledger; each request's follows from it (`request_secret`).
"""

import hashlib
import hmac
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Mischarged, Tree
from fedsofim.deploy.subtree_noise import change, height_of
from fedsofim.errors import Refused

BITS = 32  # of a standard deviation
TIES = 64  # more comparisons than a draw needs on average, by far
_BLOCK = 1 << 16  # bytes made at a time


def fresh_secret() -> bytes:
    """32 bytes from the operating system's generator."""
    return os.urandom(32)


def request_secret(job: bytes, digest: str) -> bytes:
    """The secret that a request's noise is drawn from: the same question of a job has the same noise, for ever.

    A keyed function (HMAC) of the request's digest, so requests share nothing, and whoever has one knows no other.
    """
    return hmac.digest(job, b"fedsofim request 1\n" + digest.encode(), "sha256")


def slack(coordinates: int) -> float:
    """How much delta a release of so many coordinates may lose to ties.

    >>> slack(650) < 3e-15
    True
    """
    return coordinates * TIES * 2.0**-64


@dataclass
class Bits:
    """A stream of uniform 64-bit words: SHAKE-256(secret, label, counter)."""

    secret: bytes
    label: str = ""
    _counter: int = 0
    _kept: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))

    def words(self, count: int) -> np.ndarray:
        while len(self._kept) < count:
            size = max(_BLOCK, 8 * (count - len(self._kept)))
            name = f"{self.label}/{self._counter}/{size}".encode()
            block = hashlib.shake_256(self.secret + name).digest(size + -size % 8)
            self._kept = np.concatenate([self._kept, np.frombuffer(block, np.uint64)])
            self._counter += 1
        out, self._kept = self._kept[:count], self._kept[count:]
        return out


# --- exact standard normals ---------------------------------------------------------------------------------


def lattice_normal(bits: Bits, count: int) -> np.ndarray:
    """floor(2^32·z) for `count` independent standard normals z, as int64.

    |z| = k + x: k >= 0 with probability ∝ exp(-k²/2), then x uniform in [0, 1) kept with probability
    exp(-x(2k + x)/2); whoever is not kept starts anew.
    """
    out = np.empty(count, np.int64)
    todo = np.arange(count)
    while len(todo):
        k = _whole_part(bits, len(todo))
        x = bits.words(len(todo))
        kept = (k >= 0) & _keep_fraction(bits, np.maximum(k, 0), x)
        size = (k[kept] << BITS) + (x[kept] >> np.uint64(64 - BITS)).astype(np.int64)
        negative = (bits.words(len(size)) >> np.uint64(63)).astype(bool)
        out[todo[kept]] = np.where(negative, -size - 1, size)
        todo = todo[~kept]
    return out


def _whole_part(bits: Bits, count: int) -> np.ndarray:
    """k with probability ∝ exp(-k²/2), or -1 for "start anew": k heads of exp(-1/2), then k(k-1) more."""
    k = np.zeros(count, np.int64)
    going = np.arange(count)
    while len(going):
        going = going[_half(bits, len(going))]
        k[going] += 1
    due, trial = np.flatnonzero(k >= 2), 0
    while len(due := due[k[due] * (k[due] - 1) > trial]):
        heads = _half(bits, len(due))
        k[due[~heads]] = -1
        due, trial = due[heads], trial + 1
    return k


def _half(bits: Bits, count: int) -> np.ndarray:
    """Heads with probability exp(-1/2): is the run 1/2 > u1 > u2 > ... of even length?"""
    even = np.ones(count, bool)
    last = np.full(count, 1 << 63, np.uint64)
    running = np.arange(count)
    while len(running):
        u = bits.words(len(running))
        longer = u < last[running]
        running = running[longer]
        last[running] = u[longer]
        even[running] ^= True
    return even


def _keep_fraction(bits: Bits, k: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Heads with probability exp(-x(2k+x)/2): k+1 times a coin of exp(-x·(2k+x)/(2k+2))."""
    keep = np.ones(len(k), bool)
    for trial in range(int(k.max(initial=0)) + 1):
        due = np.flatnonzero(keep & (k >= trial))
        keep[due] = _fraction_coin(bits, k[due], x[due])
    return keep


def _fraction_coin(bits: Bits, k: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Is the run x > u1 > u2 > ... of even length, if each step also needs a coin of (2k+x)/(2k+2)?"""
    even = np.ones(len(k), bool)
    last = x.copy()
    running = np.arange(len(k))
    while len(running):
        u = bits.words(len(running))
        longer = (u < last[running]) & _part(bits, k[running], x[running])
        running = running[longer]
        last[running] = u[longer]
        even[running] ^= True
    return even


def _part(bits: Bits, k: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Heads with probability (2k+x)/(2k+2): one of 2k+2 equal cells, the cell 2k only to its part x."""
    cells = (2 * k + 2).astype(np.uint64)
    cell = _below(bits, cells).astype(np.int64)
    return (cell < 2 * k) | ((cell == 2 * k) & (bits.words(len(k)) < x))


def _below(bits: Bits, cells: np.ndarray) -> np.ndarray:
    """Uniform integers below each of `cells`: words from the incomplete last stretch are drawn again."""
    out = bits.words(len(cells)).copy()
    limit = np.uint64(2**64 - 1) // cells * cells
    while (bad := np.flatnonzero(out >= limit)).size:
        out[bad] = bits.words(len(bad))
    return out % cells


# --- the noise of one release -------------------------------------------------------------------------------


def lattice_std(std: float, sensitivity: float, coordinates: int) -> float:
    """The std that hides `sensitivity` plus the rounding as well as `std` would hide `sensitivity` alone.

    >>> lattice_std(279.0, 20.0, 650) / 279.0 - 1 < 1e-7
    True
    """
    room = sensitivity / std - 1.001 * math.sqrt(coordinates) * 2.0**-BITS  # 0.1%: rounding is done in doubles
    if not room > 0:
        raise Refused(f"noise of std {std:g} on {coordinates} numbers is too coarse for the lattice; lower it")
    return sensitivity / room


def laid_out(mechanism: Mechanism) -> bool:
    """Does noise of one round come back in a later one?"""
    return isinstance(inner(mechanism), Tree)


def cost_of_round(mechanism: Mechanism, round: int, rounds: int) -> float:
    """What round `round` adds to the cost of the rounds before it; over a whole run, mechanism.cost(rounds).

    A run that ends early has paid for what it released. A tree's round pays for the nodes it completes, which for the
    plain tree is one, of height h: 4^h (mechanisms.py).
    """
    mechanism = inner(mechanism)
    if isinstance(mechanism, Diagonal):
        return scale_of_round(mechanism, round) ** -2
    if isinstance(mechanism, Tree):
        return mechanism.cost(round + 1) - mechanism.cost(round)
    return mechanism.cost(rounds) / rounds


def scale_of_round(mechanism: Mechanism, round: int) -> float:
    """Noise std of this round, in units of the site's std."""
    mechanism = inner(mechanism)
    if isinstance(mechanism, Diagonal):
        mean = sum(math.sqrt(left) for left in range(1, mechanism.rounds + 1)) / mechanism.rounds
        return math.sqrt(mean) * (mechanism.rounds - round) ** -0.25
    return mechanism.scale if isinstance(mechanism, Independent) else 1.0


def draw(mechanism: Mechanism, round: int, coordinates: int, secret: bytes, label: str) -> np.ndarray:
    """Lattice noise of a round. `secret` is the request's own, except where noise comes back: then it is the job's."""
    tree = inner(mechanism)
    if not isinstance(tree, Tree):
        return lattice_normal(Bits(secret, label), coordinates)
    if tree.honaker:
        m, first = place_in_tree(tree, round)

        def node(height: int, last: int) -> np.ndarray:
            return lattice_normal(Bits(secret, f"{label}/{height}:{first + last}"), coordinates)

        return change(node, m)
    total = np.zeros(coordinates, np.int64)
    for sign, name in tree_terms(tree, round):
        total += sign * lattice_normal(Bits(secret, f"{label}/{name}"), coordinates)
    return total


def place_in_tree(tree: Tree, round: int) -> tuple[int, int]:
    """(how many rounds of its tree are done with this one, the last round before that tree)."""
    m = round % (tree.restart or round + 1) + 1
    return m, round - m


def draws_of_release(mechanism: Mechanism, rounds: int) -> int:
    """How many nodes a release draws for the first time, at most: what ties may cost is counted for each."""
    tree = inner(mechanism)
    return max(1, rounds.bit_length()) if isinstance(tree, Tree) and tree.honaker else 1


def tree_terms(tree: Mechanism, round: int) -> Sequence[tuple[int, str]]:
    """The nodes whose noise enters (+1) or leaves (-1) at a round, each named by height and last round.

    >>> tree_terms(Tree(), 0), tree_terms(Tree(), 1)
    ([(1, '0:0')], [(1, '1:1'), (-1, '0:0')])
    """
    if not isinstance(tree, Tree) or tree.honaker:
        raise Refused("this noise is not that of a plain tree")
    m, first = place_in_tree(tree, round)
    top = height_of(m)
    lower = [(-1, f"{h}:{first + ((m - 1) >> h << h)}") for h in range(top)]
    return [(1, f"{top}:{round}"), *lower]


def is_plain(mechanism: Mechanism) -> bool:
    """Is it fresh noise of the site's own std, which clients can draw in shares? By its type, not by its own `==`."""
    return type(mechanism) is Independent and mechanism.scale == 1.0


def inner(mechanism: Mechanism) -> Independent | Diagonal | Tree:
    """The noise as it is drawn, whatever a published account says it costs.

    Raises:
        Refused: If it is of a kind that this file does not draw. Exactly these types: a subclass could draw otherwise.
    """
    found = mechanism.noise if type(mechanism) is Mischarged else mechanism
    if type(found) not in (Independent, Diagonal, Tree):
        raise Refused(
            f"noise of the kind {type(found).__name__[:64]} is not drawn at nodes; expected Independent, Diagonal, Tree"
        )
    return found  # type: ignore[return-value]  # one of the three
