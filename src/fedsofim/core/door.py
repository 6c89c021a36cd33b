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

from fedsofim.core.mechanisms import Mechanism, Mischarged
from fedsofim.core.models import Model
from fedsofim.core.opening import opened
from fedsofim.core.queries import (
    TRUSTED,
    PerRecord,
    Query,
    SecondMoment,
    SoftmaxGradient,
    half_of,
    matrix_of,
)
from fedsofim.core.records import Records
from fedsofim.core.release import dp_release
from fedsofim.core.site import Site, check_clip, own_site
from fedsofim.core.unit import head_gradient, mean_over_unit, total_loss
from fedsofim.core.units import AS_THEY_COME, Units
from fedsofim.core.voting import gradient_of, head_loss, with_vote
from fedsofim.errors import InputError, expect_whole, shown


class Facts(NamedTuple):
    """Public numbers a method may use: none depends on a record."""

    rounds: int
    clients: int
    clip: Any  # a number; where it finds itself, that of the round
    noise_std: Any  # per coordinate of the averaged release, as calibrated
    units: Units = AS_THEY_COME
    groups: int = 1  # of clients that take turns (participation.py): one of them answers in a round
    batch_rate: float = 1.0  # with which each record takes part in a gradient, drawn afresh and kept secret
    attendance: float = 1.0  # with which each client takes part in a round, likewise (drawn_clients.py)

    def __repr__(self) -> str:
        return f"Facts({', '.join(f'{name}={shown(value)}' for name, value in self._asdict().items())})"


@dataclass(frozen=True, kw_only=True)
class Door:
    """A client's records behind a door that gives noisy clipped sums and nothing else.

    Formal guarantee: if everything a program returns was computed from its public inputs and the results of
    `sum`, `gradient` and `second_moment` (the audit checks that), then replacing one record of the client
    changes the law of what it returns no more than Gaussian noise of the calibrated std hides. Where records are laid
    out by unit (unit.py), read "unit" for "record".
    """

    _records: Records
    _model: Model
    _key: Any
    _index: Any
    _stds: Any
    _sites: list[None]  # its length numbers the calls; shared with the doors inside scans
    _units: bool = False  # is a "record" a unit of several (unit.py)?
    size: Any  # |D_i|: public
    round: Any  # how often this client was asked before
    facts: Facts

    def __repr__(self) -> str:
        return "<Door>"

    def gradient(
        self,
        params,
        *,
        clip: float | None = None,
        noise: float | Mechanism = 1.0,
        sample: float | None = None,
        share: float | None = None,
    ):
        """Σ_j clip(∇loss(params; x_j, y_j)) + noise, shaped like params; over `batch` of the records, in expectation.

        `sample`: with which probability each record takes part; None: the run's batch rate.
        """
        rate = self.facts.batch_rate if sample is None else sample
        how: dict[str, Any] = {"clip": clip, "noise": noise, "sample": rate, "share": share}
        closed = self._model.gradient
        if closed is None or type(closed) not in TRUSTED:
            loss = total_loss(self._model.loss) if self._units else self._model.loss
            return self._summed("gradient", self._trace(lambda x, y: jax.grad(loss)(params, x, y)), **how)
        leaves = jax.tree.leaves(params)
        if self._units:
            return self._summed("gradient", self._unit_head(params), **how)
        _check_only_leaf(leaves, self._records.x.shape[2:])
        return _like(params, self._release("gradient", closed, leaves, **how))

    def gradient_and_vote(
        self, params: Any, scale: Any, part: float, *, noise: float | Mechanism = 1.0, sample: float | None = None
    ):
        """Σ_j c·(sqrt(1-part)·u_j, ±sqrt(part)) + noise: gradients clipped to scale·c, in units of that, and votes.

        c is the run's clip, and what the price is about; clip_search.py has the argument.
        """
        rate = self.facts.batch_rate if sample is None else sample
        how: dict[str, Any] = {"clip": None, "noise": noise, "sample": rate, "share": None}
        label = f"gradient, {part:.0%} of it a vote on the clip"
        fn = with_vote(gradient_of(self._differentiable(), params), self.facts.clip, part)
        return self._summed(label, self._trace(lambda x, y: fn(x, y, scale)), **how)

    def _differentiable(self) -> Callable:
        """The loss of a record, or of all that a unit holds, as JAX differentiates it."""
        loss = head_loss if type(self._model.gradient) is SoftmaxGradient else self._model.loss
        return total_loss(loss) if self._units else loss

    def _unit_head(self, params: Any) -> tuple[PerRecord, list, Any]:
        """The gradient of a head over all that a unit holds."""
        _check_only_leaf(jax.tree.leaves(params), self._records.x.shape[3:])
        return self._trace(lambda x, y: jax.tree.map(lambda t: head_gradient(t, x, y), params))

    @property
    def batch(self) -> Any:
        """How many records a gradient is over, in expectation: what its mean divides by."""
        return self.size if self.facts.batch_rate == 1 else self.facts.batch_rate * self.size

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
        traced = self._trace(mean_over_unit(fn) if self._units else fn)
        return self._summed(label, traced, clip=clip, noise=noise, sample=sample, share=share)

    def _summed(self, label: str, traced: tuple[PerRecord, list, Any], **how: Any) -> Any:
        query, consts, tree = traced
        out = self._release(label, query, consts, **how)
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
        """Σ_j v_j v_jᵀ + symmetric noise, v_j = fn(x_j, y_j) clipped to norm `clip`: sensitivity sqrt(2)·clip².

        A unit gives the mean of its records' v vᵀ, clipped to clip²: a sum like any other, of sensitivity 2·clip².
        """
        check_clip(clip, unpaid=type(noise) is Mischarged)
        if self._units:
            traced = self._trace(mean_over_unit(lambda x, y: _half_of_square(fn(x, y))))
            half = self._summed(label, traced, clip=float(clip) ** 2, noise=noise, sample=1.0, share=share)
            return matrix_of(half)
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
        return PerRecord.trace(opened(fn), *self._record())

    def _record(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """The shapes of one record and its label."""
        x, y = self._records.x, self._records.y
        return jax.ShapeDtypeStruct(x.shape[2:], x.dtype), jax.ShapeDtypeStruct(y.shape[2:], y.dtype)

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


def _like(params: Any, out: Sequence) -> Any:
    leaves, tree = jax.tree.flatten(params)
    return jax.tree.unflatten(tree, [o.astype(leaf.dtype) for o, leaf in zip(out, leaves, strict=True)])


def _half_of_square(v: Any) -> jax.Array:
    if getattr(v, "ndim", None) != 1:
        raise InputError(f"second_moment needs one vector per record; the function returned {jax.tree.map(type, v)}")
    return half_of(jnp.outer(v, v))


def _check_only_leaf(leaves: Sequence, shape: tuple[int, ...]) -> None:
    """The one array (features + 1, classes) that the closed form of the head's gradient is about."""
    if len(leaves) != 1 or len(shape) != 1 or leaves[0].ndim != 2 or leaves[0].shape[0] != shape[0] + 1:
        found = ", ".join(str(leaf.shape) for leaf in leaves)
        raise InputError(
            f"the closed form of the head's gradient got parameters of shape {found} for records of shape {shape}; "
            "expected one array (features + 1, classes). Leave out the model's `gradient`; its loss is differentiated"
        )
