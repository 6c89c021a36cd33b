"""Ctrl-C while the program is still starting: a line and exit code 130, as at any other time, never a traceback."""

import os
import signal
import sys
from typing import Any

SAID = "interrupted; no file was left half written"


def heed_early() -> None:
    """Until the command line is there to catch it."""
    if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def heed_from_now() -> None:
    """From here on an interrupt is an exception, which `main` catches."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_command() -> bool:
    """Is this process `fedsofim ...`, or `python -m fedsofim ...`?"""
    program = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 (before anything slow is imported)
    as_module = program == "-m" and "fedsofim" in getattr(sys, "orig_argv", [])
    return as_module or program in ("fedsofim", "fedsofim.exe")


def _leave(number: int, frame: Any) -> None:
    print(SAID, file=sys.stderr, flush=True)
    os._exit(130)


heed_early()
