"""One release as it stands in a client's program: everything about it that is fixed, and what of that is allowed.

Whoever builds a `Site`, the door or a stranger's hand, `check_site` decides: only the library's own queries and
mechanisms, whose bounds are proved beside them, and only numbers with which the arithmetic of a release is sound.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedsofim.core.mechanisms import Mechanism, Mischarged, as_mechanism
from fedsofim.core.queries import PerRecord, Query, SecondMoment, SoftmaxGradient, ratio_of
from fedsofim.errors import InputError, Refused, is_number, is_whole

MAX_SITES = 64  # in one program; local steps belong in door.scan, which is one site
SMALLEST_CLIP, LARGEST_CLIP = 1e-9, 1e9  # beyond, float32 has no room for records, sums and noise beside each other

SMALLEST_SAMPLE = 1e-9  # below, no record would ever take part


class Site(NamedTuple):
    """Everything fixed about one release, as the audit reads it from the program."""

    number: int
    label: str
    query: Query
    clip: float
    noise: Mechanism
    sample: float
    share: float | None


def check_site(site: Site) -> None:
    """InputError for a setting out of range; Refused for what no door makes."""
    if not is_whole(site.number) or not 0 <= site.number < MAX_SITES:
        raise Refused(f"more than {MAX_SITES} releases are written out in one program; use door.scan")
    check_clip(site.clip, unpaid=type(site.noise) is Mischarged)
    if not is_number(site.sample) or not SMALLEST_SAMPLE <= site.sample <= 1:
        raise InputError(f"sample is {site.sample!r}; expected a probability from {SMALLEST_SAMPLE:g} to 1")
    if site.share is not None and not (is_number(site.share) and 0 < site.share < 1):
        raise InputError(f"share is {site.share!r}; expected a part of the budget strictly between 0 and 1")
    replace(as_mechanism(site.noise))  # type: ignore[type-var]  # made anew, so its own checks run again
    for vector in per_record(site.query):
        _check_vector(site.label, vector)


def check_clip(clip: Any, *, unpaid: bool = False) -> None:
    """A bound on a record's vector that float32 can keep. (Infinite only where a published account was wrong.)"""
    if unpaid and clip == math.inf:
        return
    if not is_number(clip) or not SMALLEST_CLIP <= clip <= LARGEST_CLIP:
        raise InputError(
            f"clip is {clip!r}; expected a number from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}. Rescale the features by "
            "a public constant if records are larger or smaller than that"
        )


def per_record(query: Query) -> tuple[PerRecord, ...]:
    """The per-record function that a query sums, if it is a stranger's; Refused for a query not of the library."""
    ratio_of(query)
    if type(query) is SoftmaxGradient:
        return ()
    return (query.vector if type(query) is SecondMoment else query,)  # type: ignore[return-value]


def _check_vector(label: str, vector: PerRecord) -> None:
    """What the function gives is what it says, in numbers that noise can be added to."""
    stated = [(tuple(s.shape), s.dtype) for s in vector.shapes]
    found = [(tuple(v.aval.shape), v.aval.dtype) for v in vector.jaxpr.outvars]
    if stated != found:
        raise Refused(
            f"the per-record function of '{label}' gives other shapes than it states; use the door as it is given"
        )
    if not sum(math.prod(shape) for shape, _ in found):
        raise InputError(f"the per-record function of '{label}' returned no numbers; expected at least one")
    for _, dtype in found:
        if not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(f"the per-record function returned {dtype}; expected floats, so cast with astype")
