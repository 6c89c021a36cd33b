"""Two passes over memory in C++ that XLA calls, compiled at first use; without a C++ compiler XLA does them as before.

sums.py: the clipped sums of the softmax head, for every client and many thetas at once. moments.py: the server's
momentum with its two inner products. Only the simulator and `scale_by_sofim` use them: a deployed node forms its
sums in doubles (flower/execute.py).
"""

import ctypes
import os
from functools import lru_cache

import jax

from fedsofim.native.build import NotBuilt, library

SWITCH = "FEDSOFIM_NATIVE"
TARGETS = ("fedsofim_softmax_sums", "fedsofim_moments")


def why_not() -> str:
    """Why everything is left to XLA on this machine; empty if it is not."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    if jax.default_backend() != "cpu":
        return f"the backend is {jax.default_backend()}"
    return _registered()


@lru_cache(maxsize=1)
def _registered() -> str:
    try:
        functions = ctypes.CDLL(str(library()))
        for target in TARGETS:
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(functions, target)), platform="cpu")
    except (NotBuilt, OSError, RuntimeError) as problem:  # RuntimeError: XLA does not know this interface any more
        return str(problem)
    return ""
