"""A second opinion on per-record functions: mapped over records as they will be, they keep records apart.

That a record's vector depends on this record alone is read from the program: every operation that it may hold is
mapped lane by lane. What XLA makes of a mapped operation is XLA's matter, and once it was something else (apart.py). So
here every per-record function is run on a few made-up records, of the types and shapes that it will see, and again with
one of them NaN, infinite or huge: what it gives for the others must be the same to the last bit.

A function with a loop of unknown length is not run: of what is not finite it may never end.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr
from fedsofim.core.keys import key_of_words
from fedsofim.core.leaves import evaluated
from fedsofim.core.queries import PerRecord
from fedsofim.core.site import Site, per_record
from fedsofim.errors import Refused

SPOILT = (np.nan, np.inf, 3e38)  # one after another; the last is finite, and few functions of it are
LANES, ODD = 3, 1  # as many records, of which this one is spoilt: it has a neighbour on either side


def check_lanes(sites: Iterable[Site], options: dict[str, Any]) -> None:
    """Refused if in a per-record function of these releases one record reaches another. `options`: of the compiler."""
    for site in sites:
        for vector in per_record(site.query):
            if not _may_not_end(vector.jaxpr):
                _check(site.label, vector, options)


def _check(label: str, vector: PerRecord, options: dict[str, Any]) -> None:
    def mapped(consts: Sequence, x: jax.Array, y: jax.Array) -> Any:
        """As a node maps it, and as the simulator does."""
        parts = jax.vmap(lambda a, b: evaluated(vector.jaxpr, vector.leaves(), consts, a, b))(x, y)
        return vector.vectors(consts, x, y), parts

    consts = [_constant(v.aval) for v in vector.jaxpr.constvars]
    x, y = (_records(v.aval) for v in vector.jaxpr.invars)
    run = jax.jit(mapped).lower(consts, x, y).compile(compiler_options=options)
    before = _others(run(consts, x, y))
    for value in SPOILT:
        if _others(run(consts, _spoilt(x, value), _spoilt(y, value))) != before:
            raise Refused(
                f"the per-record function of '{label}' gave something else for a record when another beside it was not "
                "finite: as it is compiled here, records are not kept apart, and the clip would bound nothing. Compute "
                "in float32, and without what is unusual"
            )


def _others(outputs: Any) -> list[bytes]:
    """What the lanes beside the odd one gave, bit by bit."""
    return [np.delete(np.asarray(a), ODD, axis=0).tobytes() for a in jax.tree.leaves(outputs)]


def _may_not_end(jaxpr: Any) -> bool:
    return any(
        eqn.primitive.name == "while" or any(_may_not_end(j) for p in eqn.params.values() for j in jaxprs_in(p))
        for eqn in open_jaxpr(jaxpr)[0].eqns
    )


def _constant(aval: Any) -> Any:
    """A public value that the function closes over."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return key_of_words(np.ones((*aval.shape, 2), np.uint32))
    return _numbers(aval.shape, aval.dtype)


def _records(aval: Any) -> np.ndarray:
    return _numbers((LANES, *aval.shape), aval.dtype)


def _numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.ones(shape, dtype)
    return np.random.default_rng(0).uniform(0.1, 1.0, shape).astype(dtype)


def _spoilt(records: np.ndarray, value: float) -> np.ndarray:
    if not jnp.issubdtype(records.dtype, jnp.floating):
        return records
    out = records.copy()
    out[ODD] = value
    return out
