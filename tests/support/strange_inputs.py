"""Inputs that nobody should send, as mutations of right ones: bytes changed, cut, doubled; plain values exchanged."""

import os
import random
from collections.abc import Callable
from typing import Any

from fedsofim.errors import InputError

MANY = int(os.environ.get("FEDSOFIM_FUZZ", "2000"))
STRANGE: list[Any] = [
    None, True, -1, 0, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf"), "", "x" * 5000, "\x00", "\u202e",
    "../x", [], [[]], {}, {"a": {}}, [1] * 100, "1", b"".hex(),
]  # fmt: skip


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The same with a few bytes changed, a part cut out, or a part doubled."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(out) + 1)
        match dice.randrange(4):
            case 0 if out:
                out[min(at, len(out) - 1)] = dice.randrange(256)
            case 1:
                del out[at : at + dice.randrange(1, 64)]
            case 2:
                out[at:at] = out[at : at + dice.randrange(1, 64)]
            case _:
                out[at:at] = dice.choice((b"\x00", b"[" * 2000, b"1e999", b"NaN", b'"', b"\xff\xfe", b"{", b"-"))
    return bytes(out)


def exchanged(value: Any, dice: random.Random) -> Any:
    """The same plain data with one part exchanged for something strange, or dropped, or added."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        out = dict(value)
        key = dice.choice(list(out))
        match dice.randrange(5):
            case 0:
                del out[key]
            case 1:
                out[str(dice.choice(STRANGE))[:50]] = dice.choice(STRANGE)
            case _:
                out[key] = exchanged(out[key], dice)
        return out
    if isinstance(value, list) and value and dice.random() < 0.8:
        out = list(value)
        at = dice.randrange(len(out))
        out[at] = exchanged(out[at], dice)
        return out
    return dice.choice(STRANGE)


def no_exception_escapes(act: Callable[[int], Any], count: int) -> None:
    refused = 0
    for number in range(count):
        try:
            act(number)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)[:300] or "TOML" in str(error)
    assert refused > count / 4  # most of it makes no sense, and is said so
