"""The runs of one program that the oracle compares: one client alone, and all clients at once as the simulator asks."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from fedsofim.core.accounting import Charge, at_multiplier, calibrate
from fedsofim.core.budget import Budget
from fedsofim.core.records import Records
from fedsofim.core.site import MAX_SITES, Site
from fuzz_execute import Execution, Taken
from fuzz_leaks import SEEN
from fuzz_world import CLIENTS, SIZES, Public, first_client, inputs, public

BUDGET = Budget(5.0, 1e-5)


class Priced(NamedTuple):
    """A program with its price: what was accepted, or for a refused one what its releases would cost."""

    jaxpr: ClosedJaxpr
    charges: Sequence[Charge]
    sites: Sequence[Site]


class Seen(NamedTuple):
    """What came of one run."""

    outputs: list  # upload and memory
    taken: list[Taken]  # what went into each release
    released: list  # what came out of it, where the engine was asked


def multipliers(priced: Priced) -> dict[Any, float]:
    """Noise std over clip of each site, as a plan would have it; sampled sites by hand, which is quick."""
    if not priced.charges:
        return {}
    if any(c.sample < 1 for c in priced.charges):
        return dict(at_multiplier(priced.charges, 1.0))
    return dict(calibrate(priced.charges, BUDGET))


def stds_of(priced: Priced) -> jax.Array:
    """As Plan.stds_by_site lays them out: 0 where no site was found."""
    out, each = np.zeros(MAX_SITES, np.float32), multipliers(priced)
    with np.errstate(over="ignore"):
        for site, charge in zip(priced.sites, priced.charges, strict=True):
            out[site.number] = each[charge.site] * charge.clip
    return jnp.asarray(out)


def alone(priced: Priced, records: Records, key: jax.Array, stds: jax.Array) -> Seen:
    """One client in round 0 by itself."""
    run = Execution(records)
    out = run.jaxpr(priced.jaxpr.jaxpr, priced.jaxpr.consts, jax.tree.leaves(first_client(key, records, stds)))
    return Seen(out, run.taken, [])


def _handed_on(taken: Taken) -> Any:
    """Keys as words; records that are the program's own need not be handed on, many times over."""
    op = taken.op
    return op._replace(records=() if taken.own else op.records, key=jax.random.key_data(op.key))


@lru_cache(maxsize=4)
def _public_rows(count: int) -> Public:
    """All rounds, one set after another."""
    return jax.tree.map(lambda a: jnp.tile(a, (count,) + (1,) * (a.ndim - 1)), public())


def together(
    priced: Priced, records: Records, keys: jax.Array, stds: jax.Array, *, real: bool = False, quiet: bool = False
) -> Seen:
    """All clients side by side as core/round.py asks them, in all rounds, for rows of records and keys of the run.

    Everything comes back as (rows, rounds, clients, ...).
    """
    sites: list = []

    def client(index: Any, size: Any, memory: Any, now: Public, row: Records, key: Any) -> tuple:
        run = Execution(row, real, quiet)
        given = inputs(now, index, size, memory, key, row, stds)
        out = run.jaxpr(priced.jaxpr.jaxpr, priced.jaxpr.consts, jax.tree.leaves(given))
        sites[:] = [(t.site, t.own) for t in run.taken]
        return out, [_handed_on(t) for t in run.taken], run.released

    each = (jnp.arange(CLIENTS, dtype=jnp.int32), jnp.asarray(SIZES, jnp.float32))

    def one_round(now: Public, row: Records, key: Any) -> tuple:
        return jax.vmap(lambda index, size, memory: client(index, size, memory, now, row, key))(*each, now.memory)

    # rounds and rows of rows are one axis: every axis of a vmap costs time at every operation
    count, rounds = len(keys), len(public().round)
    times = _public_rows(count)
    rows = jax.tree.map(lambda a: jnp.repeat(a, rounds, axis=0), (records, keys))
    out, ops, released = jax.tree.map(
        lambda a: a.reshape(count, rounds, *a.shape[1:]), jax.vmap(one_round)(times, *rows)
    )
    return Seen(out, [Taken(site, op, own) for (site, own), op in zip(sites, ops, strict=True)], released)


@contextlib.contextmanager
def shown() -> Iterator[list]:
    """What a program printed or handed to callbacks while it ran, as bytes."""
    out: list = []
    SEEN.clear()
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        yield out
        jax.effects_barrier()
    out += [text.getvalue().encode(), *(v.tobytes() for v in SEEN)]
    SEEN.clear()
