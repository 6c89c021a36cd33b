"""Versions and machine, recorded with every result."""

import importlib.metadata
import os
import platform
from functools import lru_cache
from typing import Any

import jax

from fedsofim import native

PACKAGES = ("fedsofim", "jax", "jaxlib", "numpy", "optax", "scipy")


def versions() -> dict[str, str]:
    """Of Python and of what computes."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in PACKAGES}}


def sums_by() -> dict[str, str]:
    """Who adds up the clipped gradients of a head: last bits depend on it."""
    return {"clipped sums": native.made_by()}


@lru_cache(maxsize=1)
def environment_here() -> dict[str, Any]:
    """With the machine, and who adds up the clipped gradients."""
    return {
        **versions(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "backend": jax.default_backend(),
        "x64": bool(jax.config.read("jax_enable_x64")),
        **sums_by(),
    }
