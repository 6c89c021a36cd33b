"""A secret cut into n pieces, any t of which give it back and fewer of which say nothing (Shamir 1979).

Over the integers modulo p = 2^255 - 19: f(x) = secret + c_1·x + ... + c_{t-1}·x^{t-1} with uniform c_i, and piece k is
f(k) for k = 1..n. Given any t - 1 pieces, every secret belongs to exactly one f: all are equally likely.

Why not a package: the coefficients must follow from the request's secret, so that the same question has the same answer
for ever (account.py). The kept package that has this, pycryptodome, draws its own and takes secrets of 16 bytes only.
Python's integers do not take constant time; who could time them sees the node's memory anyway.
"""

from collections.abc import Mapping, Sequence

from fedsofim.deploy.noise import Bits
from fedsofim.errors import InputError

PRIME = 2**255 - 19
SECRET, PIECE = 31, 32  # bytes: every secret is below the prime
_COIN = 6  # words of 64 bits for a coefficient: 129 bits more than the prime has, so it is uniform to 2^-129


def cut(secret: bytes, need: int, count: int, coins: Bits) -> list[bytes]:
    """The pieces 1..count of a secret, of which `need` give it back; the coefficients are drawn from `coins`."""
    if len(secret) != SECRET or not 1 <= need <= count:
        raise InputError(
            f"a secret of {len(secret)} bytes, {need} of {count} pieces; expected {SECRET} and need <= count"
        )
    words = coins.words(_COIN * (need - 1)).tobytes()
    drawn = [words[i : i + 8 * _COIN] for i in range(0, len(words), 8 * _COIN)]
    f = [int.from_bytes(part, "little") % PRIME for part in (secret, *drawn)]
    return [_at(f, k).to_bytes(PIECE, "little") for k in range(1, count + 1)]


def _at(f: Sequence[int], x: int) -> int:
    total = 0
    for c in reversed(f):
        total = (total * x + c) % PRIME
    return total


def weights_of(numbers: Sequence[int]) -> dict[int, int]:
    """λ_k with f(0) = Σ_k λ_k·f(k), for the pieces of these numbers: Π_{j≠k} j/(j - k)."""
    out = {}
    for k in numbers:
        above, below = 1, 1
        for j in numbers:
            if j != k:
                above, below = above * j % PRIME, below * (j - k) % PRIME
        out[k] = above * pow(below, -1, PRIME) % PRIME
    return out


def joined(pieces: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes | None:
    """The secret that these pieces (by number) are of; None if they are of none."""
    total = sum(weights[k] * int.from_bytes(piece, "little") for k, piece in pieces.items()) % PRIME
    return total.to_bytes(PIECE, "little")[:SECRET] if total < 1 << (8 * SECRET) else None
