"""Recipes: choices from public numbers alone, what is set by hand wins, and every method runs in the preparation."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.models import Model, softmax_head
from fedsofim.core.preparation import Centred, ColumnScales, UnitNorm, Whitened, width_of
from fedsofim.core.sealed import sealed_method, sealed_model
from fedsofim.data.dataset import Dataset
from fedsofim.data.loading import load
from fedsofim.data.partition import Split, split
from fedsofim.errors import InputError
from fedsofim.methods import PUBLISHED, make
from fedsofim.recipes import Choices, Situation, choose, names
from fedsofim.simulation.training import Given, planned, train
from toy import make_toy

PLAIN = Situation(budget=Budget(1.0), sizes=(3000,) * 20, shape=(64,), classes=10)
SITUATIONS = {
    "plain": PLAIN,
    "secure sum": replace(PLAIN, trust="secure-sum"),
    "no privacy": replace(PLAIN, budget=NO_PRIVACY),
    "images": replace(PLAIN, shape=(28, 28)),
    "one client": replace(PLAIN, sizes=(60_000,)),
    "200 clients": replace(PLAIN, sizes=(10,) * 200),
    "clients of one record": replace(PLAIN, sizes=(1,) * 7),
    "a tiny table": replace(PLAIN, sizes=(8,) * 15, shape=(4,), classes=3),
    "a tiny table at a tenth": replace(PLAIN, sizes=(8,) * 15, shape=(4,), classes=3, budget=Budget(0.1)),
    "many features": replace(PLAIN, shape=(2000,)),
    "many features and records": replace(PLAIN, shape=(500,), sizes=(500_000,), budget=Budget(10.0)),
    "one feature": replace(PLAIN, shape=(1,), classes=2),
}


@pytest.fixture(scope="module")
def digits() -> Split:
    return split(load("digits"), 5, seed=0, iid=True)


# --- choices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SITUATIONS if name != "images"])
def test_auto_makes_sense_of_every_situation(name: str):
    situation = SITUATIONS[name]
    found = choose("auto", situation)
    assert found == choose("auto", situation) and found.recipe == "auto"
    assert found.method in PUBLISHED and make(found.method, dict(found.settings)).name == found.method
    assert found.rounds >= 1 and found.clip > 0 and found.weights == "size" and found.start == 0.0
    features: int = situation.shape[0]
    assert isinstance(found.preparation[-1], Centred | Whitened)
    assert sum(isinstance(step, UnitNorm) for step in found.preparation) == 1
    assert width_of(found.preparation, features) <= 2 * (features + 1)
    shares = [step.share for step in found.preparation if isinstance(step, ColumnScales | Centred | Whitened)]
    assert all(0 < share < 1 for share in shares) and sum(shares) <= 0.15 + 1e-9
    phases = [step.phase for step in found.preparation if step.phase is not None]
    assert len(set(phases)) == len(phases)  # each is charged once


def test_images_are_the_papers_but_for_their_weights():
    found, theirs = choose("auto", SITUATIONS["images"]), choose("paper", PLAIN)
    assert replace(found, recipe="paper", weights="uniform", why=theirs.why) == theirs
    assert (found.recipe, found.weights, found.preparation) == ("auto", "size", ())
    said = dict(found.why)
    assert "left as they are" in said["features"] and "clip, rounds, method as the paper's" in said["features"]
    assert said["weights"].startswith("size")


@pytest.mark.parametrize("name", [name for name in SITUATIONS if name != "images"])
def test_the_reason_of_every_choice_is_given(name: str):
    found = choose("auto", SITUATIONS[name])
    said = dict(found.why)
    wanted = {"columns", "records", "features", "clip", "weights", "start", "rounds", "method", "step"}
    assert set(said) == wanted and len(said) == len(found.why)
    assert said["clip"].startswith(f"{found.clip:g}") and said["rounds"].startswith(f"{found.rounds}")
    assert said["weights"].startswith(found.weights) and said["method"].startswith(found.method)
    for step in found.preparation:
        if isinstance(step, ColumnScales):
            assert f"{step.share:.1%}" in said["columns"]
        if isinstance(step, Centred):
            assert "centred" in said["features"] and f"{step.share:.1%}" in said["features"]
        if isinstance(step, Whitened):
            assert "whitened" in said["features"] and f"{step.damping:.2g}" in said["features"]
        if isinstance(step, UnitNorm):
            assert ("square roots" in said["records"]) == step.lift
            assert ("length kept" in said["records"]) == step.constant
    if not isinstance(found.preparation[0], ColumnScales):
        assert "left in their units" in said["columns"]


def test_less_noise_buys_more():
    """More budget: columns are known, then square roots and curvature; most rounds with much noise, more with none."""
    found = [choose("auto", replace(PLAIN, budget=Budget(e))) for e in (0.01, 1.0, 1000.0)]
    assert [isinstance(c.preparation[0], ColumnScales) for c in found] == [False, True, True]
    assert [isinstance(c.preparation[-1], Whitened) for c in found] == [False, False, True]
    assert [c.rounds for c in found] == [100, 40, 70]
    lifted = [any(isinstance(s, UnitNorm) and s.lift for s in c.preparation) for c in found]
    assert not lifted[0] and lifted[-1]


def test_secure_sum_is_at_least_as_quiet():
    local, shared = PLAIN, replace(PLAIN, trust="secure-sum")
    assert shared.noise == pytest.approx(local.noise / np.sqrt(20))
    assert local.noise == pytest.approx(2 / Budget(1.0).mu * np.sqrt(20) / 60_000)
    assert replace(PLAIN, budget=NO_PRIVACY).noise == 0.0


def test_the_paper_is_the_same_for_everybody():
    found = {choose("paper", s).__repr__() for s in SITUATIONS.values()}
    assert len(found) == 1
    one = choose("paper", PLAIN)
    assert (one.method, one.rounds, one.clip, one.weights, one.start, one.preparation) == (
        "fedsofim", 70, 10.0, "uniform", 0.5, (),
    )  # fmt: skip


def test_an_unknown_recipe_is_refused_in_words(toy):
    assert names() == ["auto", "paper"]
    with pytest.raises(InputError, match=r"no recipe 'atuo'.*auto"):
        train(toy, budget=Budget(1.0), recipe="atuo")


# --- plans --------------------------------------------------------------------------------------------------


def plan_of(data: Split, budget: Budget = Budget(2.0), recipe: str = "auto", **by_hand: Any):
    return planned(data, budget, recipe=recipe, trust="local", given=Given(**by_hand))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 100.0])
def test_everything_together_costs_the_budget(epsilon: float):
    plan, chosen = plan_of(make_toy(sizes=(300, 500)), Budget(epsilon))
    assert plan.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert plan.preparation == chosen.preparation
    assert plan.releases == plan.rounds + sum(step.phase is not None for step in chosen.preparation)


def as_planned(data: Split, chosen: Choices, **by_hand: Any) -> dict[str, Any]:
    """The plan's own choices beside those of the recipe, of which some were set by hand."""
    plan, said = plan_of(data, **by_hand)
    assert said == chosen  # what the recipe says does not change
    return {
        "method": plan.method.name, "rounds": plan.rounds, "clip": plan.clip, "weights": plan.weights,
        "model": plan.model, "preparation": plan.preparation,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "by_hand",
    [
        {"method": make("fedadam")},
        {"rounds": 7},
        {"clip": 0.25},
        {"weights": "uniform"},
        {"model": softmax_head(0.1)},
        {"preparation": ()},
        {"preparation": (UnitNorm(), Centred(0.2))},
        {"method": make("fedgd"), "rounds": 3, "clip": 2.0, "weights": "uniform", "preparation": (UnitNorm(),)},
    ],
    ids=lambda given: " ".join(given),
)
def test_every_choice_by_hand_wins_and_changes_no_other(toy, by_hand: dict[str, Any]):
    _, chosen = plan_of(toy)
    usual = as_planned(toy, chosen)
    assert (usual["method"], usual["rounds"], usual["clip"]) == (chosen.method, chosen.rounds, chosen.clip)
    sealed = {"method": lambda m: m.name, "model": sealed_model}
    given = {k: sealed.get(k, lambda v: v)(v) for k, v in by_hand.items()}
    assert as_planned(toy, chosen, **by_hand) == usual | given


@pytest.mark.slow
def test_the_paper_in_a_plan(toy):
    plan, _ = plan_of(toy, recipe="paper")
    assert (plan.method, plan.model) == (sealed_method(make("fedsofim")), sealed_model(softmax_head(0.5)))
    assert (plan.rounds, plan.clip, plan.weights, plan.preparation) == (70, 10.0, "uniform", ())


# --- runs ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_method_runs_in_the_recipes_preparation(digits, name: str):
    """And learns more than which digit is the most frequent, a tenth of them."""
    run = train(digits, make(name), Budget(10.0), 20, every=20)
    labels = digits.dataset.y_test
    majority = 100 * np.bincount(labels).max() / len(labels)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(run.params))
    assert run.plan.preparation == run.chosen.preparation != ()
    assert run.plan.epsilon == pytest.approx(10.0, rel=1e-9)
    assert run.accuracy > 3 * majority


@pytest.mark.slow
def test_nothing_but_data_and_a_budget_is_needed(digits):
    run = train(digits, budget=Budget(5.0))
    assert run.accuracy > 80
    summary = run.summary()
    assert summary["recipe"] == "auto" and summary["chosen"] == dict(run.chosen.why)
    assert run.plan.epsilon == pytest.approx(5.0, rel=1e-9)


def small_table(rows: int, features: int, clients: int) -> Split:
    random = np.random.default_rng(0)
    y = np.arange(rows + 60) % 3
    x = (2 * random.normal(size=(3, features))[y] + random.normal(size=(rows + 60, features))).astype(np.float32)
    data = Dataset.of("table", x_train=x[:rows], y_train=y[:rows], x_test=x[rows:], y_test=y[rows:])
    return split(data, clients, seed=0, min_size=1, iid=True)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [Budget(0.1), Budget(5.0), NO_PRIVACY], ids=str)
@pytest.mark.parametrize("rows, features, clients", [(150, 4, 3), (400, 3, 200), (300, 400, 1)], ids=str)
def test_tables_of_any_form_are_trained(rows: int, features: int, clients: int, budget: Budget):
    run = train(small_table(rows, features, clients), budget=budget, rounds=3, every=3)
    assert np.isfinite(np.asarray(run.params)).all()
    assert run.plan.epsilon == pytest.approx(budget.epsilon, rel=1e-9)


@pytest.mark.slow
def test_images_are_left_as_they_are():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 6, 6)).astype(np.float32), np.arange(60) % 2
    x[y == 1] += 1.0
    rows = Dataset.of("images", x_train=x[:40, 0], y_train=y[:40], x_test=x[40:, 0], y_test=y[40:])
    data = replace(rows, x_train=x[:40], x_test=x[40:])

    def logits(params: Any, x: jax.Array) -> jax.Array:
        return x.reshape(len(x), -1) @ params

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return -jax.nn.log_softmax(logits(params, x[None])[0])[y]

    flat = Model(lambda key, shape, classes: jnp.zeros((36, classes), jnp.float32), loss, logits)
    run = train(split(data, 2, seed=0, iid=True), budget=Budget(50.0), model=flat, rounds=5)
    assert run.plan.preparation == () and run.plan.shape == (6, 6)
    assert np.isfinite(run.accuracy)
