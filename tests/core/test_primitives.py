"""Deny by default: what JAX has and the audit has no rule for is written down, and refused by name."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive

from fedsofim.core import primitives
from fedsofim.core.primitives import RULES, Rule, rule_of
from fedsofim.errors import Refused
from leaks import priced

LISTED = Path(__file__).with_name("primitives_without_rule.txt")
LISTING = """
import gc, jax, jax.numpy, jax.random, jax.experimental.checkify, jax.experimental.pallas, jax.experimental.shard_map
from jax.extend.core import Primitive
from fedsofim.core.primitives import rule_of
print(jax.__version__)
found = [p for p in gc.get_objects() if isinstance(p, Primitive)]
ours = ("dp_release", "fedsofim_momentum")
print(*sorted({p.name for p in found if rule_of(p) is None and p.name not in ours}), sep="\\n")
"""


@cache
def of_jax() -> dict[str, Primitive]:
    """The primitives in JAX's own modules, by name."""
    modules = [m for name, m in sys.modules.items() if name.startswith("jax") and m is not None]
    return {p.name: p for m in modules for p in list(vars(m).values()) if isinstance(p, Primitive)}


@pytest.mark.slow
def test_what_has_no_rule_is_written_down():
    """A new JAX may have more or fewer: then this list is to be read again, primitive by primitive, and written anew.

    With another version than the one it was written for it is not compared: what has no rule is refused there anyway.
    """
    version, *listed = LISTED.read_text().split()
    installed, *without = subprocess.check_output([sys.executable, "-c", LISTING], text=True).split()
    if version != installed:
        pytest.skip(f"the list is for JAX {version}; without a rule in {installed}: {', '.join(without)}")
    assert without == listed
    assert not set(listed) & set(RULES), "a primitive with a rule is on the list of those without"


ACTING = """
    debug_callback debug_print pure_callback io_callback custom_vmap_call ffi_call psum all_gather axis_index new_ref
    get swap addupdate shard_map custom_partitioning run_state rng_uniform
"""


@pytest.mark.parametrize("name", ACTING.split())
def test_nothing_that_acts_has_a_rule(name):
    assert name in of_jax(), "renamed: which name has it now?"
    assert name not in RULES


FORMER = {"checkpoint"}  # what remat2 was called before


def test_every_rule_is_about_a_primitive_of_this_jax():
    """A rule for a name that JAX no longer has is dead; the renamed one is refused until it is written down."""
    assert {name for name in RULES if name not in of_jax()} <= FORMER
    assert all(rule_of(of_jax()[name]) is RULES[name] for name in set(RULES) - FORMER)


def test_the_page_says_how_many_have_one():
    page = Path(__file__).parents[2] / "docs" / "privacy.md"
    known, (_, *without) = set(RULES) - FORMER, LISTED.read_text().split()
    assert f"{len(known)} of JAX's {len(known) + len(without)})" in page.read_text()


def test_a_renamed_primitive_is_refused_by_name(monkeypatch):
    monkeypatch.delitem(primitives.RULES, "tanh")
    with pytest.raises(Refused, match="'tanh' is not an operation that the audit knows"):
        priced(lambda door, params, state, memory: (jnp.tanh(door.gradient(params)), memory))


def test_a_strangers_primitive_of_a_known_name_is_refused():
    """Known by its object: this one has an implementation, and rules, of its own."""
    fake = Primitive("tanh")
    fake.def_abstract_eval(lambda aval: aval)
    with pytest.raises(Refused, match="'tanh' is not an operation that the audit knows"):
        priced(lambda door, params, state, memory: (fake.bind(door.gradient(params)), memory))


def test_calls_are_opened_and_nothing_else():
    calls = {name for name, rule in RULES.items() if rule is Rule.CALL}
    assert calls == set(primitives.PROGRAM_OF)
    assert {"custom_vmap_call", "custom_partitioning", "shard_map"}.isdisjoint(calls)
