"""The door: the only way out of a client's records.

A method is given a `Door` and never the records. Whatever it asks for comes back as a clipped sum plus Gaussian noise
(release.py). The audit finds those releases in the traced program and prices them; everything else that touches the
records is refused there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax

from fedsofim.core.mechanisms import Mechanism, Mischarged
from fedsofim.core.models import Model
from fedsofim.core.opening import opened
from fedsofim.core.queries import TRUSTED, PerRecord, Query, SecondMoment, matrix_of
from fedsofim.core.records import Records
from fedsofim.core.release import dp_release
from fedsofim.core.site import Site, check_clip, own_site
from fedsofim.core.units import AS_THEY_COME, Units
from fedsofim.errors import InputError, expect_whole


class Facts(NamedTuple):
    """Public numbers a method may use: none depends on a record."""

    rounds: int
    clients: int
    clip: float
    noise_std: Any  # per coordinate of the averaged release, as calibrated
    units: Units = AS_THEY_COME


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
            theta = _only_leaf(params, self._records.x.shape[2:])
            (out,) = self._release("gradient", closed, [theta], clip=clip, noise=noise, sample=sample, share=share)
            return jax.tree.unflatten(jax.tree.structure(params), [out.astype(theta.dtype)])
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
        out = self._release(label, query, consts, clip=clip, noise=noise, sample=sample, share=share)
        return jax.tree.unflatten(tree, [o.astype(s.dtype) for o, s in zip(out, query.shapes, strict=True)])

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
        check_clip(clip, unpaid=type(noise) is Mischarged)
        query, consts, _ = self._trace(fn)
        if len(query.shapes) != 1 or len(query.shapes[0].shape) != 1:
            raise InputError(f"second_moment needs one vector per record; the function returned {query.shapes}")
        (half,) = self._release(
            label, SecondMoment(query), consts, clip=float(clip) ** 2, noise=noise, sample=1.0, share=share
        )
        return matrix_of(half).astype(query.shapes[0].dtype)

    def scan(self, step: Callable, carry, length: int):
        """`length` local steps, carry = step(door, carry), each with a door (so noise) of its own."""
        expect_whole("the number of steps of door.scan", length, 1)
        keys = jax.random.split(self._next_key(), int(length))

        def body(state, key):
            return step(replace(self, _key=key), state), None

        return jax.lax.scan(body, carry, keys)[0]

    def _trace(self, fn: Callable) -> tuple[PerRecord, list, Any]:
        """The per-record function as a query, and what it closes over; only what the audit knows may stand in it."""
        x, y = self._records.x, self._records.y
        record = jax.ShapeDtypeStruct(x.shape[2:], x.dtype), jax.ShapeDtypeStruct((), y.dtype)
        return PerRecord.trace(opened(fn), *record)

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
        site = Site(
            number=len(self._sites),
            label=label,
            query=query,
            clip=self.facts.clip if clip is None else clip,
            noise=noise,  # type: ignore[arg-type]
            sample=sample,
            share=share,
        )
        own = own_site(site)
        key = self._next_key()
        return dp_release.bind(key, self.round, self._index, self._stds, *self._records, *consts, site=own)


def _only_leaf(params: Any, shape: tuple[int, ...]) -> Any:
    """The one array (features + 1, classes) that the closed form of the head's gradient is about."""
    leaves = jax.tree.leaves(params)
    if len(leaves) != 1 or len(shape) != 1 or leaves[0].ndim != 2 or leaves[0].shape[0] != shape[0] + 1:
        found = ", ".join(str(leaf.shape) for leaf in leaves)
        raise InputError(
            f"the closed form of the head's gradient got parameters of shape {found} for records of shape {shape}; "
            "expected one array (features + 1, classes). Leave out the model's `gradient`; its loss is differentiated"
        )
    return leaves[0]
