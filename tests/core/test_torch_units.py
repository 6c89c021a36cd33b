"""Torch modules where more counts than a record: units of several, records that are drawn, a vote on the clip."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import torch_nets as nets
from fedsofim.core.budget import Budget
from fedsofim.core.clipped_sums import client_sums
from fedsofim.core.clipping import guarded
from fedsofim.core.models import Model
from fedsofim.core.queries import PerRecord, TorchGradient
from fedsofim.core.records import Records, in_blocks
from fedsofim.core.torch.batches import in_place, in_turns, lanes_of
from fedsofim.core.torch_models import from_torch
from fedsofim.core.unit import total_loss
from fedsofim.core.voting import gradient_of, with_vote
from fedsofim.deploy.exact_sums import exact_sum
from fedsofim.errors import Refused
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from toy import make_toy

pytestmark = pytest.mark.slow
KEY, CLIP = jax.random.key(0), 0.4
FEATURES = {"mlp": (nets.mlp, nets.mlp_in_jax, 5), "cnn": (nets.cnn, nets.cnn_in_jax, 64)}


def units_of(features: int, count: int = 11, places: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Units of one to `places` records; what is absent is marked by its label."""
    random = np.random.default_rng(2)
    x = 2 * random.normal(size=(count, places, features)).astype(np.float32)
    y = random.integers(0, 3, size=(count, places)).astype(np.int32)
    absent = np.arange(places)[None] >= random.integers(1, places + 1, size=(count, 1))
    return np.where(absent[..., None], x[:, :1], x), np.where(absent, -1, y)


def total(query: Any, consts: list, x: np.ndarray, y: np.ndarray, clip: float = CLIP) -> np.ndarray:
    """The clipped sum of one client as one row."""
    records = in_blocks(x, y, [np.arange(len(y))])
    found = client_sums(query, consts, [False] * len(consts), records, 1, clip)
    return np.concatenate([(np.asarray(s.hi, np.float64) + np.asarray(s.lo)).ravel() for s in found])


def both(name: str) -> tuple[TorchGradient, Model, dict]:
    make_net, in_jax, features = FEATURES[name]
    net = make_net()
    closed: Any = from_torch(net).gradient
    return closed, in_jax(net), from_torch(net).init(KEY, (features,), 3)


# --- units --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_units_gradients_are_summed_before_the_clip_as_in_jax(name: str):
    closed, in_jax, params = both(name)
    x, y = units_of(FEATURES[name][2])
    loss = total_loss(in_jax.loss)
    query, consts, _ = PerRecord.trace(lambda a, b: jax.grad(loss)(params, a, b), x[0], y[0])
    wanted = total(query, consts, x, y)
    found = total(closed.of_units(), list(params.values()), x, y)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6 * float(np.linalg.norm(wanted)))
    assert np.linalg.norm(wanted) > CLIP


def test_a_node_sums_the_same_units():
    closed, _, params = both("mlp")
    (x, y), query = units_of(5), closed.of_units()
    consts = [np.asarray(p) for p in params.values()]
    alone = exact_sum(query, consts, x, y, CLIP, None)
    np.testing.assert_allclose(alone, total(query, consts, x, y), rtol=0, atol=1e-3 * float(np.linalg.norm(alone)))


def test_one_unit_moves_no_sum_by_more_than_twice_the_clip():
    closed, _, params = both("mlp")
    (x, y), query = units_of(5), closed.of_units()
    before = total(query, list(params.values()), x, y)
    for scale in (1.0, 1e4, np.nan):
        other, labels = x.copy(), y.copy()
        other[4], labels[4] = -x[4] * scale, [1, 2, 0]
        moved = np.linalg.norm(total(query, list(params.values()), other, labels) - before)
        assert (moved > 0 and moved <= 2 * CLIP) or np.isnan(scale)
        assert moved <= 2 * CLIP


def test_a_unit_of_more_records_than_a_batch_holds():
    closed, _, params = both("mlp")
    x, y = units_of(5, count=3, places=1500)
    one_by_one = closed.rows(list(params.values()), x.reshape(-1, 5), np.maximum(y, 0).ravel())
    there = (y >= 0).ravel()
    for row, alone in zip(closed.of_units().rows(list(params.values()), x, y), one_by_one, strict=True):
        kept = np.where(there.reshape(-1, *[1] * (alone.ndim - 1)), alone.astype(np.float64), 0)
        wanted = kept.reshape(3, 1500, *alone.shape[1:]).sum(axis=1)
        np.testing.assert_allclose(row, wanted, rtol=0, atol=1e-4 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("unit, trust, rate", [("person", "local", 0.5), ("client", "secure-sum", 1.0)])
def test_a_run_protects_persons_and_clients(unit: Any, trust: Any, rate: float):
    toy = make_toy(sizes=(9, 12, 7))
    person = (np.arange(len(toy.dataset.y_train)) // 2).astype(str)
    data = replace(toy, dataset=replace(toy.dataset, person=person)).protecting(unit, 2 if unit == "person" else 12)
    model = from_torch(nets.mlp())
    how: Any = {"model": model, "clip": 0.5, "trust": trust, **({"batch_rate": rate} if rate < 1 else {})}
    plan = plan_for(data, make("fedsofim"), Budget(3.0), 2, **how)
    params, _ = simulate(plan, data, 0, every=2)
    assert plan.unit == unit and all(np.isfinite(p).all() for p in params.values())
    theirs = plan_for(data, make("fedsofim"), Budget(3.0), 2, **(how | {"model": nets.mlp_in_jax(nets.mlp())}))
    assert plan.ledger == theirs.ledger and plan.multipliers == theirs.multipliers
    again, _ = simulate(theirs, data, 0, every=2)
    for name, value in params.items():
        np.testing.assert_allclose(value, again[name], rtol=0, atol=1e-4)


# --- drawn records ------------------------------------------------------------------------------------------


def test_drawn_records_keep_their_lane_and_are_each_computed_once():
    drawn = np.random.default_rng(0).random(700) < 0.1
    turns = list(in_turns(drawn, 32))
    assert sorted(i for turn in turns for i in turn if i >= 0) == np.flatnonzero(drawn).tolist()
    assert all(i % 32 == lane for turn in turns for lane, i in enumerate(turn) if i >= 0)
    assert len(turns) == np.pad(drawn, (0, -700 % 32)).reshape(-1, 32).sum(axis=0).max()
    assert not list(in_turns(np.zeros(700, bool), 32)) and len(list(in_place(700, 512))) == 2


def test_the_size_of_a_batch_does_not_tell_how_many_were_drawn(monkeypatch: pytest.MonkeyPatch):
    """Of another size, a batch is computed by other instructions: then who was drawn changes what others say."""
    closed, _, params = both("mlp")
    seen: list[tuple[int, set]] = []
    network = closed.network
    x, y = np.random.default_rng(1).normal(size=(300, 5)).astype(np.float32), np.zeros(300, np.int32)
    running = network._ready([np.asarray(p) for p in params.values()])
    usual = running.gradients

    def watched(x: np.ndarray, y: np.ndarray) -> Any:
        seen.append((len(x), {row.tobytes() for row in x if row.any()}))
        return usual(x, y)

    monkeypatch.setattr(running, "gradients", watched)
    for seed, rate in ((0, 0.1), (1, 0.1), (2, 0.02), (3, 0.7)):
        drawn = (np.random.default_rng(seed).random(300) < rate).astype(np.float32)
        network.clipped_sum(list(params.values()), x, y, drawn, clip=1.0, step=None, rate=0.1)
        computed = set().union(*(rows for _, rows in seen))
        assert computed == {row.tobytes() for row in x[drawn > 0]}  # and nobody else
        assert {size for size, _ in seen} == {lanes_of(300, 0.1, 512)}
        seen.clear()


def test_a_sum_over_drawn_records_is_that_of_these():
    closed, _, params = both("cnn")
    leaves = list(params.values())
    random = np.random.default_rng(3)
    x, y = random.normal(size=(90, 64)).astype(np.float32), random.integers(0, 3, 90).astype(np.int32)
    drawn = random.random(90) < 0.2
    weight = jnp.asarray(drawn, jnp.float32)[None]
    records = Records(jnp.asarray(x)[None], jnp.asarray(y)[None], weight, jnp.zeros(1, jnp.int32))
    held = jnp.ones((1, 90), jnp.float32)
    found = client_sums(closed, leaves, [False] * len(leaves), records, 1, CLIP, rate=0.2, weights=held)
    row = np.concatenate([np.asarray(s.hi, np.float64).ravel() for s in found])
    wanted = total(closed, leaves, x[drawn], y[drawn])
    np.testing.assert_allclose(row, wanted, rtol=0, atol=1e-6 * float(np.linalg.norm(wanted)))


# --- votes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 5.0])
def test_a_vote_is_the_same_as_in_jax(scale: float):
    closed, in_jax, params = both("mlp")
    random = np.random.default_rng(4)
    x, y = random.normal(size=(40, 5)).astype(np.float32), random.integers(0, 3, 40).astype(np.int32)
    fn = with_vote(gradient_of(in_jax.loss, params), CLIP, 0.01)
    query, consts, _ = PerRecord.trace(lambda a, b: fn(a, b, jnp.float32(scale)), x[0], y[0])
    wanted = total(query, consts, x, y)
    voting = closed.with_vote(0.01, CLIP)
    given = [*params.values(), jnp.float32(scale)]
    found = total(voting, given, x, y)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.linalg.norm(wanted)))
    at_node = exact_sum(voting, given, x, y, CLIP, None)
    np.testing.assert_allclose(at_node, found, rtol=0, atol=1e-3 * float(np.linalg.norm(wanted)))


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-30, 1e30, math.nan, math.inf])
def test_whatever_the_scale_a_record_moves_no_more_than_twice_the_clip(scale: float):
    closed, _, params = both("mlp")
    random = np.random.default_rng(5)
    x, y = random.normal(size=(9, 5)).astype(np.float32), random.integers(0, 3, 9).astype(np.int32)
    voting, given = closed.with_vote(0.01, 1e3 * CLIP), [*params.values(), jnp.float32(scale)]
    before = total(voting, given, x, y)
    other = x.copy()
    other[3] = -1e3 * x[3]
    moved = np.linalg.norm(total(voting, given, other, y) - before)
    assert moved <= 2 * CLIP and np.isfinite(before).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_who_says_nothing_has_no_vote_either(value: float):
    closed, _, params = both("mlp")
    random = np.random.default_rng(7)
    x, y = random.normal(size=(9, 5)).astype(np.float32), random.integers(0, 3, 9).astype(np.int32)
    voting, given = closed.with_vote(0.01, CLIP), [*params.values(), jnp.float32(1.0)]
    without = total(voting, given, np.delete(x, 4, axis=0), np.delete(y, 4))
    x[4, 2] = value
    np.testing.assert_allclose(total(voting, given, x, y), without, atol=1e-7)
    at_node = exact_sum(voting, given, x, y, CLIP, None)
    np.testing.assert_allclose(at_node, without, atol=1e-3)


def test_a_clip_that_finds_itself_trains_a_module():
    data = make_toy(sizes=(30, 40))
    ends = []
    for model in (from_torch(nets.mlp()), nets.mlp_in_jax(nets.mlp())):
        plan = plan_for(data, make("fedgd", {"clip_quantile": 0.5}), Budget(5.0), 3, model=model, clip=0.1)
        ends.append((plan.ledger, simulate(plan, data, 1, every=3)[0]))
    assert ends[0][0] == ends[1][0]
    for name, value in ends[0][1].items():
        np.testing.assert_allclose(value, ends[1][1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("vote", [(0.0, 1.0), (1.0, 1.0), (0.5, 0.0), (0.5, math.inf), (0.5, math.nan)])
def test_a_senseless_vote_is_refused(vote: tuple[float, float]):
    closed, _, _ = both("mlp")
    with pytest.raises(Refused, match="use the door"):
        TorchGradient(closed.network, False, vote).own()


def test_guards_are_there_twice_where_records_are_drawn():
    """One record more or less moves a sum by one clip at most, with the clip that a release of drawn records uses."""
    closed, _, params = both("mlp")
    leaves = list(params.values())
    random = np.random.default_rng(6)
    x, y = 1e3 * random.normal(size=(200, 5)).astype(np.float32), random.integers(0, 3, 200).astype(np.int32)
    held = jnp.ones((1, 200), jnp.float32)

    def of(drawn: np.ndarray) -> np.ndarray:
        weight = jnp.asarray(drawn, jnp.float32)[None]
        records = Records(jnp.asarray(x)[None], jnp.asarray(y)[None], weight, jnp.zeros(1, jnp.int32))
        found = client_sums(closed, leaves, [False] * len(leaves), records, 1, guarded(CLIP), rate=0.1, weights=held)
        return np.concatenate([(np.asarray(s.hi, np.float64) + np.asarray(s.lo)).ravel() for s in found])

    drawn = random.random(200) < 0.1
    drawn[7] = True
    without = drawn.copy()
    without[7] = False
    assert 0.9 * CLIP < np.linalg.norm(of(drawn) - of(without)) <= CLIP
