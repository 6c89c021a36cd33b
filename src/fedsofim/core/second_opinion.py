"""A second opinion on an audited program: run it, without records, and see whether anything leaks.

The walk (walk.py) reasons about a program; this runs it, mapped over clients as the simulator will, with every release
replaced by constants. Where releases do not change, nothing that leaves may change:
- on other random records, and under another noise key, uploads and memory must be the same to the last bit;
- the keys that reach releases, over clients, steps and rounds, must all be different.
And every per-record function is run by itself, mapped over made-up records (lanes.py): they must not meet.
A hole in the one is caught by the other. No record is needed: shapes are enough, and since an honest program touches
records in releases only, the compiler drops the random ones before they are made. It costs one small compilation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr

from fedsofim.core.arithmetic import check_arithmetic
from fedsofim.core.audit import Inputs, Program, output_names
from fedsofim.core.interpreter import bind, evaluate
from fedsofim.core.jaxprs import open_jaxpr, releases_in
from fedsofim.core.keys import key_of_words
from fedsofim.core.lanes import check_lanes
from fedsofim.core.records import Records
from fedsofim.core.release import dp_release, operands
from fedsofim.core.stand_in_keys import keys_from
from fedsofim.errors import Refused

SIZES = (2.0, 1e6, -1e-6, np.inf, np.nan)  # of made-up records: a leak may show for large, small or senseless ones only
CLIENTS, ROUNDS = 3, 64  # at most: of which the keys are compared; every step of every loop is

# it runs a moment: compiling is what it costs
_QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def confirm(program: Program, inputs: Inputs, rounds: int) -> None:
    """Refused if running the program shows a leak that the audit did not. `inputs` are shapes: no record is read."""
    check_arithmetic()
    look = _compiled(program, inputs)
    first = look(rounds - 1, 1, 1.0)
    others = [("key", look(rounds - 1, 2, 1.0)), *(("records", look(rounds - 1, 1, size)) for size in SIZES)]
    for what, other in others:
        for name, before, after in zip(output_names(program.outputs), first.outputs, other.outputs, strict=True):
            if before.tobytes() != after.tobytes():
                raise Refused(f"{name} changed with the {what} while every release stayed the same: it leaks")
    times = np.unique(np.linspace(0, rounds - 1, min(rounds, ROUNDS)).astype(int))
    check_keys([words for t in times for words in look(int(t), 1, 1.0).keys])
    check_lanes(program.sites, _QUICKLY)


def check_keys(keys: Sequence[np.ndarray]) -> None:
    """Refused if two of the keys that reached releases are equal."""
    rows = np.concatenate([k.reshape(-1, k.shape[-1]) for k in keys]) if keys else np.zeros((0, 1))
    if len(np.unique(rows, axis=0)) != len(rows):
        raise Refused(
            "two releases would draw the same noise: a key reached a release twice, in another client, step or round; "
            "call the door anew for every release"
        )


class Seen(NamedTuple):
    """What running one round of a program without records showed."""

    outputs: list  # by client
    keys: list  # of every release, with the round that is folded into it: (clients, steps..., words)


def _compiled(program: Program, inputs: Inputs) -> Callable[[int, int, float], Seen]:
    """look(round, seed of the key, size of the records): a round of the program, mapped over clients as simulated."""
    given = stand_ins(inputs)

    def look(given: Inputs, keys: jax.Array, size: jax.Array, t: jax.Array) -> Seen:
        shared = replace(given, records=_records(inputs.records, size), round=t)

        def client(index: jax.Array, key: jax.Array) -> Seen:
            seen: list = []
            flat = jax.tree.leaves(replace(shared, key=key, index=index))
            return Seen(_run(program.jaxpr.jaxpr, program.jaxpr.consts, flat, seen), seen)

        return jax.vmap(client)(jnp.arange(CLIENTS, dtype=jnp.int32), keys)

    traced = jax.jit(look).trace(given, _client_keys(0), np.float32(0), np.int32(0))
    if traced.jaxpr.effects:
        raise Refused(f"the program does more than compute ({traced.jaxpr.effects}); remove prints and callbacks")
    run = traced.lower().compile(compiler_options=_QUICKLY)
    return lambda t, key, size: jax.device_get(run(given, _client_keys(key), np.float32(size), np.int32(t)))


def _client_keys(seed: int) -> jax.Array:
    """A key for each client. Which ones does not matter, so none is drawn."""
    return keys_from([(seed, index) for index in range(CLIENTS)])


def _run(jaxpr: Jaxpr, consts: Sequence, args: Sequence, keys: list) -> list:
    """An opened program, equation by equation; every release gives constants and leaves its key in `keys`."""

    def step(eqn: Any, values: list) -> Sequence:
        if eqn.primitive is dp_release:
            op = operands(values)
            keys.append(_words(op.key, op.round))
            return [constants(v.aval) for v in eqn.outvars]
        if eqn.primitive.name == "scan" and releases_in(eqn.params["jaxpr"]):
            return _scan(eqn.params, values, keys)
        return bind(eqn, values)

    return evaluate(jaxpr, consts, args, step)


def _scan(p: dict, values: list, keys: list) -> list:
    """A scan with releases in it: the keys of all its steps come out stacked."""
    start = p["num_consts"] + p["num_carry"]
    consts, carry, xs = values[: p["num_consts"]], values[p["num_consts"] : start], values[start:]

    def body(carry: list, x: list) -> tuple[list, tuple[list, list]]:
        inside: list = []
        out = _run(*open_jaxpr(p["jaxpr"]), [*consts, *carry, *x], inside)
        return out[: p["num_carry"]], (out[p["num_carry"] :], inside)

    carry, (ys, inside) = jax.lax.scan(body, carry, xs, length=p["length"], reverse=p["reverse"])
    keys.extend(inside)
    return [*carry, *ys]


def _words(key: jax.Array, round: Any) -> jax.Array:
    """A key and the number that the release folds into it, as words to compare."""
    return jnp.append(jax.random.key_data(key), jnp.asarray(round).astype(jnp.uint32))


# --- what stands in for what is not there -------------------------------------------------------------------


def constants(aval: Any) -> np.ndarray:
    """Numbers in place of a release, or of a public input: always the same."""
    if not jnp.issubdtype(aval.dtype, jnp.inexact):
        return np.ones(aval.shape, aval.dtype)
    return np.resize(_PATTERN, aval.shape).astype(aval.dtype)


_PATTERN = np.random.default_rng(0).uniform(0.1, 1.0, 97)


def stand_ins(inputs: Inputs) -> Inputs:
    """Public inputs of the right form, without records: those are made where they are used."""

    def one(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return key_of_words(jnp.ones((*leaf.shape, 2), jnp.uint32))
        return constants(leaf)

    return jax.tree.map(one, replace(inputs, records=(), key=()))


def _records(shapes: Records, size: jax.Array) -> Records:
    """Records that look random, about so large, other ones for each size; owners are public, and always the same."""

    def pattern(a: Any) -> jax.Array:
        return jnp.sin(size * (1.0 + jnp.arange(math.prod(a.shape), dtype=jnp.float32))).reshape(a.shape)

    return Records(
        x=(size * (1.5 + pattern(shapes.x))).astype(shapes.x.dtype),
        y=(pattern(shapes.y) > 0).astype(shapes.y.dtype),
        weight=(pattern(shapes.weight) > 0).astype(shapes.weight.dtype),
        owner=jnp.zeros(shapes.owner.shape, shapes.owner.dtype),
    )
