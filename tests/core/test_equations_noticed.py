"""Equations that no honest trace has: each is refused for what it says it does, whatever its name is."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Literal

from audited import audited
from fedsofim.core import second_opinion
from fedsofim.core.mechanisms import Independent
from fedsofim.core.opening import check_known
from fedsofim.core.parameters import check_parameters, is_program
from fedsofim.core.programs import upload_shapes
from fedsofim.core.queries import PerRecord
from fedsofim.core.second_opinion import Seen, check_keys, confirm
from fedsofim.core.site import Site, own_site
from fedsofim.errors import Refused


def printing(x):
    jax.debug.print("{}", x)
    return x


def acting(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, whose equations say that they act as a print does."""
    effects = jax.make_jaxpr(printing)(np.float32(0)).eqns[0].effects
    assert effects
    eqns = [eqn.replace(effects=effects) for eqn in closed.jaxpr.eqns]
    return ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)


@pytest.mark.parametrize("fn", [jnp.sin, lambda x: jax.lax.cond(x > 0, jnp.sin, jnp.cos, x)], ids=["sin", "cond"])
def test_a_known_operation_that_acts_is_refused(fn):
    honest = jax.make_jaxpr(fn)(np.float32(0))
    check_known(honest)
    with pytest.raises(Refused, match="carries values out of the program"):
        check_known(acting(honest))


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.bits(key, (3,), jnp.uint32),
        lambda key: jax.random.fold_in(key, 1),
        lambda key: jax.lax.cond(True, jax.random.bits, lambda k: jnp.uint64(0), key),
    ],
    ids=["bits", "fold in", "cond"],
)
def test_keys_of_another_generator_are_refused_wherever_they_come_from(draw):
    """Bits of another generator may repeat where those of the default do not: no proof here is about them."""
    check_known(jax.make_jaxpr(draw)(jax.random.key(0)))
    with pytest.raises(Refused, match="keys of another generator"):
        check_known(jax.make_jaxpr(draw)(jax.random.key(0, impl="rbg")))


def test_an_array_written_into_an_equation_is_refused():
    """A trace has numbers there only; an array may hold records, and nobody prices it."""
    closed = jax.make_jaxpr(lambda x: x + 1)(np.zeros(3, np.float32))
    (eqn,) = closed.eqns
    hidden = Literal(np.arange(3, dtype=np.float32), ShapedArray((3,), np.dtype(np.float32)))
    forged = closed.jaxpr.replace(eqns=[eqn.replace(invars=[eqn.invars[0], hidden])])
    check_known(closed)
    with pytest.raises(Refused, match="captures an array"):
        check_known(ClosedJaxpr(forged, []))


# --- what a site says of itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, dtype", [((2,), jnp.float32), ((4,), jnp.float32), ((3,), jnp.float16), ((3, 1), None)]
)
def test_a_function_that_gives_other_shapes_than_it_states_is_refused(shape, dtype):
    """Noise is drawn in the shapes that are stated, smaller or larger."""
    record = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    honest, _, _ = PerRecord.trace(lambda x, y: x, *record)
    forged = PerRecord(honest.jaxpr, (jax.ShapeDtypeStruct(shape, dtype or jnp.float32),))
    site = Site(number=0, label="sum", query=honest, clip=1.0, noise=Independent(), sample=1.0, share=None)
    own_site(site)
    with pytest.raises(Refused, match="other shapes than it states"):
        own_site(site._replace(query=forged))


class LooserSite(Site):
    """Says what it likes to whoever asks again."""


def test_a_subclass_of_a_site_is_no_site():
    record = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    query, _, _ = PerRecord.trace(lambda x, y: x, *record)
    site = Site(number=0, label="sum", query=query, clip=1.0, noise=Independent(), sample=1.0, share=None)
    assert type(own_site(site)) is Site
    with pytest.raises(Refused):
        own_site(LooserSite(*site))


# --- what an equation is told -------------------------------------------------------------------------------


class Whole(int):
    """Equal to its number, whatever it multiplies like."""


class Pair(tuple):
    """Of what it holds, now."""


class Word(str):
    """Spelt like the one that is expected."""


class Unwritten(ClosedJaxpr):
    """A program that shows other equations than it runs."""


@pytest.mark.parametrize("value", [Whole(2), Pair((1, 2)), Word("clip"), (1, (Whole(2),)), [Pair()]], ids=repr)
def test_what_is_nearly_a_plain_value_is_refused(value):
    check_parameters("mul", {"axes": (1, 2.0, "x", None, True, [np.float32(1), np.dtype(int)])})
    with pytest.raises(Refused, match="told its axes"):
        check_parameters("mul", {"axes": value})


@pytest.mark.parametrize("base, module", [(object, "jax.lax"), (np.float64, "numpy"), (tuple, "jax._src.lax.slicing")])
def test_a_class_that_says_it_is_from_elsewhere_is_looked_for_there(base, module):
    forged = type("Setting", (base,), {"__module__": module})
    with pytest.raises(Refused, match="told its mode by a Setting"):
        check_parameters("gather", {"mode": forged()})
    assert isinstance(jax.lax.GatherScatterMode.CLIP, jax.lax.GatherScatterMode)
    check_parameters("gather", {"mode": jax.lax.GatherScatterMode.CLIP})


def test_what_is_nearly_a_program_is_none():
    closed = jax.make_jaxpr(jnp.sin)(np.float32(0))
    forged = Unwritten(closed.jaxpr, closed.consts)
    assert is_program(closed) and is_program(closed.jaxpr) and not is_program(forged)
    with pytest.raises(Refused, match="where a program should"):
        check_known(forged)
    with pytest.raises(Refused, match="told its body"):
        check_parameters("scan", {"body": forged})


# --- what a program gives -----------------------------------------------------------------------------------


def test_the_shapes_of_an_upload_are_not_those_of_the_memory():
    program = audited(lambda door, params, state, memory: (door.gradient(params), memory))
    assert upload_shapes(program).shape == (4, 3)


def test_keys_that_nobody_used_are_all_different():
    check_keys([])
    one = np.array([[1, 2, 0]], np.uint32)
    check_keys([one, one + 1])
    with pytest.raises(Refused, match="same noise"):
        check_keys([one, one + 1, one])


@pytest.mark.parametrize("rounds", [1, 2, 5, 1000])
def test_the_second_opinion_looks_at_rounds_that_happen(rounds: int, monkeypatch: pytest.MonkeyPatch):
    """At the first, at the last, at others between them, and at all of a few; keys of two rounds must differ."""
    seen: list[int] = []

    def look(t: int, key: int, size: float) -> Seen:
        seen.append(t)
        return Seen([np.zeros(1), np.zeros(1)], [np.array([[7, 7, t]], np.uint32)])

    monkeypatch.setattr(second_opinion, "_compiled", lambda program, inputs: look)
    confirm(SimpleNamespace(outputs=jax.tree.structure((0, 0)), sites=()), None, rounds)  # type: ignore[arg-type]
    assert (min(seen), max(seen)) == (0, rounds - 1)
    assert len(set(seen)) == min(rounds, second_opinion.ROUNDS)
