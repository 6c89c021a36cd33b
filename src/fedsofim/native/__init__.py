"""Two passes over memory in C++ that XLA calls: shipped with a wheel, or compiled at first use, or left to XLA.

sums.py: the clipped sums of the softmax head, for every client and many thetas at once. momentum.py: the server's
momentum with its two inner products. Only the simulator and `scale_by_sofim` use them: a deployed node forms its
sums in doubles (deploy/execute.py).

`FEDSOFIM_NATIVE` chooses: `0` is XLA, `compile` this machine's compiler, `avx512`, `avx2` or `baseline` a shipped one.
The last differs from the others in its last bits, having no fused multiply-add; every result says who added up.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import jax

from fedsofim.errors import InputError
from fedsofim.native import build
from fedsofim.native.build import NotBuilt
from fedsofim.native.variants import MARCH

SWITCH = "FEDSOFIM_NATIVE"
COMPILED = "compile"
_building = threading.Lock()


def why_not(name: str = "sums") -> str:
    """Why a pass is left to XLA on this machine; empty if it is not."""
    return _here(name).why_not


def made_by(name: str = "sums") -> str:
    """Who does a pass here: `shipped avx512`, `compiled here`, or XLA and why."""
    here = _here(name)
    return f"XLA ({here.why_not})" if here.why_not else here.origin


def prepare() -> None:
    """Let the compiler begin, where it must run at all: there is other work to do until a sum is wanted."""
    _origins(os.environ.get(SWITCH, ""))
    threading.Thread(target=why_not).start()


def target(name: str) -> str:
    """What XLA calls a pass."""
    return f"fedsofim_{name}"


class Here(NamedTuple):
    """Where a pass comes from on this machine, or why it is left to XLA."""

    origin: str = ""
    why_not: str = ""


def _here(name: str) -> Here:
    if os.environ.get(SWITCH) == "0":
        return Here(why_not=f"{SWITCH}=0")
    if jax.default_backend() != "cpu":
        return Here(why_not=f"the backend is {jax.default_backend()}")
    with _building:
        return _registered(name)


@lru_cache(maxsize=2)
def _registered(name: str) -> Here:
    """The first that XLA accepts: a process has one, whatever its environment becomes."""
    reasons = []
    for origin in _origins(os.environ.get(SWITCH, "")):
        try:
            path, called = origin(name)
            _register(name, path)
            return Here(called)
        except (NotBuilt, OSError, RuntimeError) as problem:  # RuntimeError: XLA does not know this interface any more
            reasons.append(str(problem))
    return Here(why_not="; ".join(reasons))


def _origins(choice: str) -> list[Callable[[str], tuple[Path, str]]]:
    """Where to look, in this order."""
    if choice not in ("", "0", COMPILED, *MARCH):
        raise InputError(f"{SWITCH}={choice}: expected 0, {COMPILED} or one of {', '.join(MARCH)}")
    shipped = [partial(_shipped, variant=choice or None)] if choice != COMPILED else []
    return [*shipped, *([_compiled] if choice in ("", COMPILED) else [])]


def _shipped(name: str, variant: str | None) -> tuple[Path, str]:
    path, called = build.shipped(name, variant)
    return path, f"shipped {called}"


def _compiled(name: str) -> tuple[Path, str]:
    return build.library(name), "compiled here"


def _register(name: str, path: Path) -> None:
    function = getattr(ctypes.CDLL(str(path)), target(name))
    jax.ffi.register_ffi_target(target(name), jax.ffi.pycapsule(function), platform="cpu")
