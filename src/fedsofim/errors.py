"""Errors a user is meant to read: what was wrong, what was expected, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


class InputError(ValueError):
    """The caller gave something senseless; the command line prints the message without a traceback."""


class DataWarning(UserWarning):
    """Something about the data that a user should know and may be right about; the command line prints it as a note.

    Its text quotes no cell, wherever it is printed; `details` may, and are for whoever has the table before them.
    """

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details or text


class Refused(InputError):
    """A client's program would let something leave that is not priced, so it does not run."""


def is_number(value: Any) -> bool:
    """A real number, NumPy's included; True and False are not.

    >>> is_number(1), is_number(1.5), is_number("1"), is_number(True)
    (True, True, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """A whole number, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def expect_whole(name: str, value: Any, least: int) -> None:
    """An error unless the value is a whole number of at least so much."""
    if not is_whole(value) or value < least:
        raise InputError(f"{name} is {value!r}; expected a whole number, at least {least}")


def one_of(kind: str, value: Any, known: Iterable[str]) -> Any:
    """The value if it is known, else an error."""
    if value not in (names := list(known)):
        raise unknown(kind, value, names)
    return value


def unknown(kind: str, name: Any, known: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does, however it is capitalised.

    >>> unknown("method", "fedsofin", ["fedgd", "fedsofim"])
    InputError("there is no method 'fedsofin'; did you mean 'fedsofim'? known: fedgd, fedsofim")
    """
    names = sorted(known)
    lower = {known.lower(): known for known in names}
    near = get_close_matches(str(name).lower(), lower, n=1, cutoff=0.4)
    hint = f"; did you mean '{lower[near[0]]}'?" if near else ";"
    return InputError(f"there is no {kind} '{name}'{hint} known: {', '.join(names)}")
