"""The judge is judged: programs whose leak is known must be called leaks by running them, and honest ones must not."""

import numpy as np
import pytest

from fuzz_build import client_of, model_of
from fuzz_grammar import HEAD, Node, size
from fuzz_judge import by_count, oddities, traced
from fuzz_oracle import KEYS, leak, measured_mu
from fuzz_shrink import shrunk

STATE, PARAMS, V, X = Node("state"), Node("params"), Node("v"), Node("x")
MEMORY, RAW = Node("memory"), Node("raw_mean")
GRADIENT = Node("gradient", (PARAMS,), (1.0, "1"))


def summed(body: Node, outside: Node = STATE, setting: tuple = (1.0, "1", "one")) -> Node:
    return Node("sum", (body, outside), setting)


def by_hand(body: Node) -> Node:
    """A sum that is not asked of the door, which would already refuse to trace some bodies."""
    return Node("bind_sum", (body, STATE), "honest")


def client(upload: Node, memory: Node = MEMORY) -> Node:
    return Node("program", (upload, memory, HEAD))


def said(tree: Node, *, whole: bool = False) -> str | None:
    return leak(by_count(traced(client_of(tree), model_of(tree))), whole=whole)


STEP = Node("add", (V, Node("gradient", (V,), (1.0, "1"))))
ELSEWHERE = Node("mul", (PARAMS, Node("number", (), 3.0)))
LEAKS = {
    "raw upload": (client(Node("add", (GRADIENT, RAW))), "alone"),
    "raw memory": (client(GRADIENT, RAW), "alone"),
    "known noise": (client(Node("add", (GRADIENT, Node("key_noise")))), "alone"),
    "branch on records": (client(Node("cond", (Node("raw_labels"), GRADIENT, PARAMS))), "alone|count"),
    "printed record": (client(by_hand(Node("print", (X,)))), "shown"),
    "record called back": (client(by_hand(Node("io_callback", (X,)))), "shown"),
    "rule that swaps": (client(Node("custom_vmap_swaps", (summed(X), RAW))), "together"),
    "rule that mixes records": (client(by_hand(Node("custom_vmap_mixes", (X,)))), "mu"),
    "query that knows all": (client(summed(Node("sub", (X, V)), RAW)), "asked"),
    "noise of a jitted scan used twice": (client(Node("scan_twice", (STEP, PARAMS, ELSEWHERE))), "keys"),
    "noise repeated in a loop": (client(Node("fori", (STEP, PARAMS), 2)), "keys"),
    "no noise": (client(Node("forge", (GRADIENT,), "_stds=0")), "mu"),
    "a tenth of the noise": (client(Node("forge", (GRADIENT,), "_stds/10")), "mu"),
    "one round's noise in all": (client(Node("forge", (GRADIENT,), "round=0")), "keys"),
    "a key that everybody knows": (client(Node("forge", (GRADIENT,), "_key=0")), "keys"),
    "weight beyond 1": (client(Node("forge", (GRADIENT,), "weight*9")), "mu"),
    "one record in all places": (client(Node("forge", (GRADIENT,), "x=first")), "mu"),
    "sensitivity understated": (client(Node("bind_sum", (X, STATE), "ratio=0.1")), "mu"),
}
HONEST = {
    "a gradient": client(GRADIENT),
    "local steps": client(Node("door_scan", (STEP, PARAMS), 3)),
    "tree noise": client(Node("gradient", (PARAMS,), (2.0, "tree"))),
    "leaves of a sum": client(summed(Node("tanh", (X,)), GRADIENT, (0.5, "2", "two"))),
    "a second moment": client(Node("second_moment", (X, STATE), (1.0, "1", "one"))),
    "branch on a release": client(Node("cond", (GRADIENT, PARAMS, STATE)), GRADIENT),
    "release in a checkpoint": client(Node("remat", (GRADIENT, V))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKS)
def test_leak_is_seen_by_running(name: str):
    tree, kinds = LEAKS[name]
    found = said(tree)
    assert found is not None and found.split(":")[0] in kinds.split("|"), found
    assert oddities(tree)


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_program_is_clean(name: str):
    assert said(HONEST[name]) is None
    assert not oddities(HONEST[name])


@pytest.mark.slow
def test_the_engines_whole_release_says_the_same():
    """Sums and noise computed apart are what the engine's release gives in one compiled program."""
    assert said(HONEST["a gradient"], whole=True) is None
    assert (said(LEAKS["a tenth of the noise"][0], whole=True) or "").startswith("mu")


def test_measured_mu_is_a_lower_bound_and_close():
    """Noise of std 2 and a move of 3 are mu = 1.5; what is measured is below by the chance allowed for."""
    noise = 2.0 * np.random.default_rng(0).normal(size=(KEYS, 5))
    moved = np.zeros((3, 5))
    moved[1, 2] = 3.0
    mu, _ = measured_mu(moved, noise)
    assert 1.1 < mu < 1.5


def test_measured_mu_sees_noise_that_cancels():
    noise = np.random.default_rng(0).normal(size=(KEYS, 1)) * np.ones((1, 2))
    moved = np.array([[0.0, 0.0], [1.0, -1.0], [0.0, 0.0]])
    assert measured_mu(moved, noise)[0] > 100


def test_shrinking_keeps_what_matters():
    tree = client(Node("tanh", (Node("add", (GRADIENT, Node("flip", (RAW,)))),)), Node("sort", (STATE,)))
    small = shrunk(tree, lambda t: "raw_mean" in str(t))
    assert size(small) < size(tree) and small.args[0] == RAW


def test_programs_are_printed():
    text = str(client(Node("jit", (summed(Node("tanh", (X,))), STATE))))
    assert "upload = jit(λv: sum(λx,y: tanh(x), state, (1.0, '1', 'one')), state); memory = memory" in text
