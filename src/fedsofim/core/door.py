"""The door: the only way out of a client's records.

A method is given a `Door` and never the records. Whatever it asks for comes back as a clipped sum plus Gaussian noise
(release.py). The audit finds those releases in the traced program and prices them; everything else that touches the
records is refused there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedsofim.core.mechanisms import Mechanism, as_mechanism
from fedsofim.core.models import Model
from fedsofim.core.queries import TRUSTED, PerRecord, Query, SecondMoment, matrix_of
from fedsofim.core.records import Records
from fedsofim.core.release import Site, dp_release
from fedsofim.errors import InputError, Refused

MAX_SITES = 64  # release sites in one program; local steps belong in door.scan, which is one site


class Facts(NamedTuple):
    """Public numbers a method may use: none depends on a record."""

    rounds: int
    clients: int
    clip: float
    noise_std: Any  # per coordinate of the averaged release, as calibrated


@dataclass(frozen=True, kw_only=True)
class Door:
    """A client's records behind a door that gives noisy clipped sums and nothing else.

    Formal guarantee: if everything a program returns was computed from its public inputs and the results of
    `sum`, `gradient` and `second_moment` (the audit checks that), then replacing one record of the client
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
            (out,) = self._release("gradient", closed, [leaf], clip=clip, noise=noise, sample=sample, share=share)
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
        return jax.tree.unflatten(
            tree, self._release(label, query, consts, clip=clip, noise=noise, sample=sample, share=share)
        )

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
        (half,) = self._release(label, SecondMoment(query), consts, clip=clip**2, noise=noise, sample=1.0, share=share)
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
        *,
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
        site = Site(
            number=number,
            label=label,
            query=query,
            clip=clip,
            noise=as_mechanism(noise),
            sample=sample,
            share=share,
        )
        key = self._next_key()
        return dp_release.bind(key, self.round, self._index, self._stds[number], *self._records, *consts, site=site)
