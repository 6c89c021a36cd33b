"""What a message advises, fitted to the command that prints it: no option is named that the command lacks.

Messages of the library name what a Python call takes, and the command line's option in parentheses:
drop=['a'] (--drop a).
"""

import re
import sys
from typing import Any

_ADVICE = re.compile(r"\s?\((--[a-z][\w-]*)[^()]*\)")


def fitting(message: str, options: set[str]) -> str:
    """The message without parentheses about options that are not there.

    >>> fitting("drop it with drop=['a'] (--drop a)", {"--label"})
    "drop it with drop=['a']"
    """
    return _ADVICE.sub(lambda found: found[0] if found[1] in options else "", message)


def options_of(program: Any, arguments: list[str] | None = None) -> set[str]:
    """The options of the command that is being run."""
    command = program
    for word in sys.argv[1:] if arguments is None else arguments:
        inner = getattr(command, "commands", {})
        if word not in inner:
            break
        command = inner[word]
    return {name for parameter in command.params for name in parameter.opts}
