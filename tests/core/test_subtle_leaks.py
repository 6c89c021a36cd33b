"""Leaks that an attacker found in the audit after everything known was refused: each was accepted, and left."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap
from jax.extend.core.primitives import linear_solve_p

from fedsofim.core.mechanisms import Independent, Tree
from fedsofim.core.method import Setup
from fedsofim.core.queries import PerRecord, SecondMoment
from fedsofim.core.release import dp_release
from fedsofim.core.site import Site
from fedsofim.errors import InputError, Refused
from leaks import method_of, priced

# --- loops of no steps --------------------------------------------------------------------------------------


def hidden(door):
    x = door._records.x[0, 0, 0]
    return jnp.where(jnp.abs(x) > 1.5, x, jnp.zeros_like(x))


def through_a_scan_of_no_steps(door, params, state, memory):
    out = jax.lax.scan(lambda c, _: (jnp.zeros_like(c), None), hidden(door), None, length=0)[0]
    return door.gradient(params), out


def through_a_loop_of_no_steps(door, params, state, memory):
    return door.gradient(params), jax.lax.fori_loop(0, 0, lambda i, c: jnp.zeros_like(c), hidden(door))


@pytest.mark.parametrize("leak", [through_a_scan_of_no_steps, through_a_loop_of_no_steps], ids=lambda f: f.__name__)
def test_what_goes_into_a_loop_of_no_steps_comes_out(leak):
    with pytest.raises(Refused, match="client memory depends on the records"):
        priced(leak)


# --- what one record does to others -------------------------------------------------------------------------


def test_a_loop_that_waits_for_all_records_is_refused():
    """betainc goes round until all its numbers have converged: one slow record changes the last digits of others."""
    with pytest.raises(Refused, match="'regularized_incomplete_beta' is not an operation"):
        priced(lambda door, params, state, memory: (door.sum(lambda x, y: jax.lax.betainc(x, x, x), clip=1.0), memory))


# --- two faces ----------------------------------------------------------------------------------------------


class Solves:
    """Holds programs where nobody looks: not a tuple, but it can be gone through like one."""

    def __init__(self, jaxprs):
        self.jaxprs = jaxprs

    def __getattr__(self, name):
        return getattr(self.jaxprs, name)

    def __iter__(self):
        return iter(self.jaxprs)

    def __hash__(self):
        return 0


def test_programs_hidden_in_a_parameter_are_refused():
    def fn(x, y):
        closed = jax.make_jaxpr(lambda b: jax.lax.custom_linear_solve(lambda v: v, b, lambda f, v: v))(x)
        (eqn,) = (e for e in closed.eqns if e.primitive is linear_solve_p)
        return linear_solve_p.bind(x, **(eqn.params | {"jaxprs": Solves(eqn.params["jaxprs"])}))[0]

    with pytest.raises(Refused, match="is told its jaxprs"):
        priced(lambda door, params, state, memory: (door.sum(fn, clip=1.0), memory))


def test_keys_that_say_they_are_equal_are_refused():
    default = jax.random.key(0).dtype._impl  # type: ignore[union-attr]

    class Same(type(default)):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return hash(default)

    mine = Same(*default)

    def fn(x, y):
        return x * jax.random.uniform(jax.random.key(0, impl=mine), dtype=x.dtype)

    with pytest.raises(InputError, match=r"is told its impl|another generator|PRNG"):
        priced(lambda door, params, state, memory: (door.sum(fn, clip=1.0), memory))


class TwoFaced:
    """Honest until its constants are asked for."""

    def __init__(self, shown, run):
        self.now, self.run = shown, run

    def __getattr__(self, name):
        if name == "constvars":
            self.now = self.run
        return getattr(self.now, name)


def by_hand(query, sample=1.0):
    def client(door, params, state, memory):
        site = Site(number=0, label="mine", query=query, clip=1.0, noise=Independent(), sample=sample, share=None)
        key = jax.random.fold_in(door._key, 0)
        out = dp_release.bind(key, door.round, door._index, door._stds, *door._records, site=site)
        return params * out[0].ravel()[0].astype(params.dtype), memory

    return client


def vector(fn=lambda x, y: x) -> PerRecord:
    record = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    return PerRecord.trace(fn, *record)[0]


@custom_vmap
def mixing(x):
    return x


mixing.def_vmap(lambda size, batched, x: (jnp.broadcast_to(x.sum(0), x.shape), True))


def test_a_program_with_two_faces_is_refused():
    honest, run = vector(), vector(lambda x, y: mixing(x))
    with pytest.raises(Refused, match="no program of JAX's own make"):
        priced(by_hand(PerRecord(TwoFaced(honest.jaxpr, run.jaxpr), honest.shapes)))


def test_a_sampled_second_moment_is_refused():
    """Its price was that of vectors half as long as what replacing one moves: epsilon 3.48 was printed as 1."""
    assert priced(by_hand(SecondMoment(vector()))).releases == 5
    with pytest.raises(Refused, match="samples records for a second moment"):
        priced(by_hand(SecondMoment(vector()), sample=0.01))


# --- numbers that are more than numbers ---------------------------------------------------------------------


class Shrinking(float):
    def __mul__(self, other):
        return 1e-6

    __rmul__ = __mul__


@pytest.mark.parametrize("clip", [Shrinking(2.0), np.float16(2.0), np.float32(2.0)], ids=lambda c: type(c).__name__)
def test_a_clip_becomes_a_plain_number(clip):
    plan = priced(lambda door, params, state, memory: (door.gradient(params, clip=clip), memory))
    plain = priced(lambda door, params, state, memory: (door.gradient(params, clip=2.0), memory))
    assert type(plan.program.sites[0].clip) is float and plan.sum_std == plain.sum_std


class Once(int):
    """As long as the loop is; as a price, one."""

    def __mul__(self, other):
        return other

    __rmul__ = __mul__


def test_a_length_that_counts_otherwise_is_refused_or_counted():
    def client(door, params, state, memory):
        return door.scan(lambda d, t: t - d.gradient(t), params, Once(50)), memory

    assert priced(client).releases == 50 * 5


def test_what_was_priced_cannot_be_changed_afterwards():
    """The program that runs holds copies: the method's own objects are of no use to it."""
    noise, query = Independent(1.0), vector()
    method = method_of(lambda door, params, state, memory: (door.gradient(params, noise=noise), memory))

    def server(mean, state, params, facts):
        object.__setattr__(noise, "scale", 1e-6)
        return params - mean, state

    plan = priced(method.client)
    changed = priced(by_hand(query))
    object.__setattr__(query, "jaxpr", vector(lambda x, y: mixing(x)).jaxpr)
    server(0, 0, 0, 0)
    assert plan.program.sites[0].noise == Independent(1.0)
    (release,) = (e for e in plan.program.jaxpr.jaxpr.eqns if e.primitive is dp_release)
    assert release.params["site"].noise == Independent(1.0)
    held: Any = changed.program.sites[0].query
    assert held is not query and "custom_vmap_call" not in {e.primitive.name for e in held.jaxpr.eqns}


# --- noise that comes back ----------------------------------------------------------------------------------


def test_phases_of_a_node_draw_their_tree_noise_apart():
    """Site 0 of the setup and site 0 of round 0 drew one noise from the job's secret."""
    from fedsofim.core.models import softmax_head
    from fedsofim.core.phase import Phase
    from fedsofim.core.programs import read_programs
    from fedsofim.deploy.execute import Secrets, run
    from node_programs import inputs_for, public_for, shapes_for

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 3)).astype(np.float32), rng.integers(0, 3, 9).astype(np.int32)

    def sums(sign):
        return lambda door, *_: (door.sum(lambda v, label: sign * v, clip=10.0, noise=Tree()), ())

    base = method_of(lambda door, params, state, memory: (sums(-1)(door)[0], memory))
    method = base._replace(
        server=lambda mean, state, params, facts: (params, state),
        setup=Setup(lambda door, params: sums(1)(door)[0], lambda mean, state: state),
    )
    programs = read_programs(method, softmax_head(), (), public_for(x, y, 10.0))
    shapes = shapes_for(method, x, y)
    secrets = [Secrets(bytes([i] * 32), bytes(32)) for i in (1, 2)]  # a fresh one each, and the job's
    once = inputs_for(replace(shapes, state=(), memory=()), x, y)
    setup, _ = run(programs[Phase.SETUP], once, {0: 100.0}, secrets[0])
    first, _ = run(programs[Phase.ROUND], inputs_for(shapes, x, y), {0: 100.0}, secrets[1])
    assert np.abs((np.asarray(setup) - np.asarray(first)) / 2 - x.sum(0)).max() > 1.0


def test_a_tree_of_too_many_rounds_is_refused():
    with pytest.raises(InputError, match="rounds"):
        Tree(restart=4).cost(2**24 + 64)
    assert math.isfinite(Tree(restart=4).cost(2**20))
