"""What the harmful nodes of a fuzzed program do: raw sources, callbacks, batching rules that lie, forged doors."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from fedsofim.core.mechanisms import Independent
from fedsofim.core.queries import PerRecord, SoftmaxGradient
from fedsofim.core.release import dp_release
from fedsofim.core.site import Site
from fuzz_vectors import F32, Env, broadcast, vector

CAPTURED = np.array([1.5, -0.5, 2.0], np.float32)  # an array from outside: could hold records
DEVICE = jnp.asarray(CAPTURED)

#: What callbacks were shown. A program that shows anything that depends on records leaks through it.
SEEN: list[np.ndarray] = []


def _raw(env: Env) -> Any:
    return env.first._records


RAW: dict[str, Callable[[Env], jax.Array]] = {
    "raw_mean": lambda e: jnp.mean(_raw(e).x, axis=(0, 1)),
    "raw_first": lambda e: _raw(e).x[0, 0],
    "raw_sorted": lambda e: jnp.sort(_raw(e).x.reshape(-1))[:3],
    "raw_labels": lambda e: vector(jnp.sum(_raw(e).y == 1)),
    "raw_sign": lambda e: broadcast(jnp.sum(_raw(e).x) > 0),
    "raw_chosen": lambda e: e.params[jnp.clip(_raw(e).y[0, :3], 0, 1), 0],
    "key_normal": lambda e: jax.random.normal(e.first._key, (3,), F32),
    "key_noise": lambda e: jax.random.normal(jax.random.fold_in(e.first._key, 0), (3,), F32),
    "key_bits": lambda e: vector(jax.random.key_data(e.first._key)[:3]),
    "captured": lambda e: jnp.asarray(CAPTURED),
    "captured_device": lambda e: DEVICE * F32(1),
    "kept": lambda e: e.kept[0] if e.kept else e.v,  # what a per-record function hid, if one did
}


def _log(value: Any) -> None:
    SEEN.append(np.asarray(value).copy())


def _show(value: Any) -> np.ndarray:
    _log(value)
    return np.asarray(value)


def _shown(v: jax.Array, how: Callable) -> jax.Array:
    how(v)
    return v


_SHAPE = jax.ShapeDtypeStruct((3,), jnp.float32)
EFFECTS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "print": lambda v: _shown(v, lambda a: jax.debug.print("value {}", a)),
    "debug_callback": lambda v: _shown(v, lambda a: jax.debug.callback(_log, a)),
    "pure_callback": lambda v: jax.pure_callback(_show, _SHAPE, v, vmap_method="sequential"),
    "pure_callback_unread": lambda v: _shown(
        v, lambda a: jax.pure_callback(_show, _SHAPE, a, vmap_method="expand_dims")
    ),
    "io_callback": lambda v: io_callback(_show, _SHAPE, v),
}

# --- batching rules: what is read is not what runs under vmap ----------------------------------------------------


def vmap_honest(v: jax.Array) -> jax.Array:
    f = custom_vmap(jnp.tanh)
    f.def_vmap(lambda size, batched, a: (jnp.tanh(a), batched[0]))
    return f(v)


def vmap_mixes(v: jax.Array) -> jax.Array:
    """Under vmap every row becomes the mean of all: other records, or other clients."""
    f = custom_vmap(lambda a: a * F32(1))
    f.def_vmap(lambda size, batched, a: (jnp.mean(a, axis=0, keepdims=True) + F32(0) * a, batched[0]))
    return f(v)


def vmap_swaps(v: jax.Array, other: jax.Array) -> jax.Array:
    """Read alone it is `v`; under vmap it is the other value."""
    f = custom_vmap(lambda a, b: a * F32(1))
    f.def_vmap(lambda size, batched, a, b: (F32(0) * a + b, any(batched)))
    return f(v, other)


# --- forged doors ----------------------------------------------------------------------------------------------


def _weights(door: Any, factor: float) -> Any:
    records = door._records
    return replace(door, _records=records._replace(weight=records.weight * F32(factor)))


def _first_for_all(door: Any) -> Any:
    records = door._records
    return replace(door, _records=records._replace(x=jnp.zeros_like(records.x) + records.x[0, 0]))


def _all_mine(door: Any) -> Any:
    records = door._records
    return replace(door, _records=records._replace(owner=jnp.zeros_like(records.owner) + door._index))


class UnderstatedGradient(SoftmaxGradient):
    """A subclass that says it moves less than it does; its sums are the same."""

    __slots__ = ()
    ratio = 0.1


class UnderstatedSum(PerRecord):
    __slots__ = ()
    ratio = 0.1


def _ratio(door: Any) -> Any:
    return replace(door, _model=door._model._replace(gradient=UnderstatedGradient()))


def _sites(door: Any, count: int) -> Any:
    return replace(door, _sites=[None] * count)


FORGERIES: dict[str, Callable[[Any], Any]] = {
    "round=0": lambda d: replace(d, round=jnp.int32(0)),
    "round=round//2": lambda d: replace(d, round=d.round // 2),
    "_stds=0": lambda d: replace(d, _stds=d._stds * F32(0)),
    "_stds/10": lambda d: replace(d, _stds=d._stds / F32(10)),
    "_stds[::-1]": lambda d: replace(d, _stds=d._stds[::-1]),
    "_key=0": lambda d: replace(d, _key=jax.random.key(0)),
    "_key=fold(round)": lambda d: replace(d, _key=jax.random.fold_in(d._key, d.round)),
    "_index=0": lambda d: replace(d, _index=jnp.int32(0)),
    "weight*9": lambda d: _weights(d, 9.0),
    "weight*0.5": lambda d: _weights(d, 0.5),
    "x=first": _first_for_all,
    "owner=mine": _all_mine,
    "_sites=[]": lambda d: _sites(d, 0),
    "_sites=[1]": lambda d: _sites(d, 1),
    "ratio=0.1": _ratio,
    "size=1": lambda d: replace(d, size=F32(1)),
    "clip=0.1": lambda d: replace(d, facts=d.facts._replace(clip=0.1)),
}


def forged(door: Any, how: str) -> Any:
    """The door with a part exchanged; itself where this version has no such part."""
    with suppress(TypeError, AttributeError):
        return FORGERIES[how](door)
    return door


BINDINGS = ("ratio=0.1", "clip=9", "number=0", "number=40", "scale=0.01", "stds/1000", "round+1", "honest")


def bind_by_hand(door: Any, fn: Callable, how: str) -> jax.Array:
    """A dp_release bound without the door, its site or operands as one pleases."""
    records = door._records
    record = jax.ShapeDtypeStruct(records.x.shape[2:], records.x.dtype), jax.ShapeDtypeStruct((), records.y.dtype)
    query, consts, _ = PerRecord.trace(fn, *record)
    number = {"number=0": 0, "number=40": 40}.get(how, len(door._sites))
    if how == "ratio=0.1":
        query = UnderstatedSum(query.jaxpr, query.shapes)
    noise = Independent(0.01) if how == "scale=0.01" else Independent(1.0)
    site = Site(
        number=number, label="by hand", query=query, clip=9.0 if how == "clip=9" else 1.0, noise=noise, sample=1.0,
        share=None,
    )  # fmt: skip
    door._sites.append(None)
    key = jax.random.fold_in(door._key, len(door._sites) - 1)
    stds = door._stds * F32(1e-3) if how == "stds/1000" else door._stds
    turn = door.round + 1 if how == "round+1" else door.round
    return vector(dp_release.bind(key, turn, door._index, stds, *records, *consts, site=site)[0])
