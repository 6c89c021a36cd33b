"""Subtree estimates at a node: integers only, the weights of the simulator's mechanism, and the price of all nodes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.mechanisms import Tree
from fedsofim.deploy.node import answer
from fedsofim.deploy.noise import BITS, cost_of_round, draw, draws_of_release
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.subtree_noise import change, check_draws, height_of
from fedsofim.errors import Refused
from nodes import finish, spent, start

ROUNDS = 13
SCALE = 1 << 40
NODES = [(h, e) for h in range(4) for e in range(1 << h, ROUNDS + 1, 1 << h)]


def one_at_a_time(height: int, last: int) -> np.ndarray:
    """Every node on a coordinate of its own."""
    assert last % (1 << height) == 0
    return np.array([SCALE * (n == (height, last)) for n in NODES], np.int64)


def integers(height: int, last: int) -> np.ndarray:
    return np.array([(-1) ** last * (1 + 37 * height + 11 * last)], np.int64)


def test_every_node_has_the_weight_of_the_simulators_mechanism():
    """Of each node alone, by the simulator's own code: the change at every round, to 2^-40."""
    from fedsofim.core import mechanisms

    heights, ends = (jnp.array(column, jnp.int32) for column in zip(*NODES, strict=True))

    def node(height: jax.Array, last: jax.Array) -> jax.Array:
        return ((heights == height) & (ends == last)).astype(jnp.float32)

    @jax.jit
    def simulated(m: jax.Array, top: jax.Array) -> jax.Array:
        return mechanisms._honaker_change(node, m, top, jnp.zeros(len(NODES), jnp.float32))

    for m in range(1, ROUNDS + 1):
        wanted = simulated(jnp.int32(m), jnp.int32(height_of(m)))
        np.testing.assert_allclose(change(one_at_a_time, m) / SCALE, np.asarray(wanted), atol=1e-6)


def estimates(node: Callable, m: int) -> int:
    """Σ floor(E) over the complete subtrees of m rounds, with sums of 0: by the definition, with whole numbers."""
    total, end = 0, 0
    for h in reversed(range(m.bit_length())):
        if m >> h & 1:
            end += 1 << h
            under = [(k, e) for k in range(h + 1) for e in range(end - (1 << h) + (1 << k), end + 1, 1 << k)]
            total += sum(2**k * int(node(k, e)[0]) for k, e in under) // (2 ** (h + 1) - 1)
    return total


def test_running_sums_are_whole_estimates_and_never_drift():
    total = 0
    for m in range(1, 70):
        total += int(change(integers, m)[0])
        assert total == estimates(integers, m)


def test_the_variance_of_running_sums_is_what_the_mechanism_says():
    tree, wide = Tree(restart=6, honaker=True), 1500
    released = np.stack([draw(tree, t, wide, b"x" * 32, "tree") for t in range(9)]) * 2.0**-BITS
    found = np.cumsum(released, axis=0).var(axis=1)
    wanted = np.array([tree._variance(m) for m in range(1, 10)])
    assert np.all(np.abs(found / wanted - 1) < 5 * np.sqrt(2 / wide))


def test_rounds_pay_for_all_nodes_that_they_complete():
    tree = Tree(honaker=True)
    assert [cost_of_round(tree, t, 8) for t in range(8)] == [1, 5, 1, 21, 1, 5, 1, 85]
    assert (draws_of_release(tree, 8), draws_of_release(Tree(), 8)) == (4, 1)


def test_what_takes_too_long_is_refused():
    check_draws(1 << 10, 650)
    with pytest.raises(Refused, match="4194303 draws of 650 numbers"):
        check_draws(1 << 21, 650)


def test_a_job_of_subtree_estimates_runs_and_spends_its_budget(nodes: list[Policy]):
    order = Order(recipe="paper", method="ftrl", settings=(("noise", "honaker"),), rounds=4)
    first = start(nodes, order)
    assert (
        answer(nodes[0], first.request())["upload0"].tobytes() == answer(nodes[0], first.request())["upload0"].tobytes()
    )
    end = finish(nodes, first)
    assert end.finished and spent(nodes[0]) == pytest.approx(1.0, rel=1e-9)
