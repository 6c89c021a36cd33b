"""Run one client's audited program with deployment noise: exact sums on a lattice, bits from the OS.

The jaxpr that was priced is walked equation by equation. Wherever it says `dp_release`, the sum is formed here as
noise.py describes; the simulator's sampler is never reached, and the key it would use is a dummy. Everything
else runs as it stands: after a release nothing touches records, so nothing else needs care.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from fedsofim.core.audit import Inputs, Program, output_names
from fedsofim.core.interpreter import bind, evaluate
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr, releases_in
from fedsofim.core.keys import key_of
from fedsofim.core.primitives import Rule, rule_of
from fedsofim.core.queries import ratio_of
from fedsofim.core.records import Records
from fedsofim.core.release import dp_release, operands
from fedsofim.core.second_opinion import constants, stand_ins
from fedsofim.core.site import Site
from fedsofim.deploy.exact_sums import exact_sum
from fedsofim.deploy.noise import BITS, Bits, draw, laid_out, lattice_std, scale_of_round
from fedsofim.deploy.secure_sum import masked, step_of
from fedsofim.errors import Refused


@dataclass(frozen=True)
class Secrets:
    """Where a request's randomness comes from: 32 bytes of its own, and the job's for noise that comes back."""

    own: bytes
    job: bytes


@dataclass(frozen=True)
class Masked:
    """How to release into a secure sum: this client's factor a_i, the std of its share of the noise, its masks."""

    factor: float
    std: float
    mask: np.ndarray


def run_masked(program: Program, inputs: Inputs, how: Masked, secrets: Secrets) -> np.ndarray:
    """The masked release of a program that releases once, as 64-bit words."""
    out: list[np.ndarray] = []
    _stepped(program, inputs, _Releases(program, secrets, {}, int(inputs.round), how, out))
    (words,) = out
    return words


def unmasked_mean(program: Program, shapes: Inputs, total: np.ndarray) -> Any:
    """The mean of all clients' uploads, from the sum Σ_i a_i·S_i of what each released, noise included.

    Where an upload is linear in its one release, over the client's size, that is the upload of a client of size 1 that
    released the sum (core/pooled.py); so it has the form the program gives it: a second moment's half is a matrix.
    """

    def release(site: Site, values: list, path: str) -> list:
        return _parted(total, site.query.outputs(operands(values).consts))

    records = Records(*(np.broadcast_to(np.zeros((), a.dtype), a.shape) for a in shapes.records))
    once = {"key": key_of(0), "round": jnp.int32(0), "size": jnp.float32(1)}
    flat = _stepped(program, replace(stand_ins(shapes), records=records, **once), release)
    return jax.tree.unflatten(program.outputs, flat)[0]


def run(program: Program, inputs: Inputs, stds: Mapping[int, float], secrets: Secrets) -> tuple[Any, Any]:
    """(upload, memory) of a client whose records are real. `stds`: of each site's noise, as priced."""
    flat = _stepped(program, inputs, _Releases(program, secrets, stds, int(inputs.round)))
    return jax.tree.unflatten(program.outputs, flat)


def confirm_alone(program: Program, shapes: Inputs) -> None:
    """A second opinion on how a node runs a program, before a record is read: the same steps, without releases.

    As core/second_opinion.py does for the simulator: with every release replaced by constants, what the steps give must
    not change with the records, and no two releases may draw their noise by one label.
    """
    first, *others = (_without_releases(program, shapes, value) for value in (0.0, 1.0, -1e6, math.nan))
    for other in others:
        for name, a, b in zip(output_names(program.outputs), first.outputs, other.outputs, strict=True):
            if np.asarray(a).tobytes() != np.asarray(b).tobytes():
                raise Refused(f"{name} changed with the records while every release stayed the same: it leaks")
    if len(set(first.labels)) != len(first.labels):
        raise Refused("two releases of a node would draw the same noise; call the door anew for every release")


class _Seen(NamedTuple):
    outputs: list
    labels: list[str]


def _without_releases(program: Program, shapes: Inputs, value: float) -> _Seen:
    labels: list[str] = []

    def release(site: Site, values: list, path: str) -> list:
        labels.append(_label(program, site, path))
        return [constants(s) for s in site.query.outputs(operands(values).consts)]

    # one number, seen in the records' shapes: an honest program never looks at it
    records = Records(*(np.broadcast_to(_one_number(value, a.dtype), a.shape) for a in shapes.records))
    given = replace(stand_ins(shapes), records=records, key=key_of(0), round=jnp.int32(0))
    return _Seen(_stepped(program, given, release), labels)


def coordinates(jaxpr: Any) -> dict[int, int]:
    """How many numbers each release site of a program gives at a time."""
    found: dict[int, int] = {}
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        if eqn.primitive is dp_release:
            found[eqn.params["site"].number] = sum(math.prod(cast(ShapedArray, v.aval).shape) for v in eqn.outvars)
        for inner in (j for p in eqn.params.values() for j in jaxprs_in(p)):
            found |= coordinates(inner)
    return found


def _one_number(value: float, dtype: Any) -> np.ndarray:
    whole = not jnp.issubdtype(dtype, jnp.floating)
    return np.asarray(np.nan_to_num(value) if whole else value).astype(dtype)


Release = Callable[[Site, list, str], list]


def _stepped(program: Program, inputs: Inputs, release: Release) -> list:
    """What a program gives, equation by equation; `release` answers wherever it says `dp_release`."""
    return _steps(program.jaxpr.jaxpr, program.jaxpr.consts, jax.tree.leaves(inputs), "", release)


def _steps(jaxpr: Any, consts: Sequence, args: Sequence, path: str, release: Release) -> list:
    return evaluate(jaxpr, consts, args, lambda eqn, values: _step(eqn, values, path, release))


def _step(eqn: Any, values: list, path: str, release: Release) -> list:
    if eqn.primitive is dp_release:
        return release(eqn.params["site"], values, path)
    if not any(releases_in(j) for p in eqn.params.values() for j in jaxprs_in(p)):
        return bind(eqn, values)
    if rule_of(eqn.primitive) is Rule.SCAN:
        return _scan(eqn.params, values, path, release)
    raise Refused(f"a release stands inside '{eqn.primitive.name}'; use door.scan")


def _scan(p: dict, values: list, path: str, release: Release) -> list:
    """Local steps, one after another, each with releases (so noise) of its own."""
    start = p["num_consts"] + p["num_carry"]
    consts, carry, xs = values[: p["num_consts"]], values[p["num_consts"] : start], values[start:]
    steps = range(p["length"])[::-1] if p["reverse"] else range(p["length"])
    ys: list[list] = []
    for i in steps:
        out = _steps(*open_jaxpr(p["jaxpr"]), [*consts, *carry, *(x[i] for x in xs)], f"{path}/{i}", release)
        carry, y = out[: p["num_carry"]], out[p["num_carry"] :]
        ys.append(y)
    ordered = ys[::-1] if p["reverse"] else ys
    return [*carry, *(jnp.stack(column) for column in zip(*ordered, strict=True))]


def _label(program: Program, site: Site, path: str) -> str:
    """Which release of a job's round this is: its phase and number, and the step of every loop around it.

    Noise that comes back (a tree's) is drawn from the job's secret by its label, so no other phase may have the same.
    """
    return f"{program.phase}/{site.number}{path}"


def _parted(total: np.ndarray, shapes: Sequence[Any]) -> list:
    """One row of numbers as the leaves of a release."""
    parts = np.split(total, np.cumsum([math.prod(s.shape) for s in shapes])[:-1])
    return [jnp.asarray(p.reshape(s.shape), s.dtype) for p, s in zip(parts, shapes, strict=True)]


@dataclass(frozen=True)
class _Releases:
    """The releases of one request on real records."""

    program: Program
    secrets: Secrets
    stds: Mapping[int, float]
    round: int
    masked: Masked | None = None
    words: list[np.ndarray] = field(default_factory=list)  # where a masked release goes; the program sees zeros

    def __call__(self, site: Site, values: list, path: str) -> list:
        op = operands(values)
        shapes = site.query.outputs(op.consts)
        coordinates = sum(math.prod(s.shape) for s in shapes)
        label = _label(self.program, site, path)
        x, y, weight = (
            np.asarray(a).reshape(-1, *a.shape[2:]) for a in (op.records.x, op.records.y, op.records.weight)
        )
        held = weight > 0
        x, y, taken = x[held], y[held], self.sampled(site, label, len(weight))[held]
        if self.masked is not None:
            self.words.append(self.masked_words(self.masked, site, op.consts, x, y, taken))
            return [jnp.zeros(s.shape, s.dtype) for s in shapes]
        std = self.stds[site.number] * scale_of_round(site.noise, self.round)
        if std == 0:  # a rehearsal: the node's policy allows infinite epsilon
            total = exact_sum(site.query, op.consts, x, y, site.clip, None, taken)
        else:
            std = lattice_std(std, ratio_of(site.query) * site.clip, coordinates)
            whole = exact_sum(site.query, op.consts, x, y, site.clip, std * 2.0**-BITS, taken)
            secret = self.secrets.job if laid_out(site.noise) else self.secrets.own
            noise = draw(site.noise, self.round, coordinates, secret, f"noise/{label}")
            total = (whole + noise).astype(np.float64) * (std * 2.0**-BITS)
        return _parted(total, shapes)

    def masked_words(
        self, how: Masked, site: Site, consts: Sequence, x: np.ndarray, y: np.ndarray, taken: np.ndarray
    ) -> np.ndarray:
        step = step_of(how.std) / how.factor  # a_i·v on the common lattice
        whole = exact_sum(site.query, consts, x, y, site.clip, step, taken)
        noise = draw(site.noise, self.round, len(whole), self.secrets.own, "noise")
        return masked(whole, noise, how.mask)

    def sampled(self, site: Site, label: str, count: int) -> np.ndarray:
        """Each record with probability `sample`, from secret bits: who took part must stay unknown."""
        if site.sample == 1:
            return np.ones(count, bool)
        return Bits(self.secrets.own, f"sample/{label}").words(count) < np.uint64(int(site.sample * 2**64))
