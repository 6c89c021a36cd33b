"""Each of the audit's checks by itself, where another stands behind it: none may lean on the other."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from audited import audited
from fedsofim.core.opening import check_known
from fedsofim.core.queries import PerRecord, SecondMoment
from fedsofim.core.site import per_record
from fedsofim.core.walk import Value, Walk
from fedsofim.errors import Refused

# --- numbers of the door's calls ----------------------------------------------------------------------------


def step(door, theta):
    return theta - door.gradient(theta)


def test_one_number_for_two_releases_is_refused_by_the_walk():
    def client(door, params, state, memory):
        twin = replace(door, _sites=[])
        return door.gradient(params) - twin.gradient(params + 1), memory

    with pytest.raises(Refused, match="same noise"):
        audited(client)


def test_one_number_for_a_scan_and_a_release_is_refused_by_the_walk():
    """The steps' keys are split off the key that the release folds its round into: they may meet."""

    def client(door, params, state, memory):
        local = door.scan(step, params, 2)
        twin = replace(door, _sites=[])
        return local - twin.gradient(params), memory

    with pytest.raises(Refused, match="both a release and a scan"):
        audited(client)


def test_two_scans_of_one_number_are_refused_by_the_walk():
    def client(door, params, state, memory):
        twin = replace(door, _sites=[])
        return door.scan(step, params, 2) - twin.scan(step, params, 2), memory

    with pytest.raises(Refused, match="same noise"):
        audited(client)


# --- what a primitive holds ---------------------------------------------------------------------------------


def solved(b, spy):
    """b/2 by a solver of our own, whose product shows somebody its argument if `spy`."""

    def twice(v):
        shown = jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(v.shape, v.dtype), v) if spy else v
        return 2 * shown

    return jax.lax.custom_linear_solve(twice, b, lambda matvec, v: v / 2, symmetric=True)


@pytest.mark.parametrize("place", ["program", "per record"])
def test_what_a_solver_runs_is_looked_into(place):
    def client(spy):
        if place == "program":
            return lambda door, params, state, memory: (solved(door.gradient(params), spy), memory)
        return lambda door, params, state, memory: (door.sum(lambda x, y: solved(x, spy), clip=1.0), memory)

    assert len(audited(client(spy=False)).charges) == 1  # the solver itself is known
    with pytest.raises(Refused, match="callback"):
        audited(client(spy=True))


# --- programs that were not opened --------------------------------------------------------------------------


def printing(x):
    jax.debug.print("{}", x)
    return x


def calling(x):
    return jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((), jnp.float32), x)


@pytest.mark.parametrize("fn", [printing, calling, jax.jit(jnp.sin)], ids=["print", "callback", "call"])
def test_the_walk_takes_no_program_that_was_not_opened(fn):
    jaxpr = jax.make_jaxpr(fn)(np.float32(0)).jaxpr
    with pytest.raises(Refused, match="no rule"):
        Walk().jaxpr(jaxpr, (), [Value()], ())


@pytest.mark.parametrize("fn", [printing, calling], ids=["print", "callback"])
@pytest.mark.parametrize("around", ["nothing", "scan", "cond"])
def test_nothing_that_acts_is_known_at_any_depth(fn, around):
    def program(x):
        if around == "scan":
            return jax.lax.scan(lambda c, _: (fn(c), None), x, None, length=2)[0]
        return jax.lax.cond(x > 0, fn, lambda v: v, x) if around == "cond" else fn(x)

    with pytest.raises(Refused, match=r"print|callback"):
        check_known(jax.make_jaxpr(program)(np.float32(0)))


# --- queries ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unclipped(PerRecord):
    """A stranger's query that would clip nothing."""

    def block(self, consts, x, y, weight, clip, lattice, rate):
        return PerRecord.block(self, consts, x, y, weight, 1e9, lattice, rate)


def test_only_the_librarys_own_queries_are_summed():
    record = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    honest, _, _ = PerRecord.trace(lambda x, y: x, *record)
    forged = Unclipped(honest.jaxpr, honest.shapes)
    assert per_record(honest) == (honest,) and per_record(SecondMoment(honest)) == (honest,)
    for query in (forged, SecondMoment(forged)):
        with pytest.raises(Refused, match="not proved"):
            per_record(query)
