"""Run one client's audited program with deployment noise: exact sums on a lattice, bits from the OS.

The jaxpr that was priced is walked equation by equation. Wherever it says `dp_release`, the sum is formed here as
noise.py describes; the simulator's sampler is never reached, and the key it would use is a dummy. Everything
else runs as it stands: after a release nothing touches records, so nothing else needs care.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Literal

from fedsofim.core.audit import Inputs, Program
from fedsofim.core.jaxprs import CALLS, jaxprs_in, open_jaxpr, releases_in
from fedsofim.core.queries import Query, SecondMoment
from fedsofim.core.release import Site, dp_release, operands
from fedsofim.deploy.noise import BITS, Bits, draw, laid_out, lattice_std, scale_of_round
from fedsofim.deploy.secure_sum import masked, step_of
from fedsofim.errors import Refused

_AT_ONCE = 2**22  # numbers of per-record vectors held at a time
_GUARD = 1 - 1e-9  # keeps a clipped norm below the clip in spite of rounding in the last digits of a double


@dataclass(frozen=True)
class Secrets:
    """Where a request's randomness comes from: 32 bytes of its own, and the job's for noise that comes back."""

    fresh: bytes
    job: bytes


@dataclass(frozen=True)
class Masked:
    """How to release into a secure sum: this client's factor a_i, the std of its share of the noise, its masks."""

    factor: float
    std: float
    mask: np.ndarray


def run_masked(program: Program, inputs: Inputs, how: Masked, secrets: Secrets) -> np.ndarray:
    """The masked release of a program that releases one gradient, as 64-bit words."""
    out: list[np.ndarray] = []
    walker = _Walker(secrets, {}, int(inputs.round), how, out)
    walker.jaxpr(program.jaxpr.jaxpr, program.jaxpr.consts, jax.tree.leaves(inputs), "")
    (words,) = out
    return words


def run(program: Program, inputs: Inputs, stds: Mapping[int, float], secrets: Secrets) -> tuple[Any, Any]:
    """(upload, memory) of a client whose records are real. `stds`: of each site's noise, as priced."""
    walker = _Walker(secrets, stds, int(inputs.round))
    flat = walker.jaxpr(program.jaxpr.jaxpr, program.jaxpr.consts, jax.tree.leaves(inputs), "")
    return jax.tree.unflatten(program.outputs, flat)


def coordinates(jaxpr: Any) -> dict[int, int]:
    """How many numbers each release site of a program gives at a time."""
    found: dict[int, int] = {}
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        if eqn.primitive is dp_release:
            found[eqn.params["site"].number] = sum(math.prod(cast(ShapedArray, v.aval).shape) for v in eqn.outvars)
        for inner in (j for p in eqn.params.values() for j in jaxprs_in(p)):
            found |= coordinates(inner)
    return found


@dataclass(frozen=True)
class _Walker:
    secrets: Secrets
    stds: Mapping[int, float]
    round: int
    masked: Masked | None = None
    words: list[np.ndarray] = field(default_factory=list)  # where a masked release goes; the program sees zeros

    def jaxpr(self, jaxpr, consts: Sequence, args: Sequence, path: str) -> list:
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom):
            return atom.val if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self.equation(eqn, [read(a) for a in eqn.invars], path), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, eqn, values: list, path: str) -> list:
        if eqn.primitive is dp_release:
            return self.release(eqn.params["site"], values, path)
        inner = [j for p in eqn.params.values() for j in jaxprs_in(p)]
        if not any(releases_in(j) for j in inner):
            out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
            return out if eqn.primitive.multiple_results else [out]
        if eqn.primitive.name == "scan":
            return self.scan(eqn.params, values, path)
        if eqn.primitive.name in CALLS:
            return self.jaxpr(*open_jaxpr(inner[0]), values, path)
        raise Refused(f"a release stands inside '{eqn.primitive.name}'; use door.scan")

    def scan(self, p: dict, values: list, path: str) -> list:
        """Local steps, one after another, each with releases (so noise) of its own."""
        start = p["num_consts"] + p["num_carry"]
        consts, carry, xs = values[: p["num_consts"]], values[p["num_consts"] : start], values[start:]
        steps = range(p["length"])[::-1] if p["reverse"] else range(p["length"])
        ys: list[list] = []
        for i in steps:
            out = self.jaxpr(*open_jaxpr(p["jaxpr"]), [*consts, *carry, *(x[i] for x in xs)], f"{path}/{i}")
            carry, y = out[: p["num_carry"]], out[p["num_carry"] :]
            ys.append(y)
        ordered = ys[::-1] if p["reverse"] else ys
        return [*carry, *(jnp.stack(column) for column in zip(*ordered, strict=True))]

    def release(self, site: Site, values: list, path: str) -> list:
        op = operands(values)
        shapes = site.query.outputs(op.consts)
        coordinates = sum(math.prod(s.shape) for s in shapes)
        label = f"{site.number}{path}"
        x, y, weight = (
            np.asarray(a).reshape(-1, *a.shape[2:]) for a in (op.records.x, op.records.y, op.records.weight)
        )
        keep = (weight > 0) & self.sampled(site, label, len(weight))
        if self.masked is not None:
            self.words.append(self.masked_words(self.masked, site, op.consts, x[keep], y[keep]))
            return [jnp.zeros(s.shape, s.dtype) for s in shapes]
        std = self.stds[site.number] * scale_of_round(site.noise, self.round)
        if std == 0:  # a rehearsal: the node's policy allows infinite epsilon
            total = _sum(site.query, op.consts, x[keep], y[keep], site.clip, None)
        else:
            std = lattice_std(std, site.query.ratio * site.clip, coordinates)
            whole = _sum(site.query, op.consts, x[keep], y[keep], site.clip, std * 2.0**-BITS)
            secret = self.secrets.job if laid_out(site.noise) else self.secrets.fresh
            noise = draw(site.noise, self.round, coordinates, secret, f"noise/{label}")
            total = (whole + noise).astype(np.float64) * (std * 2.0**-BITS)
        ends = np.cumsum([math.prod(s.shape) for s in shapes])[:-1]
        parts = np.split(total, ends)
        return [jnp.asarray(p.reshape(s.shape), s.dtype) for p, s in zip(parts, shapes, strict=True)]

    def masked_words(self, how: Masked, site: Site, consts: Sequence, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        whole = _sum(site.query, consts, x, y, site.clip, step_of(how.std) / how.factor)  # a_i·v on the common lattice
        noise = draw(site.noise, self.round, len(whole), self.secrets.fresh, "noise")
        return masked(whole, noise, how.mask)

    def sampled(self, site: Site, label: str, count: int) -> np.ndarray:
        """Each record with probability `sample`, from secret bits: who took part must stay unknown."""
        if site.sample == 1:
            return np.ones(count, bool)
        return Bits(self.secrets.fresh, f"sample/{label}").words(count) < np.uint64(int(site.sample * 2**64))


def _sum(query: Query, consts: Sequence, x: np.ndarray, y: np.ndarray, clip: float, step: float | None) -> np.ndarray:
    """Sum of clipped vectors over records: int64 in units of `step`, or float64 where there is none."""
    consts = [jnp.asarray(c) for c in consts]
    size = sum(math.prod(s.shape) for s in query.outputs(consts))
    if step is not None and not (len(y) * clip / step < 2**62 and clip / step < 2**52):
        raise Refused(f"{len(y)} records at clip {clip:g} and this noise do not fit the lattice; raise the multiplier")
    total = np.zeros(size, np.float64 if step is None else np.int64)
    chunk = max(1, _AT_ONCE // size)
    for first in range(0, len(y), chunk):
        piece = slice(first, first + chunk)
        clipped = _summands(query, consts, x[piece], y[piece], clip)
        total += clipped.sum(axis=0) if step is None else np.rint(clipped / step).astype(np.int64).sum(axis=0)
    return total


def _summands(query: Query, consts: Sequence, x: np.ndarray, y: np.ndarray, clip: float) -> np.ndarray:
    """What each record adds, one row of doubles for each, of norm at most `clip`."""
    if not isinstance(query, SecondMoment):
        return _clipped(_vectors(query, consts, x, y), clip)
    v = _clipped(_vectors(query.vector, consts, x, y), math.sqrt(clip))
    rows, columns = np.triu_indices(v.shape[1])  # v·vᵀ in doubles: in floats it would not quite be semi-definite
    return v[:, rows] * v[:, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))


def _vectors(query: Query, consts: Sequence, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Every record's vector, unclipped, as one row of doubles."""
    leaves = _each(query, consts, jnp.asarray(x), jnp.asarray(y))
    return np.concatenate([np.asarray(leaf, np.float64).reshape(len(y), -1) for leaf in leaves], axis=1)


@partial(jax.jit, static_argnums=0)
def _each(query: Query, consts: Sequence, x: jax.Array, y: jax.Array) -> list[jax.Array]:
    """The query on blocks of one record, with a clip that never bites."""
    one = jnp.ones(1, x.dtype)
    return jax.vmap(lambda a, b: query.block(consts, a[None], b[None], one, math.inf))(x, y)


def _clipped(vectors: np.ndarray, clip: float) -> np.ndarray:
    """Rows of norm at most `clip`; a row that is not finite becomes zero and says nothing at all."""
    norm = np.linalg.norm(vectors, axis=1)
    finite = np.isfinite(norm)
    factor = np.where(finite, np.minimum(1.0, clip * _GUARD / np.maximum(norm, 1e-300)), 0.0)
    return np.where(finite[:, None], vectors, 0.0) * factor[:, None]
