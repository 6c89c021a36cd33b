"""One release as it stands in a client's program: everything about it that is fixed, and what of that is allowed.

Whoever builds a `Site`, the door or a stranger's hand, `own_site` decides: only the library's own queries and
mechanisms, whose bounds are proved beside them, and only numbers with which the arithmetic of a release is sound.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr

from fedsofim.core.mechanisms import Mechanism, Mischarged, own_mechanism
from fedsofim.core.queries import PerRecord, Query, SecondMoment, SoftmaxGradient, ratio_of
from fedsofim.errors import InputError, Refused, is_number, is_whole, shown

MAX_SITES = 64  # in one program; local steps belong in door.scan, which is one site
SMALLEST_CLIP, LARGEST_CLIP = 1e-9, 1e9  # beyond, float32 has no room for records, sums and noise beside each other

SMALLEST_SAMPLE = 1e-6  # below, the simulator's coins are too coarse (normals.py), and hardly a record takes part


class Site(NamedTuple):
    """Everything fixed about one release, as the audit reads it from the program."""

    number: int
    label: str
    query: Query
    clip: float
    noise: Mechanism
    sample: float
    share: float | None


def own_site(site: Site) -> Site:
    """The same site made anew, of exact built-in numbers and of the library's own queries and mechanisms.

    InputError for a setting out of range; Refused for what no door makes. What is priced is what was copied here:
    whoever made the site no longer holds any part of it, and a number that is more than a number is a plain one now.
    """
    if type(site) is not Site or not is_whole(site.number) or not 0 <= site.number < MAX_SITES:
        raise Refused(f"more than {MAX_SITES} releases are written out in one program; use door.scan")
    noise = own_mechanism(site.noise)
    check_clip(site.clip, unpaid=type(noise) is Mischarged)
    check_sample("sample", site.sample)
    if site.share is not None and not (is_number(site.share) and 0 < float(site.share) < 1):
        raise InputError(f"share is {shown(site.share)}; expected a part of the budget strictly between 0 and 1")
    if float(site.sample) < 1 and ratio_of(site.query) != 2:
        raise Refused(
            f"the release '{site.label}' samples records for a second moment; what samples save is proved for sums of "
            "vectors only (its records' matrices are longer than half of what replacing one moves). Read all records"
        )
    return Site(
        number=int(site.number),
        label=str(site.label),
        query=_own_query(str(site.label), site.query),
        clip=float(site.clip),
        noise=noise,
        sample=float(site.sample),
        share=None if site.share is None else float(site.share),
    )


def check_clip(clip: Any, *, unpaid: bool = False) -> None:
    """A bound on a record's vector that float32 can keep. (Infinite only where a published account was wrong.)"""
    if unpaid and clip == math.inf:
        return
    if not is_number(clip) or not SMALLEST_CLIP <= float(clip) <= LARGEST_CLIP:
        raise InputError(
            f"clip is {shown(clip)}; expected a number from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}. Rescale the "
            "features by a public constant if records are larger or smaller than that"
        )


def check_sample(name: str, sample: Any) -> None:
    if not is_number(sample) or not SMALLEST_SAMPLE <= float(sample) <= 1:
        raise InputError(f"{name} is {shown(sample)}; expected a probability from {SMALLEST_SAMPLE:g} to 1")


def per_record(query: Query) -> tuple[PerRecord, ...]:
    """The per-record function that a query sums, if it is a stranger's; Refused for a query not of the library."""
    ratio_of(query)
    if type(query) is SoftmaxGradient:
        return ()
    return (query.vector if type(query) is SecondMoment else query,)  # type: ignore[return-value]


def _own_query(label: str, query: Query) -> Query:
    vectors = [_own_vector(label, vector) for vector in per_record(query)]
    if not vectors:
        return SoftmaxGradient()
    return SecondMoment(vectors[0]) if type(query) is SecondMoment else vectors[0]


def _own_vector(label: str, vector: PerRecord) -> PerRecord:
    """What the function gives is what it says, in numbers that noise can be added to."""
    if type(vector.jaxpr) is not Jaxpr:
        raise Refused(f"the per-record function of '{label}' is no program of JAX's own make; use door.sum")
    jaxpr = vector.jaxpr.replace(eqns=list(vector.jaxpr.eqns))
    stated = [(tuple(s.shape), s.dtype) for s in vector.shapes]
    avals: list[Any] = [v.aval for v in jaxpr.outvars]
    found = [(tuple(aval.shape), aval.dtype) for aval in avals]
    if stated != found:
        raise Refused(f"the per-record function of '{label}' gives other shapes than it states; use door.sum")
    if not sum(math.prod(shape) for shape, _ in found):
        raise InputError(f"the per-record function of '{label}' returned no numbers; expected at least one")
    for _, dtype in found:
        if not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(f"the per-record function returned {dtype}; expected floats, so cast with astype")
    return PerRecord(jaxpr, tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in found))
