"""The one primitive that turns records into something that may leave: a clipped sum plus Gaussian noise.

`dp_release` stands in a client's program wherever the door was asked (door.py). The audit finds it there and prices it;
here is what it computes, for one client, for all clients at once, and for many settings of a sweep.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from fedsofim.core.clipped_sums import client_sums, fused, noisy
from fedsofim.core.clipping import guarded
from fedsofim.core.normals import coins
from fedsofim.core.records import Records
from fedsofim.core.site import Site
from fedsofim.errors import Refused

_SAMPLING = 2**31 - 1  # folded into a call's key for sampling; rounds, folded in for noise, never get there
_SETTINGS_AT_ONCE = 4  # of a sweep


class Operands(NamedTuple):
    """What flows into one release at run time."""

    key: Any  # of this call alone
    round: Any
    index: Any  # which client
    stds: Any  # of the noise on the sum of every site, from the calibration
    records: Records
    consts: Sequence  # what the per-record function closes over, e.g. theta


dp_release = Primitive("dp_release")
dp_release.multiple_results = True
_RECORD_FIELDS = len(Records._fields)


_auditing: ContextVar[bool] = ContextVar("auditing", default=False)


@contextmanager
def auditing() -> Iterator[None]:
    """While a method's program is read, a vmap around a release is the method's own, and refused."""
    token = _auditing.set(True)
    try:
        yield
    finally:
        _auditing.reset(token)


def operands(args: Sequence) -> Operands:
    """The flat operands of a dp_release, named."""
    end = 4 + _RECORD_FIELDS
    key, round, index, stds = args[:4]
    records, consts = Records(*args[4:end]), list(args[end:])
    return Operands(key=key, round=round, index=index, stds=stds, records=records, consts=consts)


def _one_client(*args, site: Site) -> list[jax.Array]:
    """The release of the client `index`: its clipped sum plus its noise."""
    op = operands(args)
    mine = op.records._replace(
        weight=op.records.weight * (op.records.owner == op.index)[:, None].astype(op.records.weight.dtype),
        owner=jnp.zeros_like(op.records.owner),
    )
    drawn = _sampled(site, jnp.expand_dims(op.key, 0), op.round, mine)
    how = {"clip": _clip(site), "rate": site.sample, "weights": mine.weight}
    sums = client_sums(site.query, op.consts, [False] * len(op.consts), drawn, 1, **how)
    return noisy(site.noise, op.key, op.round, op.stds[site.number], jax.tree.map(lambda a: a[0], sums))


def _all_clients(args: Sequence, dims: Sequence, *, site: Site) -> tuple[list[jax.Array], list[int]]:
    """The releases of every client at once: the simulator's vmap over clients. A method's own vmap is refused."""
    if _auditing.get():
        raise Refused(
            f"the release '{site.label}' stands inside a vmap, which would release many sums with one noise; "
            "use door.scan, or return all leaves from one function so that they are clipped and charged together"
        )
    op, dim = operands(args), operands(dims)
    if dim.index is None:  # a sweep: the same audited program under other settings, each with its own key
        swept = _swept(args, dims, site)
        return swept, [0] * len(swept)
    clients = op.index.shape[dim.index]
    batched = [d is not None for d in dim.consts]
    consts = [c if d is None else jnp.moveaxis(c, d, 0) for c, d in zip(op.consts, dim.consts, strict=True)]
    keys = op.key if dim.key is not None else jax.random.split(op.key, clients)
    records = _sampled(site, keys, op.round, op.records)
    how = {"clip": _clip(site), "rate": site.sample, "weights": op.records.weight}
    sums = client_sums(site.query, consts, batched, records, clients, **how)
    stds = op.stds if dim.stds is None else jnp.moveaxis(op.stds, dim.stds, 0)  # of all, or a row for each client
    std = jnp.broadcast_to(stds[..., site.number], (clients,))
    out = jax.vmap(lambda key, s, *sums: noisy(site.noise, key, op.round, s, sums))(keys, std, *sums)
    return out, [0] * len(out)


def _swept(args: Sequence, dims: Sequence, site: Site) -> list[jax.Array]:
    """The release under many settings; XLA takes a few side by side, wide products whose results stay in cache."""
    op = operands(args)
    varying = [i for i, d in enumerate(dims) if d is not None]

    def one(values: list) -> list[jax.Array]:
        given = dict(zip(varying, values, strict=True))
        return _one_client(*[given.get(i, a) for i, a in enumerate(args)], site=site)

    values = [jnp.moveaxis(args[i], dims[i], 0) for i in varying]
    if fused(site.query, op.consts, op.records):
        return jax.vmap(one)(values)
    return jax.lax.map(one, values, batch_size=_SETTINGS_AT_ONCE)


def _clip(site: Site) -> float:
    """What vectors are clipped to before the guard. A drawn record moves a sum by one clip, not by two, next to which
    the same roundings count twice: so where records are drawn the guard is there twice (docs/clipping.md)."""
    return site.clip if site.sample == 1 else guarded(site.clip)


def _sampled(site: Site, keys, round, records: Records) -> Records:
    """Keep each record with probability `sample`, drawn afresh for this release by its own client.

    By its weight, in its place. Which sums compute drawn records only, and how nobody's vector then depends on who else
    was drawn: docs/clipping.md.
    """
    if site.sample == 1:
        return records
    blocks = jnp.arange(len(records.owner))

    def kept(owner, block):
        key = jax.random.fold_in(jax.random.fold_in(keys[owner], _SAMPLING), round)
        return coins(jax.random.fold_in(key, block), site.sample, records.weight.shape[1:])

    mask = jax.vmap(kept)(records.owner, blocks)
    return records._replace(weight=records.weight * mask.astype(records.weight.dtype))


@dp_release.def_abstract_eval
def _shapes(*avals, site: Site):
    outputs = site.query.outputs(avals[4 + _RECORD_FIELDS :])
    return [ShapedArray(s.shape, s.dtype) for s in outputs]


dp_release.def_impl(jax.jit(_one_client, static_argnames="site"))
mlir.register_lowering(dp_release, mlir.lower_fun(_one_client, multiple_results=True))
batching.primitive_batchers[dp_release] = _all_clients
