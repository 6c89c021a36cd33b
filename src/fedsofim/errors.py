"""Errors a user is meant to read: what was wrong, what was expected, what to do."""

import traceback
from collections.abc import Callable, Iterable, Sized
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any


class InputError(ValueError):
    """The caller gave something senseless; the command line prints the message without a traceback."""


class DataWarning(UserWarning):
    """Something about the data that a user should know and may be right about; the command line prints it as a note.

    Neither its text nor its details quote a cell; `details` say where in a table, for whoever has it before them.
    """

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details or text


class Refused(InputError):
    """A client's program would let something leave that is not priced, so it does not run."""


def shown(value: Any) -> str:
    """Describe a value in a message: a setting as it is, an object by its type and shape.

    A message may end up in a log or in a mail, and an object may hold records. So only what people type is quoted:
    numbers, True and False, None, and short text of one line.

    Args:
        value: What somebody gave.

    Returns:
        The value as Python writes it, or its type and shape.

    Example:
        >>> shown(0.5), shown("fedgd"), shown([1.5, 2.5]), shown({"age": 61})
        ('0.5', "'fedgd'", 'a list of 2', 'a dict of 1')
    """
    given: Any = value
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int | float):  # not by the own `__repr__` of a subclass, which may print anything
        return _number(value)
    if isinstance(value, Real) and type(value).__module__ == "numpy":
        return str(value)
    if isinstance(value, str):
        plain = str.__str__(value)
        return repr(plain) if len(plain) <= _SHORT and plain.isprintable() else f"a text of {len(plain)} characters"
    if isinstance(value, type):
        return f"the class {_name_of(value)}"
    if callable(value) and isinstance(_part(lambda: value.__name__), str):
        return f"the function {_name_of(value)}"
    kind = _name_of(type(value))
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    shape = _part(lambda: tuple(map(int, given.shape)) if all(map(is_whole, given.shape)) else None)
    if isinstance(shape, tuple):
        return f"{article} {kind} of shape {shape}"
    size = _part(lambda: len(value) if isinstance(value, Sized) else None)
    return f"{article} {kind}" if size is None else f"{article} {kind} of {size}"


def _part(look: Callable[[], Any]) -> Any:
    """What an object says of itself, or None where it raises: its error may quote a record."""
    try:
        return look()
    except Exception:  # whatever a class of somebody's own raises
        return None


def _number(value: float) -> str:
    """A number as Python writes it; Python does not write out very long ones."""
    if isinstance(value, float):
        return float.__repr__(value)
    return int.__repr__(value) if abs(int(value)) < 10**_SHORT else "a whole number of very many digits"


def _name_of(value: Any) -> str:
    """A class's or function's name, if it is one that Python code can have; a column or a cell is none."""
    name = value.__name__
    fits = isinstance(name, str) and len(name) <= _SHORT and (name.isidentifier() or name == "<lambda>")
    return str.__str__(name) if fits else "object" if isinstance(value, type) else "without a name"


_SHORT = 80  # characters of a name, a path's end or a setting; a cell of a table may be longer, or not


def raised(error: Exception) -> str:
    """Describe an error that somebody else's function raised: its kind, its first line, and where it was raised.

    Args:
        error: What was raised, by a function that was given no records.

    Returns:
        Text such as `TypeError: unsupported operand (mine.py, line 12)`.
    """
    text = next(iter(str(error).strip().splitlines()), "")
    own = [at for at in traceback.extract_tb(error.__traceback__) if not _from_a_library(at.filename)]
    where = f" ({PurePath(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}{': ' if text else ''}{text[:200]}{where}"


def _from_a_library(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith(str(PurePath(__file__).parent))


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
        raise InputError(f"{name} is {shown(value)}; expected a whole number, at least {least}")


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
    near = get_close_matches(name.lower() if isinstance(name, str) else "", lower, n=1, cutoff=0.4)
    hint = f"; did you mean '{lower[near[0]]}'?" if near else ";"
    return InputError(f"there is no {kind} {shown(name)}{hint} known: {', '.join(names)}")
