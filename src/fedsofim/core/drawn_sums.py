"""The clipped sum of a block of which few records were drawn: only these are computed, in whatever model.

A record's vector may round otherwise in another lane of a batch (and where numbers cancel, by as much as they are), so
a record keeps its lane: place i is always computed in lane i mod LANES of one and the same loop body, in whatever turn.
So what it says is the same bits whoever else was drawn. Turns are as many as the fullest lane has drawn records.

Which records are added up together in floats is decided within a *span* of a public number of places, as in the fused
pass (native/sums.cc): at most a group of drawn ones (fewer where it is added up in parts) are one group; of more, every
GROUP places are. The argument: docs/clipping.md.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr

from fedsofim.core.clipping import GROUP
from fedsofim.core.grouping import over_groups, padded
from fedsofim.core.lattice import Lattice, Whole
from fedsofim.core.leaves import Leaf
from fedsofim.core.record_sums import add, fitting, micro_sums

_LANES = 16  # at most: wide enough for a processor, narrow enough that few stay empty
_FEW = 0.25  # of the records: of more, so many turns are needed that larger batches in place are faster
_MANY = 0.75  # of records of which no larger batches fit into the cache


def packs(leaves: Sequence[Leaf], rate: float) -> bool:
    """Are so few drawn that only these are computed? (The bounds: benchmarks/crowd.py.)"""
    return rate <= (_MANY if fitting(leaves) <= 4 * _LANES else _FEW)


def few_of(parts: int) -> int:
    """How many drawn records of each part are one group. One more, and the sums of all parts are others: in P of them
    terms may be P times as long as vectors are (record_sums.py), and P·m·(P·m)·P roundings are to be no more than 64².

    >>> [few_of(parts) for parts in (1, 2, 4, 8, 16)]
    [64, 22, 8, 2, 1]
    """
    return int(GROUP / parts**1.5)


class Span(NamedTuple):
    """Places whose drawn records are added up together."""

    places: int  # a multiple of GROUP
    lanes: int
    parts: int  # in which a group is added up

    @staticmethod
    def of(leaves: Sequence[Leaf], rate: float, records: int) -> "Span":
        """So long that it hardly ever has more drawn records than one group of few: n·rate + 4·sqrt(n·rate) of each
        part's places are then as many."""
        parts = max(leaf.groups for leaf in leaves)
        most = parts * (math.sqrt(4 + few_of(parts)) - 2) ** 2 / rate
        places = GROUP * max(1, min(int(most), records + GROUP - 1) // GROUP)
        return Span(places, 1 << min(_LANES, fitting(leaves)).bit_length() - 1, parts)

    def groups(self, records: int) -> int:
        """How many sums in floats a block of so many records has at most."""
        return -(-records // self.places) * self.parts * (self.places // GROUP)

    @property
    def changed(self) -> int:
        """How many of these one draw more or less may change: the parts of one group, and of every group after."""
        return self.parts * (1 + self.places // GROUP)


def drawn_sum(
    jaxpr: Jaxpr,
    leaves: Sequence[Leaf],
    consts: Sequence,
    block: tuple[jax.Array, ...],
    clip: float,
    lattice: Lattice,
    rate: float,
) -> list[Whole]:
    """The sum of one block's weight·clip(vector), on the lattice. `block` is x, y and weight, 0 where not drawn."""
    span = Span.of(leaves, rate, len(block[1]))
    spans = -(-len(block[1]) // span.places)
    split = [padded(a, spans * span.places).reshape(spans, span.places, *a.shape[1:]) for a in block]

    def step(total: list[Whole], mine: tuple[jax.Array, ...]) -> tuple[list[Whole], None]:
        return _span_sum(jaxpr, leaves, consts, mine, clip, lattice, span, total), None

    none = [lattice.whole(jnp.zeros(leaf.numbers, leaf.dtype)) for leaf in leaves]
    rows = jax.lax.scan(step, none, tuple(split))[0]
    return [jax.tree.map(leaf.of_row, row) for leaf, row in zip(leaves, rows, strict=True)]


class Turns(NamedTuple):
    """Who is computed when: row[t, l] is the row of lane l's places that turn t computes, with this weight."""

    row: jax.Array
    weight: jax.Array
    groups: jax.Array  # how many
    each: jax.Array  # turns of a group


def turns_of(weight: jax.Array, span: Span) -> Turns:
    """Lane by lane the drawn ones first, all in one group; or where these are too many, every place in its turn."""
    weight = weight.reshape(-1, span.lanes)
    drawn = weight > 0
    counts = jnp.sum(drawn, axis=0)
    few = jnp.max(jnp.sum(counts.reshape(span.parts, -1), axis=1)) <= few_of(span.parts)
    first = jnp.argsort(~drawn, axis=0, stable=True)
    row = jnp.where(few, first, jnp.arange(len(weight))[:, None])
    most = jnp.max(counts)
    return Turns(
        row,
        jnp.take_along_axis(weight, row, axis=0),
        jnp.where(few, jnp.minimum(most, 1), span.places // GROUP),
        jnp.where(few, most, GROUP // span.lanes),
    )


def _span_sum(
    jaxpr: Jaxpr,
    leaves: Sequence[Leaf],
    consts: Sequence,
    mine: tuple[jax.Array, ...],
    clip: float,
    lattice: Lattice,
    span: Span,
    total: list[Whole],
) -> list[Whole]:
    """`total` and what one span's records add to it."""
    x, y, weight = mine
    turns, lanes = turns_of(weight, span), jnp.arange(span.lanes)
    nothing = [jnp.zeros((leaf.groups, leaf.numbers), leaf.dtype) for leaf in leaves]

    def turn(t: jax.Array, floats: list[jax.Array]) -> list[jax.Array]:
        at = turns.row[t] * span.lanes + lanes
        batch = (a[None] for a in (x[at], y[at], turns.weight[t]))
        return add(floats, micro_sums(jaxpr, leaves, consts, *batch, clip=clip))

    def group(g: jax.Array, total: list[Whole]) -> list[Whole]:
        floats = jax.lax.fori_loop(g * turns.each, (g + 1) * turns.each, turn, nothing)
        return add(total, [over_groups(lattice.whole(s)) for s in floats])

    return jax.lax.fori_loop(0, turns.groups, group, total)
