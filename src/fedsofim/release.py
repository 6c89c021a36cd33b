"""The door: the only way out of a client's records, and the one primitive behind it.

A method is given a `Private` and never the records. Whatever it asks for comes back as a clipped sum plus
Gaussian noise, computed by the primitive `dp_release`. The ledger finds those primitives in the traced program
and prices them; everything else that touches the records is refused there. This is the only file that turns
records into something that may leave.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from fedsofim.errors import InputError, Refused
from fedsofim.mechanisms import Mechanism, as_mechanism, draw_tree
from fedsofim.models import Model
from fedsofim.native.sums import fits, fused_sums
from fedsofim.queries import TRUSTED, PerRecord, Query, SecondMoment, matrix_of
from fedsofim.records import Records

_SAMPLING = 2**31 - 1  # folded into a call's key for sampling; rounds, folded in for noise, never get there
_SETTINGS_AT_ONCE = 4  # of a sweep
MAX_SITES = 64  # release sites in one program; local steps belong in door.scan, which is one site


class Facts(NamedTuple):
    """Public numbers a method may use: none depends on a record."""

    rounds: int
    clients: int
    clip: float
    noise_std: Any  # per coordinate of the averaged release, as calibrated


class Site(NamedTuple):
    """Everything fixed about one release, as the ledger reads it from the program."""

    number: int
    label: str
    query: Query
    clip: float
    noise: Mechanism
    sample: float
    share: float | None


class Operands(NamedTuple):
    """What flows into one release at run time."""

    key: Any  # of this call alone
    round: Any
    index: Any  # which client
    std: Any  # of the noise on the sum, from the calibration
    records: Records
    consts: Sequence  # what the per-record function closes over, e.g. theta


@dataclass(frozen=True)
class Private:
    """A client's records behind a door that gives noisy clipped sums and nothing else.

    Formal guarantee: if everything a program returns was computed from its public inputs and the results of
    `sum`, `gradient` and `second_moment` (the ledger checks that), then replacing one record of the client
    changes the law of what it returns no more than Gaussian noise of the calibrated std hides.
    """

    _records: Records
    _model: Model
    _key: Any
    _index: Any
    _stds: Any
    _sites: list[None]  # its length numbers the calls; shared with the doors inside scans
    size: Any  # |D_i|: public
    round: Any
    facts: Facts

    def gradient(
        self,
        params,
        *,
        clip: float | None = None,
        noise: float | Mechanism = 1.0,
        sample: float = 1.0,
        share: float | None = None,
    ):
        """Σ_j clip(∇loss(params; x_j, y_j)) + noise, shaped like params."""
        closed = self._model.gradient
        if closed is not None and type(closed) in TRUSTED:
            (leaf,) = jax.tree.leaves(params)
            (out,) = self._release("gradient", closed, [leaf], clip, noise, sample, share)
            return jax.tree.unflatten(jax.tree.structure(params), [out])
        loss = self._model.loss
        return self.sum(
            lambda x, y: jax.grad(loss)(params, x, y),
            clip=clip,
            noise=noise,
            sample=sample,
            share=share,
            label="gradient",
        )

    def sum(
        self,
        fn: Callable,
        *,
        clip: float | None = None,
        noise: float | Mechanism = 1.0,
        sample: float = 1.0,
        share: float | None = None,
        label: str = "sum",
    ):
        """Σ_j clip(fn(x_j, y_j)) + noise: fn maps one record to a pytree, clipped over all leaves jointly."""
        query, consts, tree = self._trace(fn)
        return jax.tree.unflatten(tree, self._release(label, query, consts, clip, noise, sample, share))

    def second_moment(
        self,
        fn: Callable,
        *,
        clip: float,
        noise: float | Mechanism = 1.0,
        share: float | None = None,
        label: str = "second moment",
    ):
        """Σ_j v_j v_jᵀ + symmetric noise, v_j = fn(x_j, y_j) clipped to norm `clip`: sensitivity sqrt(2)·clip²."""
        query, consts, _ = self._trace(fn)
        if len(query.shapes) != 1 or len(query.shapes[0].shape) != 1:
            raise InputError(f"second_moment needs one vector per record; the function returned {query.shapes}")
        (half,) = self._release(label, SecondMoment(query), consts, clip**2, noise, 1.0, share)
        return matrix_of(half)

    def scan(self, step: Callable, carry, length: int):
        """`length` local steps, carry = step(door, carry), each with a door (so noise) of its own."""
        keys = jax.random.split(self._next_key(), length)

        def body(state, key):
            return step(replace(self, _key=key), state), None

        return jax.lax.scan(body, carry, keys)[0]

    def _trace(self, fn: Callable) -> tuple[PerRecord, list, Any]:
        """The per-record function as a query; what it returns must be numbers that noise can be added to."""
        x, y = self._records.x, self._records.y
        record = jax.ShapeDtypeStruct(x.shape[2:], x.dtype), jax.ShapeDtypeStruct((), y.dtype)
        query, consts, tree = PerRecord.trace(fn, *record)
        for shape in query.shapes:
            if not jnp.issubdtype(shape.dtype, jnp.floating):
                raise InputError(
                    f"the per-record function returned {shape.dtype}; expected floats, so cast with astype"
                )
        return query, consts, tree

    def _next_key(self):
        self._sites.append(None)
        return jax.random.fold_in(self._key, len(self._sites) - 1)

    def _release(
        self,
        label: str,
        query: Query,
        consts: Sequence,
        clip: float | None,
        noise: float | Mechanism,
        sample: float,
        share: float | None,
    ) -> list:
        clip = self.facts.clip if clip is None else float(clip)
        if not clip > 0:
            raise InputError(f"clip is {clip}; expected a number above 0")
        if not 0 < sample <= 1:
            raise InputError(f"sample is {sample}; expected a probability above 0 and at most 1")
        if share is not None and not 0 < share < 1:
            raise InputError(f"share is {share}; expected a part of the budget strictly between 0 and 1")
        number = len(self._sites)
        if number >= MAX_SITES:
            raise Refused(f"more than {MAX_SITES} releases are written out in one program; use door.scan")
        site = Site(number, label, query, clip, as_mechanism(noise), sample, share)
        key = self._next_key()
        return dp_release.bind(key, self.round, self._index, self._stds[number], *self._records, *consts, site=site)


# --- the primitive ------------------------------------------------------------------------------------------

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
    key, round, index, std = args[:4]
    return Operands(key, round, index, std, Records(*args[4:end]), list(args[end:]))


def _one_client(*args, site: Site) -> list[jax.Array]:
    """The release of the client `index`: its clipped sum plus its noise."""
    op = operands(args)
    mine = op.records._replace(
        weight=op.records.weight * (op.records.owner == op.index)[:, None].astype(op.records.weight.dtype),
        owner=jnp.zeros_like(op.records.owner),
    )
    mine = _sampled(site, jnp.expand_dims(op.key, 0), op.round, mine)
    sums = [s[0] for s in client_sums(site, op.consts, [False] * len(op.consts), mine, 1)]
    return add_noise(site, op.key, op.round, op.std, sums)


def _all_clients(args: Sequence, dims: Sequence, *, site: Site) -> tuple[list[jax.Array], list[int]]:
    """The releases of every client at once: the simulator's vmap over clients. A method's own vmap is refused."""
    op, dim = operands(args), operands(dims)
    if dim.index is None:
        if not _auditing.get():  # a sweep: the same audited program under other settings, each with its own key
            swept = _swept(args, dims, site)
            return swept, [0] * len(swept)
        raise Refused(
            f"the release '{site.label}' stands inside a vmap, which would release many sums with one noise; "
            "use door.scan, or return all leaves from one function so that they are clipped and charged together"
        )
    clients = op.index.shape[dim.index]
    batched = [d is not None for d in dim.consts]
    consts = [c if d is None else jnp.moveaxis(c, d, 0) for c, d in zip(op.consts, dim.consts, strict=True)]
    keys = op.key if dim.key is not None else jax.random.split(op.key, clients)
    records = _sampled(site, keys, op.round, op.records)
    sums = client_sums(site, consts, batched, records, clients)
    noisy = jax.vmap(lambda key, *s: add_noise(site, key, op.round, op.std, s))(keys, *sums)
    return noisy, [0] * len(noisy)


def _swept(args: Sequence, dims: Sequence, site: Site) -> list[jax.Array]:
    """The release under many settings; XLA takes a few side by side, wide products whose results stay in cache."""
    op = operands(args)
    varying = [i for i, d in enumerate(dims) if d is not None]

    def one(values: list) -> list[jax.Array]:
        given = dict(zip(varying, values, strict=True))
        return _one_client(*[given.get(i, a) for i, a in enumerate(args)], site=site)

    values = [jnp.moveaxis(args[i], dims[i], 0) for i in varying]
    if op.consts and fits(site.query, op.consts[0], op.records):
        return jax.vmap(one)(values)
    return jax.lax.map(one, values, batch_size=_SETTINGS_AT_ONCE)


def client_sums(site: Site, consts: Sequence, batched: Sequence[bool], records: Records, clients: int):
    """Clipped sums per client, (clients, ...) for each leaf; `batched` consts hold one value per client."""
    if consts and fits(site.query, consts[0], records):
        return [fused_sums(consts[0], batched[0], records, clients, site.clip)]

    def block(owner, x, y, weight):
        mine = [c[owner] if b else c for c, b in zip(consts, batched, strict=True)]
        return site.query.block(mine, x, y, weight, site.clip)

    x, y, weight, owner = records
    if site.query.wide:
        sums = jax.vmap(block)(owner, x, y, weight)
        if clients == 1:
            return [jnp.sum(s, axis=0, keepdims=True) for s in sums]
        return [jax.ops.segment_sum(s, owner, clients, indices_are_sorted=True) for s in sums]
    single = [c[0] if b else c for c, b in zip(consts, batched, strict=True)]
    totals = [jnp.zeros((clients, *s.shape), s.dtype) for s in site.query.outputs(single)]

    def add(totals, row):
        sums = block(*row)
        return [t.at[row[0]].add(s) for t, s in zip(totals, sums, strict=True)], None

    return jax.lax.scan(add, totals, (owner, x, y, weight))[0]


def add_noise(site: Site, key, round, std, sums: Sequence) -> list[jax.Array]:
    """Sums plus the mechanism's noise at this round."""
    noise = draw_tree(site.noise, key, round, sums)
    return [s + std.astype(s.dtype) * z for s, z in zip(sums, noise, strict=True)]


def _sampled(site: Site, keys, round, records: Records) -> Records:
    """Keep each record with probability `sample`, drawn afresh for this release by its own client."""
    if site.sample == 1:
        return records
    blocks = jnp.arange(len(records.owner))

    def kept(owner, block):
        key = jax.random.fold_in(jax.random.fold_in(keys[owner], _SAMPLING), round)
        return jax.random.bernoulli(jax.random.fold_in(key, block), site.sample, records.weight.shape[1:])

    mask = jax.vmap(kept)(records.owner, blocks)
    return records._replace(weight=records.weight * mask.astype(records.weight.dtype))


@dp_release.def_abstract_eval
def _shapes(*avals, site: Site):
    outputs = site.query.outputs(avals[4 + _RECORD_FIELDS :])
    return [ShapedArray(s.shape, s.dtype) for s in outputs]


dp_release.def_impl(jax.jit(_one_client, static_argnames="site"))
mlir.register_lowering(dp_release, mlir.lower_fun(_one_client, multiple_results=True))
batching.primitive_batchers[dp_release] = _all_clients
