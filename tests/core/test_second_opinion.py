"""A hole in the walk is caught by running the program: every leak here is tried with a walk that sees nothing."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap

from cheats import honest, leak_into_memory, leak_through_carry, raw_mean_added
from fedsofim.core import opening, second_opinion, walk
from fedsofim.core.primitives import RULES, Rule
from fedsofim.core.second_opinion import check_keys
from fedsofim.errors import Refused
from leaks import priced
from reuses import copied_door, honest_scans, scan_in_a_jit_called_twice


def first_round_for_ever(door, params, state, memory):
    return replace(door, round=jnp.int32(0)).gradient(params), memory


def labels_counted(door, params, state, memory):
    upload, memory = honest(door, params, state, memory)
    return upload + jnp.sum(door._records.y == 0, dtype=params.dtype), memory


def key_uploaded(door, params, state, memory):
    return honest(door, params, state, memory)[0], jax.random.normal(door._key, (), jnp.float32)


CHANGED = "changed with the {} while every release stayed the same"
LEAKS = [
    (raw_mean_added, CHANGED.format("records")),
    (labels_counted, "the upload " + CHANGED.format("records")),
    (leak_through_carry, CHANGED.format("records")),
    (leak_into_memory, "the client memory " + CHANGED.format("records")),
    (key_uploaded, CHANGED.format("key")),
    (scan_in_a_jit_called_twice, "a key reached a release twice"),
    (copied_door, "a key reached a release twice"),
    (first_round_for_ever, "a key reached a release twice"),
]


@pytest.fixture
def blind_walk(monkeypatch):
    """A walk that counts releases and refuses nothing."""

    def inputs(self, given):
        return [walk.Value() for _, tree in given for _ in jax.tree.leaves(tree)]

    def release(self, eqn, args, loops):
        if self.recording:
            self.releases.append((eqn.params["site"], 1))
        return [walk.Value() for _ in eqn.outvars]

    monkeypatch.setattr(walk.Walk, "inputs", inputs)
    monkeypatch.setattr(walk.Walk, "release", release)


@pytest.mark.parametrize("leak, message", LEAKS, ids=lambda v: getattr(v, "__name__", ""))
def test_a_leak_that_the_walk_missed_is_refused(leak, message, blind_walk):
    with pytest.raises(Refused, match=message):
        priced(leak)


def test_a_rule_for_mapping_that_was_let_in_is_refused(blind_walk, monkeypatch):
    """Were custom_vmap taken for pure, its rule would run in the simulator: it runs here first."""
    monkeypatch.setattr(opening, "rule_of", lambda p: RULES.get(p.name, Rule.PURE))
    monkeypatch.setattr(walk, "rule_of", lambda p: RULES.get(p.name, Rule.PURE))

    @custom_vmap
    def mapped(noisy, raw):
        return noisy

    mapped.def_vmap(
        lambda size, batched, noisy, raw: (jnp.zeros((size, 4, 3), raw.dtype) + raw.reshape(-1, 1, 1), True)
    )

    def client(door, params, state, memory):
        raw = jnp.sum(door._records.weight, dtype=params.dtype) * door._index.astype(params.dtype)
        return mapped(door.gradient(params), raw), memory

    with pytest.raises(Refused, match=CHANGED.format("records")):
        priced(client)


def test_an_effect_that_was_let_in_is_refused(blind_walk, monkeypatch):
    monkeypatch.setattr(opening, "_known", lambda eqn: RULES.get(eqn.primitive.name, Rule.PURE))
    monkeypatch.setattr(walk, "rule_of", lambda p: RULES.get(p.name, Rule.PURE))
    monkeypatch.setattr(walk.Walk, "jaxpr", lambda self, jaxpr, *a: [walk.Value() for _ in jaxpr.outvars])

    def client(door, params, state, memory):
        jax.debug.print("{}", params[0, 0])
        return door.gradient(params), memory

    with pytest.raises(Refused, match="more than compute"):
        priced(client)


def test_honest_programs_pass_blind_or_not(blind_walk):
    assert priced(honest_scans).ledger


def test_no_record_is_made_for_an_honest_program(monkeypatch):
    """Shapes of a billion records cost nothing: the compiler drops what no one looks at."""
    plan = priced(
        lambda door, params, state, memory: (door.gradient(params) / door.size, memory), sizes=(2_000_000_000,) * 2
    )
    assert plan.releases == 5


def test_equal_keys_are_refused():
    keys = np.arange(24, dtype=np.uint32).reshape(2, 4, 3)
    check_keys([keys, keys + 100])
    check_keys([])
    with pytest.raises(Refused, match="a key reached a release twice"):
        check_keys([keys, keys[:1, :1] + np.uint32(0)])


def test_stand_in_keys_differ_as_keys_must():
    """Numbers, steps, clients: no two of many derivations are equal, and split is what fold_in gives, as in JAX."""
    keys = second_opinion._client_keys(1)

    @jax.jit
    def derived(keys):
        folded = jax.vmap(lambda k: jax.vmap(lambda n: jax.random.fold_in(k, n))(jnp.arange(64)))(keys)
        return jax.random.key_data(jax.vmap(jax.vmap(lambda k: jax.random.split(k, 16)))(folded))

    words = np.asarray(derived(keys)).reshape(-1, 2)
    assert len(np.unique(words, axis=0)) == len(words) == second_opinion.CLIENTS * 64 * 16
    split = jax.random.key_data(jax.random.split(keys[0], 3))
    assert np.array_equal(split, np.stack([jax.random.key_data(jax.random.fold_in(keys[0], n)) for n in range(3)]))
