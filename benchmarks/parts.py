"""What a round is compared with and made of: its two products, the parts of the fused pass, noise and step."""

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from clock import Turn, timed
from ours import fused_pass
from problem import BETA, LR, RHO, initial_theta

from fedsofim import native
from fedsofim.data.partition import Split
from fedsofim.methods._sofim import sofim
from fedsofim.native import build

PRODUCTS_NUMPY, PRODUCTS_JAX = "X·θ and XᵀR, NumPy", "X·θ and XᵀR, JAX"
WIDE = "as many multiplications in one wide product, NumPy"
PASS, NOISE, STEP = "the clipped sums of all clients", "noise", "server step"
MULTIPLICATIONS = "multiplications"  # as kernel_parts.cc calls them
_SIDE = 1024  # of the wide product


def products(data: Split) -> dict[str, Turn]:
    """The two matrix products of a round at its shapes, in both libraries."""
    x, theta = data.dataset.x_train, initial_theta(data)[:-1]
    r = np.random.default_rng(2).standard_normal((len(x), theta.shape[1]), np.float32)
    on_device = [jnp.asarray(a) for a in (x, theta, r)]
    both = jax.jit(lambda x, theta, r: (x @ theta, r.T @ x))
    return {
        PRODUCTS_NUMPY: timed(lambda: (x @ theta, r.T @ x)),
        PRODUCTS_JAX: timed(lambda: jax.block_until_ready(both(*on_device))),
    }


def wide(data: Split) -> dict[str, Turn]:
    """A product of square matrices: per multiplication, the fastest that the machine's libraries get.

    Its seconds are scaled to the number of multiplications that a round's two products make.
    """
    a, b = np.random.default_rng(3).standard_normal((2, _SIDE, _SIDE), np.float32)
    ours = 2 * data.dataset.x_train.size * data.dataset.classes
    turn = timed(lambda: a @ b)
    return {WIDE: lambda repeats: [t * ours / _SIDE**3 for t in turn(repeats)]}


def parts(data: Split) -> dict[str, Turn]:
    """The steps of a round one by one."""
    theta, key = jnp.asarray(initial_theta(data)), jax.random.key(0)
    optimizer = sofim(LR, rho=RHO, beta=BETA)
    state = optimizer.init(theta)
    return {
        PASS: timed(fused_pass(data)),
        NOISE: _part(lambda k: jax.random.normal(k, theta.shape), key),
        STEP: _part(lambda g, s, p: optimizer.update(g, s, p), theta, state, theta),
    }


def noise_of(data: Split) -> Turn:
    """A draw for every client, as a round with one theta per client makes it."""
    keys = jax.random.split(jax.random.key(0), len(data.sizes))
    size = initial_theta(data).size
    return _part(jax.vmap(lambda key: jax.random.normal(key, (size,))), keys)


def _part(function: Callable, *arguments: object) -> Turn:
    compiled = jax.jit(function)
    return timed(lambda: jax.block_until_ready(compiled(*arguments)))


def kernel_parts() -> tuple[float, dict[str, float]]:
    """The seconds in which one thread makes the multiplications of a round alone, and the parts of the fused pass
    over them; none without it."""
    if native.why_not():
        return 0.0, {}
    folders = [str(Path(build.__file__).parent), jax.ffi.include_dir()]
    flags = [*(f for f in build.FLAGS if f not in ("-shared", "-fPIC")), "-march=native"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "kernel_parts"
        source = Path(__file__).parent / "kernel_parts.cc"
        include = [word for f in folders for word in ("-I", f)]
        subprocess.run([build.compiler(), *flags, *include, "-o", str(program), str(source)], check=True)
        seconds = json.loads(subprocess.run([str(program)], stdout=subprocess.PIPE, check=True).stdout)
    unit = seconds.pop(MULTIPLICATIONS)
    return unit, {name: v / unit for name, v in seconds.items()} | {"all of these": sum(seconds.values()) / unit}
