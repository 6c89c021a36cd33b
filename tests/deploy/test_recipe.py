"""A deployed job runs the recipe: its choices, the simulator's records and parameters, its charges, its model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsofim as fs
from fedsofim.core.budget import NO_PRIVACY, WITHOUT
from fedsofim.core.clipping import GUARD
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.preparation import Centred, ColumnScales, Whitened
from fedsofim.core.sealed import sealed_model
from fedsofim.deploy.account import Account
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.job_state import JobState, choices_of
from fedsofim.deploy.order import Order
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.server import check_order, step
from fedsofim.errors import InputError
from fedsofim.recipes import Situation, choose
from fedsofim.simulation.preparing import mapped
from fedsofim.simulation.simulator import simulate
from nodes import REHEARSAL, SMALL, ask_all, finish, make_nodes, same_bits, spent, start

TEST = SMALL.dataset.x_test

# --- what is chosen -----------------------------------------------------------------------------------------


def test_the_paper_is_what_it_always_was(shared_nodes):
    for order in (Order(recipe="paper"), Order(recipe="paper", method="fedsofim")):
        now = start(shared_nodes, order)
        terms = (now.job.method, now.job.settings, now.job.rounds, now.job.clip, now.job.weights, now.job.preparation)
        assert terms == ("fedsofim", {}, 70, 10.0, "uniform", [])
        assert now.plan.model == sealed_model(softmax_head(0.5))
        assert list(now.plan.programs) == [Phase.ROUND]


def test_auto_chooses_for_the_clients_that_came(shared_nodes):
    now = start(shared_nodes, Order(recipe="auto", epsilon=2.0))
    situation = Situation(budget=fs.Budget(2.0), sizes=(7, 20, 12), shape=(3,), classes=3)
    chosen = choose("auto", situation)
    assert now.choices == chosen
    assert (now.job.method, now.job.rounds, now.job.clip, now.job.weights) == ("fedsofim", chosen.rounds, 3.0, "size")
    assert now.plan.preparation == chosen.preparation
    assert not np.any(now.params)
    assert now.params.shape == (now.plan.shape[0] + 1, 3)


def test_what_is_ordered_by_hand_stands(shared_nodes):
    clients = start(shared_nodes, Order()).clients
    auto = choices_of(Order(recipe="auto"), clients)
    by_hand = choices_of(Order(recipe="auto", method="fedgd", rounds=3, clip=2.5, weights="uniform"), clients)
    assert (by_hand.method, by_hand.settings, by_hand.rounds, by_hand.clip) == ("fedgd", {}, 3, 2.5)
    assert (by_hand.weights, by_hand.preparation, by_hand.start) == ("uniform", auto.preparation, 0.0)
    assert not {"rounds", "clip", "weights", "step"} & set(dict(by_hand.why))
    assert {"rounds", "clip", "weights", "step"} <= set(dict(auto.why))
    one = choices_of(Order(recipe="auto", settings=(("beta", "0.5"),)), clients)
    assert one.settings == {**auto.settings, "beta": "0.5"}
    assert choices_of(Order(recipe="auto", method=auto.method), clients).settings == auto.settings  # as in a simulation
    moments = choices_of(Order(recipe="auto", standardize=0.1), clients)
    assert moments.preparation == (FeatureMoments(share=0.1),)


def test_a_recipe_that_nobody_has(shared_nodes):
    with pytest.raises(InputError, match="did you mean 'paper'"):
        Order(recipe="papre")
    for recipe in ("auto", "paper"):
        check_order(Order(recipe=recipe))


# --- the same training --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory) -> JobState:
    """The recipe's job without noise, at its end: column scales, lifted unit records, whitened."""
    nodes = make_nodes(tmp_path_factory.mktemp("rehearsal"), **REHEARSAL)
    return finish(nodes, start(nodes, Order(recipe="auto", epsilon=WITHOUT, rounds=3)))


@pytest.mark.slow
def test_without_noise_it_is_the_simulators_training(rehearsed: JobState):
    """What is released is the simulator's but for its clip's guard; by that map, the records and the parameters are."""
    run = fs.train(SMALL, budget=NO_PRIVACY, rounds=3)
    assert rehearsed.plan.preparation == run.plan.preparation
    assert list(rehearsed.released) == list(run.prepared.released) == [Phase.SCALES, Phase.MOMENTS]
    for phase, means in run.prepared.released.items():
        for key, value in means.items():
            np.testing.assert_allclose(rehearsed.released[phase][key], value, rtol=2 * GUARD, atol=1e-6)
    ours = replace(run.prepared, released=rehearsed.released).map(TEST)
    assert same_bits(rehearsed.map(TEST), ours)
    params, _ = simulate(run.plan, mapped(SMALL, rehearsed.map), 0, every=3)
    np.testing.assert_allclose(rehearsed.params, params, rtol=1e-3, atol=1e-3)  # they clip a little differently (GUARD)
    assert np.abs(params).max() > 0.1  # something was learnt
    assert np.array_equal(rehearsed.predict(TEST), run.predict(TEST))


@pytest.mark.slow
def test_a_method_by_hand_in_the_recipes_preparation(tmp_path: Path):
    """No gradient is as long as the clip: where both clip, the simulator does by its guard earlier."""
    nodes = make_nodes(tmp_path, largest_clip=100.0, **REHEARSAL)
    order = Order(recipe="auto", method="scaffold", epsilon=WITHOUT, rounds=2, clip=100.0)
    now = finish(nodes, start(nodes, order))
    plan = fs.train(SMALL, fs.make("scaffold"), NO_PRIVACY, 2, clip=100.0).plan
    params, _ = simulate(plan, mapped(SMALL, now.map), 0, every=2)
    np.testing.assert_allclose(now.params, params, rtol=1e-4, atol=1e-4)


# --- what it costs ------------------------------------------------------------------------------------------


LABELS = {ColumnScales: "column scales", Centred: "feature mean", Whitened: "feature second moment"}


@pytest.mark.slow
@pytest.mark.parametrize("epsilon, phases", [(1.0, 1), (1e4, 2)])
def test_every_phase_is_in_the_ledger_with_its_share(tmp_path: Path, epsilon: float, phases: int):
    nodes = make_nodes(tmp_path, epsilon=epsilon, smallest_multiplier=1e-6)
    now = finish(nodes, start(nodes, Order(recipe="auto", epsilon=epsilon, rounds=2)))
    steps: list[Any] = [step for step in now.plan.preparation if step.phase is not None]
    shares = {LABELS[type(step)]: step.share for step in steps}
    assert len(shares) == phases
    for policy in nodes:
        assert spent(policy) == pytest.approx(epsilon, rel=1e-6)
        lines = [line for _, line in Account(policy.ledger).entries()]
        assert [line.label for line in lines] == [*shares, "gradient", "gradient"]
        squares = {line.label: line.weight * (line.ratio / line.multiplier) ** 2 for line in lines}
        for label, share in shares.items():
            assert squares[label] == pytest.approx(share * (now.plan.mu or 0) ** 2, rel=1e-9)
    assert now.job.mean_stds == {phase: now.plan.mean_std(phase) for phase in list(now.plan.programs)[:-1]}


# --- its model ----------------------------------------------------------------------------------------------


def test_there_is_no_model_before_its_preparation(shared_nodes):
    now = start(shared_nodes, Order(recipe="auto"))
    with pytest.raises(InputError, match="moments were not yet released"):
        now.predict(TEST)


@pytest.mark.parametrize("x", [np.zeros((2, 4)), np.zeros(3), np.zeros(())], ids=lambda x: str(x.shape))
def test_the_model_takes_records_as_the_nodes_hold_them(rehearsed: JobState, x: np.ndarray):
    with pytest.raises(InputError, match="expected records of shape"):
        rehearsed.predict(x)


@pytest.mark.slow
def test_a_checkpoint_holds_the_preparation_at_every_phase(tmp_path: Path):
    nodes, path = make_nodes(tmp_path / "nodes", epsilon=1e4, smallest_multiplier=1e-6), tmp_path / "checkpoint.npz"
    now, seen = start(nodes, Order(recipe="auto", epsilon=1e4, rounds=1)), []
    while not now.finished:
        save(now, path)
        again = restore(path)
        seen.append(list(again.released))
        assert same_bits({k: dict(v) for k, v in again.released.items()}, {k: dict(v) for k, v in now.released.items()})
        assert again.request().digest() == now.request().digest()
        now = step(now, ask_all(nodes, now))
    save(now, path)
    assert seen == [[], ["scales"], ["scales", "moments"]]
    assert np.array_equal(restore(path).predict(TEST), now.predict(TEST))


def spoilt(path: Path, how: str) -> bytes:
    arrays = from_bytes(path.read_bytes())
    meta = json.loads(str(arrays["meta"]))
    job: dict[str, Any] = json.loads(meta["job"])
    old = {k: v for k, v in job.items() if k not in ("preparation", "mean_stds")} | {"standardize": None}
    fewer = job | {"preparation": job["preparation"][1:], "mean_stds": {"moments": 0.0}}
    return to_bytes(
        {
            "nothing released": {k: a for k, a in arrays.items() if k != "scales_size"},
            "another form": arrays | {"moments_second": arrays["moments_second"][:-1]},
            "another type": arrays | {"scales_size": arrays["scales_size"].astype(np.float64)},
            "an older version's": arrays | {"meta": np.asarray(json.dumps(meta | {"job": json.dumps(old)}))},
            "other choices": arrays | {"meta": np.asarray(json.dumps(meta | {"job": json.dumps(fewer)}))},
        }[how]
    )


@pytest.mark.parametrize(
    "how, said",
    [("nothing released", "scales_size"), ("another form", "its moments have another form"),
     ("another type", "its scales have another form"), ("an older version's", "do server and node run the same"),
     ("other choices", "begun with other preparation than this version chooses")],
)  # fmt: skip
def test_a_checkpoint_without_its_preparation_is_an_error_to_read(
    tmp_path: Path, rehearsed: JobState, how: str, said: str
):
    save(rehearsed, path := tmp_path / "checkpoint.npz")
    path.write_bytes(spoilt(path, how))
    with pytest.raises(InputError, match=r"a damaged one|cannot be taken up again") as caught:
        restore(path)
    assert said in str(caught.value)
