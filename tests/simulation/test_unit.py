"""Whom a run protects: all records of a person, or of a client, are summed before the clip and count as one."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.clipping import guarded
from fedsofim.core.method import Method, server_method
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.unit import mean_over_unit
from fedsofim.data.partition import Split
from fedsofim.errors import InputError, Refused
from fedsofim.methods import make
from fedsofim.simulation.simulator import keys, simulate, start_parameters
from fedsofim.simulation.training import plan_for, train
from toy import make_toy

CLIP = 1.5
HEAD = softmax_head()
NETWORK = Model(
    init=lambda key, shape, classes: {
        "a": jax.random.normal(key, (shape[0], 4), jnp.float32),
        "b": jnp.eye(4, classes, dtype=jnp.float32),
    },
    loss=lambda p, x, y: -jax.nn.log_softmax(jnp.tanh(x @ p["a"]) @ p["b"])[y],
    logits=lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"],
)


def of_persons(most_each: int = 5, seed: int = 0) -> Split:
    """The toy's records, each of somebody: two to forty persons at a client, some at several clients."""
    toy = make_toy()
    random = np.random.default_rng(seed)
    person = random.integers(0, len(toy.dataset.y_train) // most_each, len(toy.dataset.y_train)).astype(str)
    return replace(toy, dataset=replace(toy.dataset, person=person))


def kept_sums() -> Method:
    """A method whose parameters after one round are the clients' summed gradients, averaged by size."""
    return Method("sums", lambda door, params, *_: (door.gradient(params), ()), lambda mean, state, *_: (mean, state))


def summed(split: Split, model: Model, clip: float = CLIP) -> tuple[Any, Any]:
    """The mean over clients of the clipped sums, without noise, and the parameters that they are at."""
    plan = plan_for(split, kept_sums(), NO_PRIVACY, 1, model, clip=clip / guarded(1.0))
    return simulate(plan, split)[0], start_parameters(plan, split, keys(0)[0])


def by_hand(split: Split, model: Model, params: Any, clip: float = CLIP) -> Any:
    """The same, person by person in plain NumPy."""
    data = split.dataset
    assert data.person is not None
    each = jax.jit(jax.vmap(jax.grad(model.loss), (None, 0, 0)))(params, data.x_train, data.y_train)
    each = jax.tree.map(lambda g: np.asarray(g, np.float64), each)
    total = jax.tree.map(lambda g: np.zeros(g.shape[1:]), each)
    for rows in split.parts:
        for who in np.unique(data.person[rows]):
            held = rows[data.person[rows] == who][: split.most]
            mine = jax.tree.map(lambda g, held=held: g[held].sum(axis=0), each)
            norm = np.sqrt(sum(float((v**2).sum()) for v in jax.tree.leaves(mine)))
            total = jax.tree.map(lambda t, v, n=norm: t + v * min(1.0, clip / n), total, mine)
    return jax.tree.map(lambda t: t / len(split.parts), total)


@pytest.mark.parametrize(
    ("model", "most", "clip"),
    [(HEAD, None, CLIP), (HEAD, 2, CLIP), (NETWORK, None, CLIP), (NETWORK, 2, 100.0)],
    ids=["head", "head, two each", "network", "network, two each"],
)
def test_a_persons_gradients_are_summed_and_then_clipped(model: Model, most: int | None, clip: float):
    """(Leaves not formed: two gradients that all but cancel are clipped as if they did not, record_sums.py.)"""
    split = of_persons().protecting("person", most)
    found, params = summed(split, model, clip)
    wanted = by_hand(split, model, params, clip)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), found, wanted)


def test_however_a_person_changes_a_sum_moves_by_at_most_twice_the_clip():
    """Another number of records, other labels, features of any size."""
    split = of_persons().protecting("person")
    person, client = split.dataset.person, split.parts[3]
    assert person is not None
    theirs = client[person[client] == person[client][0]]
    random = np.random.default_rng(3)
    before, _ = summed(split, HEAD)
    for scale in (0.0, 1.0, 1e4):
        x, y = split.dataset.x_train.copy(), split.dataset.y_train.copy()
        x[theirs], y[theirs] = scale * random.normal(size=x[theirs].shape), 1
        fewer = tuple(rows if i != 3 else np.setdiff1d(rows, theirs[1:]) for i, rows in enumerate(split.parts))
        other = replace(split, dataset=replace(split.dataset, x_train=x, y_train=y), parts=fewer)
        after, _ = summed(other, HEAD)
        moved = np.linalg.norm(np.asarray(after - before, np.float64)) * len(split.parts)  # the server's mean of four
        assert 0 < moved <= 2 * CLIP * (1 + 1e-6)


def test_places_without_a_record_count_nothing():
    """All but one person have one record, and places for seven: what they give is what a record gives."""
    toy = make_toy()
    person = np.arange(len(toy.dataset.y_train)).astype(str)
    person[-7:] = "somebody"
    split = replace(toy, dataset=replace(toy.dataset, person=person))
    assert split.protecting("person").places == 7
    without = replace(split, parts=(*split.parts[:3], split.parts[3][:-6]))  # all but the first of those seven
    of_one, _ = summed(split.protecting("person", 1), HEAD)
    of_records, _ = summed(without, HEAD)
    np.testing.assert_allclose(of_one, of_records, rtol=1e-5, atol=1e-5)
    found, params = summed(split.protecting("person"), HEAD)
    np.testing.assert_allclose(found, by_hand(split.protecting("person"), HEAD, params), rtol=2e-4, atol=2e-4)


def test_other_sums_are_of_a_persons_mean():
    of_unit = mean_over_unit(lambda x, y: {"x": x, "one": jnp.float32(1)})
    x, y = jnp.array([[2.0], [4.0], [2.0]], jnp.float32), jnp.array([1, 0, -1], jnp.int32)
    found = of_unit(x, y)
    assert float(found["x"][0]) == 3.0 and float(found["one"]) == 1.0
    missing = of_unit(x, jnp.array([0.5, 0.1, jnp.nan], jnp.float32))  # a task whose targets are numbers
    assert float(missing["x"][0]) == 3.0


@pytest.mark.slow
def test_persons_train_in_the_recipe_at_the_price_of_as_many_records():
    split = of_persons().protecting("person", 8)
    with pytest.raises(InputError, match="give a public number"):
        train(of_persons().protecting("person"), budget=Budget(8.0), rounds=5)
    run = train(split, budget=Budget(8.0), rounds=5, trust="secure-sum")
    assert run.plan.unit == "person" and run.plan.sizes == split.units != split.sizes
    assert run.plan.epsilon == pytest.approx(8.0)
    assert run.accuracy > 60


def test_whole_clients_are_protected_under_secure_sum_only():
    split = make_toy(sizes=(6,) * 30).protecting("client", 6)
    assert split.units == (1,) * 30 and split.places == 6
    plan = plan_for(split, make("fedsofim"), Budget(8.0), 5, trust="secure-sum")
    assert plan.unit == "client" and plan.noise_gain == pytest.approx(1 / 30)
    with pytest.raises(Refused, match="cannot protect whole clients"):
        plan_for(split, make("fedsofim"), Budget(8.0), 5)
    with pytest.raises(Refused, match="a method of one gradient a round"):
        plan_for(split, make("fedavg", {"local_steps": 2}), Budget(8.0), 5, trust="secure-sum")


def _by_client(split: Split) -> Any:
    person = np.empty(len(split.dataset.y_train), "U8")
    for i, rows in enumerate(split.parts):
        person[rows] = f"c{i}"
    return replace(split.dataset, person=person)


def test_a_client_is_a_person_who_holds_all_of_it():
    split = make_toy(sizes=(6,) * 30)
    method = server_method("kept", optax.sgd(1.0))
    ways = split.protecting("client"), replace(split, dataset=_by_client(split)).protecting("person")
    ends = [
        simulate(plan_for(s, method, NO_PRIVACY, 2, HEAD, clip=CLIP, trust="secure-sum"), s)[0] for s in ways
    ]  # fmt: skip
    assert np.array_equal(np.asarray(ends[0]), np.asarray(ends[1]))


def test_what_cannot_be_protected_is_said():
    toy = make_toy()
    with pytest.raises(InputError, match="does not say whose each record is"):
        toy.protecting("person").units  # noqa: B018
    with pytest.raises(InputError, match="unit"):
        toy.protecting("household")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="each record is protected by itself"):
        toy.protecting("record", 3)
    lonely = replace(toy, dataset=replace(toy.dataset, person=np.arange(204).astype(str)))
    assert lonely.protecting("person").units == toy.sizes


def test_how_many_records_the_largest_person_has_changes_nobody_elses_sum():
    """At most five count, and one person gets a third record: everybody else's part is summed and rounded as before."""
    toy = make_toy()
    person = (np.arange(len(toy.dataset.y_train)) // 2).astype(str)
    split = replace(toy, dataset=replace(toy.dataset, person=person)).protecting("person", 5)
    assert split.places == 5
    before, _ = summed(split, NETWORK)
    more = person.copy()
    more[-1] = more[-3]  # of client 3: one person has three records now, another one
    after, _ = summed(replace(split, dataset=replace(split.dataset, person=more)), NETWORK)
    parts = zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True)
    moved = math.hypot(*(float(np.linalg.norm(np.asarray(a - b, np.float64))) for a, b in parts))
    assert moved * len(split.parts) <= 4 * CLIP * (1 + 1e-6)  # two persons changed


def test_persons_are_numbered_as_they_appear_whatever_they_are_called():
    split = of_persons()
    assert split.dataset.person is not None
    renamed = np.array([f"z{name[::-1]}" for name in split.dataset.person])
    other = replace(split, dataset=replace(split.dataset, person=renamed)).protecting("person", 4)
    for a, b in zip(other.whose, split.protecting("person", 4).whose, strict=True):
        assert np.array_equal(a, b)


def test_a_saved_model_tells_nothing_that_was_computed_from_training_records():
    """A label less among them changes no number beside the model: constant answers are the test records'."""
    split = make_toy()
    y = split.dataset.y_train.copy()
    y[0] = (y[0] + 1) % 3
    other = replace(split, dataset=replace(split.dataset, y_train=y))
    runs = [train(s, make("fedgd"), NO_PRIVACY, 1, recipe="paper") for s in (split, other)]
    for told in ([run.model.facts["result"] for run in runs], [run.summary() for run in runs]):
        assert told[0]["baseline"] == told[1]["baseline"] and "client" not in told[0]["gaps"]
