"""Two passes over memory in C++ that XLA calls, compiled at first use; without a C++ compiler XLA does them as before.

sums.py: the clipped sums of the softmax head, for every client and many thetas at once. momentum.py: the server's
momentum with its two inner products. Only the simulator and `scale_by_sofim` use them: a deployed node forms its
sums in doubles (deploy/execute.py).
"""

import ctypes
import os
import threading
from functools import lru_cache

import jax

from fedsofim.native.build import NotBuilt, library

SWITCH = "FEDSOFIM_NATIVE"
_building = threading.Lock()


def why_not(name: str = "sums") -> str:
    """Why a pass is left to XLA on this machine; empty if it is not."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    if jax.default_backend() != "cpu":
        return f"the backend is {jax.default_backend()}"
    with _building:
        return _registered(name)


def prepare() -> None:
    """Let the compiler begin, where it must run at all: there is other work to do until a sum is wanted."""
    threading.Thread(target=why_not).start()


def target(name: str) -> str:
    """What XLA calls a pass."""
    return f"fedsofim_{name}"


@lru_cache(maxsize=2)
def _registered(name: str) -> str:
    try:
        function = getattr(ctypes.CDLL(str(library(name))), target(name))
        jax.ffi.register_ffi_target(target(name), jax.ffi.pycapsule(function), platform="cpu")
    except (NotBuilt, OSError, RuntimeError) as problem:  # RuntimeError: XLA does not know this interface any more
        return str(problem)
    return ""
