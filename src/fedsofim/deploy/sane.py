"""Plain data from a stranger: small, shallow, printable, and of numbers with which arithmetic is sound.

A subnormal clip, an infinity in the terms or a control character in a name are never what anybody means; what one of
them does far inside is not for a server to find out. So everything that comes over the wire passes through here.
"""

import json
import re
from typing import Any

from fedsofim.core.accounting import STDS
from fedsofim.core.phase import Phase
from fedsofim.errors import InputError, is_number

LONGEST = 1_000_000  # letters of a message's facts
_DEPTH, _ITEMS, _TEXT = 8, 50_000, 2_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")


def plain(text: str) -> Any:
    """The plain data in a JSON text; an error for anything strange in it."""
    if len(text) > LONGEST:
        raise InputError(f"a message of {len(text)} letters came; expected at most {LONGEST}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("a message came that is not JSON") from error
    check_plain(found)
    return found


def check_plain(value: Any) -> None:
    """An error unless all numbers are sane, all texts printable, and there is not too much of either."""
    left, items = [(value, 0)], 0
    while left:
        item, depth = left.pop()
        items += 1
        if depth > _DEPTH or items > _ITEMS:
            raise InputError("a message came that is larger or deeper than any of ours")
        if isinstance(item, dict):
            left += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list | tuple):
            left += [(part, depth + 1) for part in item]
        elif isinstance(item, str):
            check_text(item)
        elif item is not None and not isinstance(item, bool):
            check_number(item)


def check_number(value: Any) -> None:
    """0, or a size that float32 carries with all its digits."""
    low, high = STDS
    if not is_number(value) or not (value == 0 or low <= abs(value) <= high):
        raise InputError(
            f"a message has the number {str(value)[:40]}; expected a finite number, 0 or of size {low:g} to {high:g}"
        )


def check_text(value: str) -> None:
    if len(value) > _TEXT or not value.isprintable():
        raise InputError(f"a message has the text {value[:40]!r}; expected printable letters, at most {_TEXT}")


def is_name(value: Any) -> bool:
    """May this be the name of a job or of a node? Names go into files, logs and pages.

    >>> is_name("hospital-1"), is_name("a/b"), is_name("a\\x1b[2J")
    (True, False, False)
    """
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def are_settings(found: Any) -> bool:
    """Are these settings as people give them: numbers, short texts, or short lists of those, by name?

    >>> are_settings({"hidden": [64, 64], "lr": 0.1}), are_settings({"hidden": {"a": 1}})
    (True, False)
    """

    def one(value: Any) -> bool:
        return (
            value is None or isinstance(value, bool) or is_number(value) or (isinstance(value, str) and len(value) < 65)
        )

    def several(value: Any) -> bool:
        return isinstance(value, list | tuple) and len(value) <= 100 and all(map(one, value))

    return isinstance(found, dict) and all(isinstance(k, str) and (one(v) or several(v)) for k, v in found.items())


def are_stds(given: Any) -> bool:
    """Noise stds by phase, as a job's terms have them?"""
    lists = isinstance(given, dict) and set(given) <= set(Phase) and all(isinstance(s, list) for s in given.values())
    return lists and all(is_number(v) and 0 <= v <= STDS[1] for s in given.values() for v in s)
