"""What the harmless nodes of a fuzzed program compute: sources, arithmetic, loops, branches, derivatives, dtypes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

F32 = jnp.float32


class Env(NamedTuple):
    """What a node may see: the client's arguments, the bound variable, and in a per-record function the record."""

    door: Any
    first: Any  # the door outside of all scans
    params: jax.Array
    state: jax.Array
    memory: jax.Array
    v: jax.Array
    x: Any = None
    y: Any = None
    kept: Any = None  # where a per-record function may hide a tracer


def vector(value: Any) -> jax.Array:
    """Any array as a float32 vector of length 3, with every one of its numbers in it."""
    flat = jnp.ravel(jnp.asarray(value)).astype(F32)
    short = -len(flat) % 3
    return jnp.sum(jnp.pad(flat, (0, short)).reshape(-1, 3), axis=0)


def broadcast(value: Any) -> jax.Array:
    return jnp.full((3,), jnp.asarray(value).astype(F32))


SOURCES: dict[str, Callable[[Env], jax.Array]] = {
    "params": lambda e: e.params[:3, 0],
    "state": lambda e: e.state,
    "memory": lambda e: e.memory,
    "v": lambda e: e.v,
    "x": lambda e: e.params[:3, 1] if e.x is None else e.x,
    "y": lambda e: broadcast(1.0 if e.y is None else e.y),
    "size": lambda e: broadcast(e.door.size),
    "round": lambda e: broadcast(e.door.round),
    "noise_std": lambda e: broadcast(e.door.facts.noise_std),
    "rounds": lambda e: broadcast(e.door.facts.rounds),
}

UNARY: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "neg": jnp.negative,
    "sort": jnp.sort,
    "argsort": lambda v: jnp.argsort(v).astype(F32),
    "flip": lambda v: v[::-1],
    "gather": lambda v: v[jnp.arange(3) % 2],
    "top_k": lambda v: jax.lax.top_k(v, 3)[0],
    "cumsum": jnp.cumsum,
    "softmax": jax.nn.softmax,
    "normed": lambda v: v / jnp.sqrt(jnp.sum(v * v) + F32(1)),
    "bfloat16": lambda v: v.astype(jnp.bfloat16).astype(F32),
    "float16": lambda v: v.astype(jnp.float16).astype(F32),
    "int": lambda v: jnp.clip(jnp.round(v * F32(8)), -1e6, 1e6).astype(jnp.int32).astype(F32),
    "bits": lambda v: jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(v, jnp.int32), F32),
    "scatter": lambda v: jnp.zeros(3, F32).at[2 * jnp.arange(2)].add(v[:2]),
    "one_hot": lambda v: jax.nn.one_hot(jnp.argmax(v), 3, dtype=F32),
    "stop": jax.lax.stop_gradient,
    "barrier": jax.lax.optimization_barrier,
    "outer": lambda v: jnp.sum(jnp.outer(v, v), axis=0),
    "conv": lambda v: jnp.convolve(v, jnp.stack([v[0], F32(1), F32(0)]), mode="same"),
    "update": lambda v: jax.lax.dynamic_update_slice(v, v[:1], (1,)),
}

BINARY: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "max": jnp.maximum,
    "mix": lambda a, b: F32(0.5) * a + F32(0.25) * b,
    "drop": lambda a, b: a,
    "zero": lambda a, b: a + F32(0) * b,
    "shape": lambda a, b: a + F32(b.shape[0]),
    "dot": lambda a, b: a * jnp.dot(a, b),
    "where": lambda a, b: jnp.where(a > 0, a, b),
    "index": lambda a, b: a[jnp.clip(b.astype(jnp.int32), 0, 2)],
}


def _custom_jvp(f: Callable, v: jax.Array) -> jax.Array:
    g = jax.custom_jvp(f)
    g.defjvp(lambda p, t: (g(*p), F32(2) * t[0]))
    return g(v)


def _custom_vjp(f: Callable, v: jax.Array) -> jax.Array:
    g = jax.custom_vjp(f)
    g.defvjp(lambda a: (g(a), None), lambda _, cotangent: (cotangent,))
    return g(v)


def _while(f: Callable, v: jax.Array, n: int) -> jax.Array:
    return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, f(c[1])), (jnp.int32(0), v))[1]


def _map(f: Callable, v: jax.Array, how: Callable) -> jax.Array:
    return jnp.sum(how(f)(jnp.stack([v, v + F32(1)])), axis=0)


def _linearized(f: Callable, v: jax.Array) -> jax.Array:
    out, pushed = jax.linearize(f, v)
    return out + pushed(jnp.ones(3, F32))


#: name -> given the body as a function, its argument and the node's setting
HIGHER: dict[str, Callable[[Callable, jax.Array, Any], jax.Array]] = {
    "jit": lambda f, v, n: jax.jit(f)(v),
    "remat": lambda f, v, n: jax.checkpoint(f)(v),
    "custom_jvp": lambda f, v, n: _custom_jvp(f, v),
    "custom_vjp": lambda f, v, n: _custom_vjp(f, v),
    "grad": lambda f, v, n: jax.grad(lambda a: jnp.sum(f(a)))(v),
    "linearize": lambda f, v, n: _linearized(f, v),
    "lax_scan": lambda f, v, n: jax.lax.scan(lambda c, _: (f(c), jnp.sum(c)), v, None, length=n)[0],
    "reduce": lambda f, v, n: vector(jax.lax.scan(lambda c, s: (f(c), f(c + s)), v, jnp.arange(n, dtype=F32))[1]),
    "fori": lambda f, v, n: jax.lax.fori_loop(0, n, lambda i, c: f(c), v),
    "while": _while,
    "map": lambda f, v, n: _map(f, v, lambda g: lambda rows: jax.lax.map(g, rows)),
    "vmap": lambda f, v, n: _map(f, v, jax.vmap),
}


def cond(choice: jax.Array, yes: Callable, no: Callable) -> jax.Array:
    return jax.lax.cond(jnp.sum(choice) > 0, yes, no)


def switch(choice: jax.Array, branches: list[Callable]) -> jax.Array:
    return jax.lax.switch(jnp.clip(jnp.sum(choice).astype(jnp.int32), 0, len(branches) - 1), branches)
