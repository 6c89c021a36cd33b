"""All clients of a round as arrays: what a compiled round reads, and what goes from one round to the next."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax

from fedsofim.core.audit import Inputs
from fedsofim.core.normals import coins
from fedsofim.core.records import Records

_GROUPS = 2**30  # folded into the run's key with a group's number: apart from every client's
_PRESENCE = 2**30 - 1  # folded into it for who takes part


class Carry(NamedTuple):
    """Everything that goes from one round to the next."""

    params: Any
    state: Any
    memory: Any  # one row per client


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Cohort:
    """All clients' records with the public numbers of the run."""

    records: Records
    sizes: jax.Array  # |D_i|; the single number 1 when pooled
    weights: jax.Array  # w_i, adding up to 1
    stds: jax.Array  # noise std of each release site; a row for each client, where these have their own
    noise_std: jax.Array  # per coordinate of the averaged release
    key: jax.Array  # of all noise in the run
    whose: jax.Array | None = None  # whose each record is, where pooled clients take part by chance

    def group(self, number: Any, made_by_all: bool) -> "Cohort":
        """One of the groups of clients that take turns, where all arrays but the key hold one row for each. Noise is
        the group's own, unless it is made by all (banded.py)."""
        rows = [self.records, self.sizes, self.weights, self.stds, self.noise_std]
        records, sizes, weights, stds, noise_std = jax.tree.map(lambda a: a[number], rows)
        key = self.key if made_by_all else jax.random.fold_in(self.key, _GROUPS + number)
        return Cohort(records=records, sizes=sizes, weights=weights, stds=stds, noise_std=noise_std, key=key)

    def attended(self, rate: float, t: Any) -> "Cohort":
        """The cohort of a round in which each client takes part with this probability (drawn_clients.py). Who is
        absent has no records in it, and its noise as always."""
        key = jax.random.fold_in(jax.random.fold_in(self.key, _PRESENCE), t)
        present = coins(key, rate, self.weights.shape)
        whose = self.records.owner[:, None] if self.whose is None else self.whose
        weight = self.records.weight * present[whose].astype(self.records.weight.dtype)
        return replace(self, records=self.records._replace(weight=weight))

    @property
    def own_stds(self) -> bool:
        """Has every client noise of its own size?"""
        return self.stds.ndim == 2

    def inputs(self, carry: Carry, t: Any, *, memory: Any, key: Any, index: Any, size: Any, stds: Any = None) -> Inputs:
        """What one client's program takes in round t."""
        return Inputs(
            params=carry.params,
            state=carry.state,
            memory=memory,
            key=key,
            index=index,
            size=size,
            round=t,
            noise_std=self.noise_std,
            stds=self.stds if stds is None else stds,
            records=self.records,
        )
