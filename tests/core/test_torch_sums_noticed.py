"""Sums of a torch module's gradients where only some of the arithmetic shows: votes, places, the lattice."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import torch_nets as nets
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.clipping import guarded
from fedsofim.core.queries import TorchGradient
from fedsofim.core.records import Records
from fedsofim.core.torch.network import TorchNetwork
from fedsofim.core.torch.rows import Row
from fedsofim.core.torch.summands import Vote, summed
from fedsofim.core.torch_gradient import _step
from fedsofim.core.torch_models import from_torch
from fedsofim.errors import Refused

CLIP = 0.4


def closed() -> tuple[TorchGradient, list[np.ndarray]]:
    gradient: Any = from_torch(nets.mlp()).gradient
    return gradient, gradient.network.initial()


@pytest.mark.parametrize("part", [0.01, 0.5])
@pytest.mark.parametrize("long", [0.1, 30.0])
def test_a_gradient_and_its_vote_are_clipped_together(part: float, long: float):
    """At the length of the guard, which is below that of what is clipped; both by the same factor."""
    gradient = torch_row([[0.6 * long, 0.8 * long]])
    *leaves, vote = summed([gradient], ones(1), Vote(part, CLIP), 1.0, guarded(CLIP))
    length = math.hypot(*(np.linalg.norm(leaf) for leaf in leaves), float(vote))
    whole = math.hypot(math.sqrt(1 - part) * min(1.0, long / CLIP), math.sqrt(part)) * CLIP
    assert length == pytest.approx(min(whole, guarded(CLIP)), rel=1e-12)
    assert float(vote) / math.sqrt(part) == pytest.approx(
        (1 if long <= CLIP else -1) * CLIP * length / whole, rel=1e-12
    )


@pytest.mark.parametrize("scale", [math.nan, math.inf, 0.0])
def test_a_scale_that_makes_no_sense_reaches_no_sum(scale: float):
    found = summed([torch_row([[3.0, 4.0], [0.0, 0.0]])], ones(2), Vote(0.01, CLIP), scale, guarded(CLIP))
    assert all(np.isfinite(leaf).all() for leaf in found)


def test_a_record_has_its_place_among_all_that_are_held(monkeypatch: pytest.MonkeyPatch):
    """A place among the drawn would tell who else was."""
    given: list[np.ndarray] = []

    def watched(self: TorchNetwork, params: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray, **how: Any) -> Any:
        given.append(weight)
        return [np.zeros(shape) for shape in self.shapes.values()]

    monkeypatch.setattr(TorchNetwork, "clipped_sum", watched)
    query, leaves = closed()
    held, drawn = np.arange(12) < 9, np.arange(12) % 4 == 1
    x, y = jnp.ones((1, 12, 5)), jnp.zeros((1, 12), jnp.int32)
    records = Records(x, y, jnp.asarray(held & drawn, jnp.float32)[None], jnp.zeros(1, jnp.int32))
    weights = jnp.asarray(held, jnp.float32)[None]
    sums = client_sums(query, leaves, [False] * len(leaves), records, 1, CLIP, rate=0.25, weights=weights)
    assert all(not np.asarray(s.hi).any() for s in sums)
    (weight,) = given
    assert weight.tolist() == drawn[:9].tolist()


def test_each_clients_gradients_are_at_its_own_parameters():
    """As in local steps, where every client has gone elsewhere."""
    query, leaves = closed()
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 6, 5)).astype(np.float32), random.integers(0, 3, (2, 6)).astype(np.int32)
    everyones = [np.stack([leaf, 2 * leaf]) for leaf in leaves]

    def sums(consts: list, one_each: bool, blocks: slice, clients: int) -> list[np.ndarray]:
        mine, owner = jnp.asarray(x[blocks]), jnp.arange(clients, dtype=jnp.int32)
        records = Records(mine, jnp.asarray(y[blocks]), jnp.ones(mine.shape[:2]), owner)
        return [np.asarray(s.hi) for s in client_sums(query, consts, [one_each] * len(consts), records, clients, CLIP)]

    together = sums(everyones, True, slice(0, 2), 2)
    for client in range(2):
        alone = sums([leaf[client] for leaf in everyones], False, slice(client, client + 1), 1)
        for both, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(both[client], one[0])


def test_a_lattice_holds_every_sum_and_is_fine_enough_for_every_batch_that_changes():
    for records in (1, 1000, 2**20):
        step = _step(records, numbers=100, changed=2, clip=0.7)
        assert step is not None and records * 0.7 / step < 2**62
    assert _step(2**20, numbers=10**10, changed=2, clip=0.7) is not None
    with pytest.raises(Refused, match="sum over fewer records"):
        _step(2**20, numbers=10**10, changed=2**20, clip=0.7)


def test_where_records_are_drawn_every_batch_may_change():
    query, _ = closed()
    assert (query.changed(5000, 1.0), query.changed(5000, 0.5)) == (2, 5000)


def test_what_is_released_is_a_module_that_nobody_else_holds():
    query, _ = closed()
    mine = query.own().network
    assert mine is not query.network and mine.whole is not query.network.whole
    held = {id(p) for p in query.network.whole.parameters()}
    assert held.isdisjoint(id(p) for p in mine.whole.parameters())


def test_a_long_gradient_is_clipped_at_the_length_of_the_guard():
    query, leaves = closed()
    records = Records(
        1e3 * jnp.ones((1, 1, 5)), jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1)), jnp.zeros(1, jnp.int32)
    )
    sums = client_sums(query, leaves, [False] * len(leaves), records, 1, 1e-3)
    length = math.hypot(*(float(np.linalg.norm(s.hi)) for s in sums))
    assert length == pytest.approx(guarded(1e-3), rel=1e-5)


# --- small things -------------------------------------------------------------------------------------------


def torch_row(rows: list[list[float]]) -> Row:
    return Row(formed=nets.torch.tensor(rows, dtype=nets.torch.float64))


def ones(count: int) -> Any:
    return nets.torch.ones(count, dtype=nets.torch.float64)
