"""Reads a client's program: what it releases, how often, and that nothing else leaves.

The program is traced without records, its calls are opened (opening.py), and it is walked (walk.py); what was found
becomes its charges. The jaxpr that was read is the one that runs. A second opinion, by running it: second_opinion.py.

Outside of both is only what is done to this library itself: Python that replaces its functions or JAX's.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr

from fedsofim.core.accounting import Charge
from fedsofim.core.containers import check_containers
from fedsofim.core.door import Door, Facts
from fedsofim.core.mechanisms import Independent, Mischarged
from fedsofim.core.models import Model
from fedsofim.core.opening import opened
from fedsofim.core.phase import Phase, SiteKey
from fedsofim.core.queries import ratio_of
from fedsofim.core.records import Records
from fedsofim.core.release import auditing, dp_release
from fedsofim.core.sealed import check_width
from fedsofim.core.site import Site, per_record
from fedsofim.core.walk import KEY, RECORDS, REMEDY, Walk
from fedsofim.errors import InputError, Refused, raised


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a client's program takes. Private: key and records."""

    params: Any
    state: Any  # the server's, all of it public
    memory: Any  # what this client kept from its last round
    key: Any
    index: Any
    size: Any
    round: Any
    noise_std: Any
    stds: Any
    records: Records


@dataclass(frozen=True, eq=False)
class Program:
    """A client's program as audited: the jaxpr that was priced is the one that runs."""

    jaxpr: ClosedJaxpr
    outputs: Any  # structure of (upload, memory)
    charges: tuple[Charge, ...]
    sites: tuple[Site, ...]
    phase: Phase = Phase.ROUND

    def __call__(self, inputs: Inputs) -> tuple[Any, Any]:
        flat = eval_jaxpr(self.jaxpr.jaxpr, self.jaxpr.consts, *jax.tree.leaves(inputs))
        return jax.tree.unflatten(self.outputs, flat)


def audit_program(
    client: Callable,
    model: Model,
    inputs: Inputs,
    facts: Facts,
    phase: Phase,
    *,
    times: int | None = None,
    units: bool = False,
    declared: tuple[Any, ...] | None = None,
) -> Program:
    """Trace client(door, params, state, memory) -> (upload, memory), price it for its phase of a run, or refuse it.

    `inputs` are shapes only: no record is needed to price a program. `times`: how often a client runs
    it (None: in every round of its phase). `units`: records are laid out by unit (unit.py).
    `declared`: arrays that the model says are public, as they were before any program ran.
    """

    check_takes("the client's program", client, "door", "params", "state", "memory")

    def program(i: Inputs):
        door = Door(
            _records=i.records,
            _model=model,
            _key=i.key,
            _index=i.index,
            _stds=i.stds,
            _sites=[],
            _units=units,
            size=i.size,
            round=i.round,
            facts=facts._replace(noise_std=i.noise_std),
        )
        returned = client(door, i.params, i.state, i.memory)
        return pair("the client", returned, "the upload, and the memory the client keeps")

    declared = declared_by(model) if declared is None else declared  # before a stranger's program runs
    closed, out = _traced(program, inputs)
    walk = Walk(declared=declared)
    given = walk.inputs((f.name, getattr(inputs, f.name)) for f in fields(Inputs))
    values = walk.jaxpr(closed.jaxpr, closed.consts, given, ())
    walk.check_numbers()
    check_width(closed)
    for vector in (v for site, _ in walk.releases for v in per_record(site.query)):
        check_width(vector.jaxpr)
    for name, value in zip(output_names(jax.tree.structure(out)), values, strict=True):
        for taint in (RECORDS, KEY):
            if taint in value.taint:
                raise Refused(f"{name} depends on the {taint} other than through a release; {REMEDY[taint]}")
    often = phase.times(facts.rounds) if times is None else times
    charges = tuple(_charge(site, count, phase, often) for site, count in walk.releases)
    check_containers("the client", jax.tree.structure(out))
    return Program(closed, jax.tree.structure(out), charges, tuple(site for site, _ in walk.releases), phase)


def declared_by(model: Model) -> tuple[Any, ...]:
    """Arrays that a model closes over and says are public."""
    return () if model.fixed is None else tuple(model.fixed.arrays)


def _traced(program: Callable, inputs: Inputs) -> tuple[ClosedJaxpr, Any]:
    """The program as a jaxpr with its calls opened, and the shapes of what it returns."""
    try:
        with auditing():
            return jax.make_jaxpr(opened(program), return_shape=True)(inputs)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise Refused(
            "the program branches in Python on a value known only at run time, or hands it to NumPy; if it came from "
            "records that is a leak, and if it was released use jnp.where and jax.numpy"
        ) from error
    except jax.errors.UnexpectedTracerError as error:
        raise Refused(
            "a value from inside a function was kept and used outside it; if that was a per-record function it is a "
            f"raw record. {REMEDY[RECORDS].capitalize()}"
        ) from error
    except NameError as error:
        if "axis name" not in str(error):
            raise InputError(f"the client's program cannot be traced: {raised(error)}") from error
        raise Refused(
            "the program takes a mean or sum over an axis of records by name, as batch normalisation does: a record "
            "would then count in other records' gradients, beyond the clip. Normalise each record by itself (layer or "
            "group normalisation)"
        ) from error
    except InputError:
        raise
    except NotImplementedError as error:
        if dp_release.name not in str(error):
            raise InputError(f"the client's program cannot be traced: {raised(error)}") from error
        raise Refused(
            "a release is differentiated or transposed, which has no meaning for a noisy sum; release first, and "
            "compute with what came out"
        ) from error
    except Exception as error:  # whatever the method's or the model's own code raises
        raise InputError(f"the client's program cannot be traced: {raised(error)}") from error


def check_takes(who: str, function: Callable, *names: str) -> None:
    """An error unless a function takes these arguments."""
    try:
        inspect.signature(function).bind(*names)
    except TypeError as error:
        raise InputError(f"{who} does not take ({', '.join(names)}): {error}") from None


def pair(who: str, returned: Any, expected: str) -> tuple[Any, Any]:
    """The two values that a client or a server must return."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        one = "array" if isinstance(returned, jax.Array) else type(returned).__name__
        what = f"{len(returned)} values" if isinstance(returned, tuple) else f"one {one}"
        raise InputError(f"{who} returned {what}; expected two: {expected}")
    for leaf in jax.tree.leaves(returned):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float):
            raise InputError(f"{who} returned a {type(leaf).__name__} among its values; expected arrays of numbers")
    return returned


def _charge(site: Site, times: int, phase: Phase, rounds: int) -> Charge:
    """The price over the run of one site that stands in a program that is run in so many rounds."""
    if site.sample < 1 and not isinstance(site.noise, Independent):
        raise Refused(
            f"the release '{site.label}' samples records under noise laid out over the rounds; no accountant here "
            "prices that. Sample with independent noise, or read all records"
        )
    weight = times * site.noise.cost(rounds)
    charged = times * site.noise.charged(rounds) if isinstance(site.noise, Mischarged) else None
    return Charge(
        site=SiteKey(phase, site.number),
        label=site.label,
        clip=site.clip,
        ratio=ratio_of(site.query),
        releases=times * rounds,
        weight=weight,
        sample=site.sample,
        share=site.share,
        charged=charged,
    )


def output_names(structure: Any) -> list[str]:
    """What each of the values that a program returns is called, for people."""
    paths = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(structure, [0] * structure.num_leaves))[0]
    return [_output(jax.tree_util.keystr(path)) for path, _ in paths]


def _output(path: str) -> str:
    """'[0]['w']' of (upload, memory) in words."""
    place, rest = ("upload", path[3:]) if path.startswith("[0]") else ("client memory", path[3:])
    return f"the {place}{' ' + rest if rest else ''}"
