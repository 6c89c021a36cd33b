"""Secrets cut into pieces: enough of them give the secret back, fewer say nothing about it."""

import itertools

import pytest

from fedsofim.deploy.noise import Bits
from fedsofim.deploy.pieces import PIECE, PRIME, SECRET, cut, joined, weights_of
from fedsofim.errors import InputError

SECRETS = (bytes(SECRET), b"\xff" * SECRET, bytes(range(SECRET)))


def numbered(pieces: list[bytes]) -> dict[int, bytes]:
    return dict(enumerate(pieces, 1))


@pytest.mark.parametrize("secret", SECRETS, ids=["zeros", "ones", "any"])
@pytest.mark.parametrize("need, count", [(1, 1), (1, 3), (3, 5), (5, 5)])
def test_any_that_are_enough_give_it_back(secret: bytes, need: int, count: int):
    pieces = numbered(cut(secret, need, count, Bits(b"coins")))
    for some in itertools.combinations(pieces, need):
        assert joined({k: pieces[k] for k in some}, weights_of(some)) == secret
    assert joined(pieces, weights_of(list(pieces))) == secret  # more do no harm


def test_one_too_few_fit_every_secret():
    """With t - 1 pieces, for any secret there is a last piece that makes it the answer: they exclude nothing."""
    pieces = numbered(cut(SECRETS[2], 3, 5, Bits(b"coins")))
    two = {k: pieces[k] for k in (2, 5)}
    weights = weights_of((1, 2, 5))
    for wanted in SECRETS:
        rest = sum(weights[k] * int.from_bytes(piece, "little") for k, piece in two.items())
        last = (int.from_bytes(wanted, "little") - rest) * pow(weights[1], -1, PRIME) % PRIME
        assert joined({1: last.to_bytes(PIECE, "little"), **two}, weights) == wanted
    assert joined(two, weights_of((2, 5))) != SECRETS[2]


def test_pieces_of_one_secret_under_other_coins_have_nothing_in_common():
    first, second = (cut(SECRETS[2], 3, 5, Bits(coins)) for coins in (b"one", b"two"))
    assert not set(first) & set(second)
    assert first == cut(SECRETS[2], 3, 5, Bits(b"one"))  # and the same coins give the same pieces


def test_a_changed_piece_gives_another_secret_or_none():
    pieces = numbered(cut(SECRETS[0], 2, 3, Bits(b"coins")))
    changed = bytes([pieces[1][0] ^ 1]) + pieces[1][1:]
    assert joined({1: changed, 2: pieces[2]}, weights_of((1, 2))) != SECRETS[0]


@pytest.mark.parametrize("secret, need, count", [(b"short", 2, 3), (SECRETS[0], 4, 3), (SECRETS[0], 0, 3)])
def test_senseless_cuts_are_refused(secret: bytes, need: int, count: int):
    with pytest.raises(InputError, match="pieces"):
        cut(secret, need, count, Bits(b"coins"))
