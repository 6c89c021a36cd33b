"""Run one client's audited program with deployment noise: exact sums on a lattice, bits from the OS.

The jaxpr that was priced is walked equation by equation. Wherever it says `dp_release`, the sum is formed here as
noise.py describes; the simulator's sampler is never reached, and the key it would use is a dummy. Everything
else runs as it stands: after a release nothing touches records, so nothing else needs care.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Literal

from fedsofim.core.audit import Inputs, Program
from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr, releases_in
from fedsofim.core.release import dp_release, operands
from fedsofim.core.site import Site
from fedsofim.deploy.exact_sums import exact_sum
from fedsofim.deploy.noise import BITS, Bits, draw, laid_out, lattice_std, scale_of_round
from fedsofim.deploy.secure_sum import masked, step_of
from fedsofim.errors import Refused


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
            total = exact_sum(site.query, op.consts, x[keep], y[keep], site.clip, None)
        else:
            std = lattice_std(std, site.query.ratio * site.clip, coordinates)
            whole = exact_sum(site.query, op.consts, x[keep], y[keep], site.clip, std * 2.0**-BITS)
            secret = self.secrets.job if laid_out(site.noise) else self.secrets.fresh
            noise = draw(site.noise, self.round, coordinates, secret, f"noise/{label}")
            total = (whole + noise).astype(np.float64) * (std * 2.0**-BITS)
        ends = np.cumsum([math.prod(s.shape) for s in shapes])[:-1]
        parts = np.split(total, ends)
        return [jnp.asarray(p.reshape(s.shape), s.dtype) for p, s in zip(parts, shapes, strict=True)]

    def masked_words(self, how: Masked, site: Site, consts: Sequence, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        whole = exact_sum(
            site.query, consts, x, y, site.clip, step_of(how.std) / how.factor
        )  # a_i·v on the common lattice
        noise = draw(site.noise, self.round, len(whole), self.secrets.fresh, "noise")
        return masked(whole, noise, how.mask)

    def sampled(self, site: Site, label: str, count: int) -> np.ndarray:
        """Each record with probability `sample`, from secret bits: who took part must stay unknown."""
        if site.sample == 1:
            return np.ones(count, bool)
        return Bits(self.secrets.fresh, f"sample/{label}").words(count) < np.uint64(int(site.sample * 2**64))
