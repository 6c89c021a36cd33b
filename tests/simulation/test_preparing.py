"""Preparation in whole runs: charged, really noisy, shared under secure sum, and part of the model."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from diary import silent
from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.feature_moments import LABEL, FeatureMoments
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan, Trust
from fedsofim.core.preparation import Centred, ColumnScales, Step, UnitNorm, Whitened
from fedsofim.data.loading import load
from fedsofim.data.partition import Split, split
from fedsofim.methods import make
from fedsofim.methods.fedgd import fedgd
from fedsofim.simulation import preparing
from fedsofim.simulation.preparing import mapped, prepare
from fedsofim.simulation.simulator import ask_once, keys, start_parameters
from fedsofim.simulation.training import Given, plan_for, planned, train
from toy import make_toy

STEPS = (ColumnScales(0.02), UnitNorm(constant=True), Centred(0.05))
LARGER = (ColumnScales(0.02), UnitNorm(lift=True), Whitened(0.1, 0.01))


@pytest.fixture
def skewed() -> Split:
    """Features of very different place and size."""
    data = make_toy(sizes=(400, 500, 600))
    shift, stretch = np.array([3, -2, 0, 1, 2], np.float32), np.array([0.5, 1, 0.6, 0.8, 1], np.float32)
    for x in (data.dataset.x_train, data.dataset.x_test):
        x *= stretch
        x += shift
    return data


@pytest.fixture(scope="module")
def digits() -> Split:
    return split(load("digits"), 5, seed=0, iid=True)


# --- by feature moments -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("budget, centre, spread", [(NO_PRIVACY, 1e-3, 1e-3), (Budget(50.0), 0.2, 0.2)])
def test_features_come_out_centred_and_scaled(skewed, budget, centre, spread):
    moments = FeatureMoments(share=0.3, radius=8.0)
    plan = plan_for(skewed, fedgd(lr=0.1), budget, 10, weights="size", preparation=(moments,))
    x = prepare(plan, skewed, seed=0)[0].dataset.x_train
    assert np.abs(skewed.dataset.x_train.mean(axis=0)).max() > 2  # so that the next line says something
    assert np.abs(x.mean(axis=0)).max() < centre
    np.testing.assert_allclose(x.std(axis=0), 1.0, atol=spread)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(FeatureMoments(),), STEPS], ids=["moments", "steps"])
def test_noise_is_really_added(skewed, steps):
    quiet, noisy, again, other = (
        prepare(plan_for(skewed, fedgd(lr=0.1), b, 5, preparation=steps), skewed, seed=seed)[0].dataset
        for b, seed in ((NO_PRIVACY, 1), (Budget(1.0), 1), (Budget(1.0), 1), (Budget(1.0), 2))
    )
    assert not np.allclose(quiet.x_train, noisy.x_train)
    assert not np.allclose(other.x_train, noisy.x_train)
    assert np.array_equal(noisy.x_train, again.x_train)


@pytest.mark.slow
def test_the_result_says_so(skewed):
    run = train(skewed, fedgd(lr=0.1), Budget(5.0), 3, recipe="paper", preparation=(FeatureMoments(),))
    summary = run.summary()
    assert summary["preparation"] == ["FeatureMoments(share=0.05, radius=10.0)"]
    assert [c["what"] for c in summary["ledger"]] == [LABEL, "gradient"]
    assert summary["releases"] == 4


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["local", "secure-sum"])
@pytest.mark.parametrize("steps", [STEPS, LARGER], ids=["centred", "whitened"])
def test_every_release_of_a_preparation_is_charged_with_its_share(toy, steps: tuple[Step, ...], trust: Trust):
    plan = plan_for(toy, fedgd(), Budget(0.7, 1e-6), 4, trust=trust, preparation=steps)
    assert list(plan.programs) == [Phase.SCALES, Phase.MOMENTS, Phase.ROUND]
    parts = [c.mu_squared(plan.multipliers[c.site]) / (plan.mu or 0) ** 2 for c in plan.ledger]
    shares = [steps[0].share, steps[2].share]  # type: ignore[attr-defined]
    assert parts == pytest.approx([*shares, 1 - sum(shares)])
    assert plan.epsilon == pytest.approx(0.7, rel=1e-9)
    assert [c.releases for c in plan.ledger] == [1, 1, 4]


def released(plan: Plan, data: Split, phase: Phase, seed: int) -> np.ndarray:
    """Everything in the mean of what the clients release in a phase, in a row."""
    init, noise = keys(seed)
    found = ask_once(plan, phase, data, start_parameters(plan, data, init), noise)
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(found)])


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "size"])
@pytest.mark.parametrize("trust", ["local", "secure-sum"])
@pytest.mark.parametrize("phase", [Phase.SCALES, Phase.MOMENTS])
def test_the_mean_of_a_preparation_has_the_noise_that_the_plan_states(phase: Phase, trust: Trust, weights):
    """Silent records but for what every record says of itself, which a second seed takes off: 20 pairs, 800 columns."""
    data = silent((3, 4, 9), 800)
    steps = (ColumnScales(0.1), UnitNorm(), Centred(0.1))
    plan = plan_for(data, fedgd(), Budget(1.0), 2, trust=trust, weights=weights, preparation=steps)
    pairs = [(released(plan, data, phase, 2 * s), released(plan, data, phase, 2 * s + 1)) for s in range(20)]
    measured = np.std([a - b for a, b in pairs]) / np.sqrt(2)
    assert measured == pytest.approx(plan.mean_std(phase), rel=0.03)


@pytest.mark.slow
def test_secure_sum_has_less_noise_in_a_preparation_but_not_in_a_setup():
    data = make_toy(sizes=(20, 20, 20, 20))
    local, shared = (
        plan_for(data, fedgd(), Budget(1.0), 2, trust=trust, weights="size", preparation=STEPS)
        for trust in ("local", "secure-sum")
    )
    for phase in (Phase.SCALES, Phase.MOMENTS, Phase.ROUND):
        assert shared.mean_std(phase) == pytest.approx(local.mean_std(phase) / 2)  # sqrt of four clients
    assert shared.gain(Phase.SETUP) == local.gain(Phase.SETUP)


# --- the model takes records as they come -------------------------------------------------------------------


@pytest.mark.slow
def test_predictions_take_raw_records_and_agree_with_the_accuracy(digits):
    run = train(digits, budget=Budget(5.0), rounds=10)
    data = digits.dataset
    assert run.split is digits and len(run.plan.preparation) == 3
    guess = run.predict(data.x_test)
    assert 100 * np.mean(guess == data.y_test) == pytest.approx(run.accuracy, abs=1e-3)
    assert np.array_equal(run.predict(data.x_test[:1]), guess[:1])  # a record by itself, and no other form
    assert run.prepared.steps == run.plan.preparation == run.chosen.preparation


@pytest.mark.slow
def test_records_with_square_roots_beside_them_are_predicted_raw_too(toy):
    run = train(toy, fedgd(), Budget(5.0), 3, preparation=LARGER)
    data = toy.dataset
    assert run.plan.shape == (10,) and run.params.shape == (11, 3)
    found = 100 * np.mean(run.predict(data.x_test) == data.y_test)
    assert found == pytest.approx(run.accuracy, abs=1e-3)


@pytest.mark.slow
def test_equal_seeds_give_equal_runs_and_others_do_not(digits):
    first, again, other = (train(digits, budget=Budget(1.0), rounds=5, seed=s, every=5) for s in (3, 3, 4))
    assert np.array_equal(first.params, again.params)
    assert not np.array_equal(first.params, other.params)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1000.0, 1e-3])
def test_all_features_in_another_unit_change_nothing(digits, scale: float):
    """Not even rounding, of powers of two; of a thousand hardly anything."""
    scaled = mapped(digits, lambda x: (x * np.float32(scale)).astype(np.float32))
    one, other = (train(data, budget=Budget(3.0), rounds=20, every=20) for data in (digits, scaled))
    assert other.chosen == one.chosen
    assert other.accuracy == one.accuracy
    np.testing.assert_allclose(other.params, one.params, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_planning_reads_no_record(toy):
    """Another dataset of the same shapes has the same plan and the same choices."""
    random = np.random.default_rng(9)
    data = toy.dataset
    x = (100 * random.normal(size=data.x_train.shape)).astype(np.float32)
    other = replace(toy, dataset=replace(data, x_train=x, y_train=data.y_train[::-1].copy()))
    for trust in ("local", "secure-sum"):
        (plan, chosen), (plan2, chosen2) = (
            planned(d, Budget(2.0), recipe="auto", trust=trust, given=Given()) for d in (toy, other)
        )
        assert chosen == chosen2
        assert (plan.multipliers, plan.shape, plan.ledger) == (plan2.multipliers, plan2.shape, plan2.ledger)
        assert (plan.method, plan.model, plan.preparation) == (plan2.method, plan2.model, plan2.preparation)


@pytest.mark.slow
def test_no_preparation_leaves_the_split_alone(toy):
    plan = plan_for(toy, fedgd(), Budget(1.0), 2)
    seen, made = prepare(plan, toy, seed=0)
    assert seen is toy and made.steps == () and not made.released
    assert made.map(toy.dataset.x_test) is toy.dataset.x_test


# --- one release for all methods of a comparison ------------------------------------------------------------


def test_methods_that_prepare_alike_ask_once(digits, monkeypatch):
    """The second has the first's releases, bit for bit; another budget, seed or trust has its own."""
    asked = []
    monkeypatch.setattr(preparing, "_kept", preparing._Kept())
    monkeypatch.setattr(preparing, "ask_once", lambda *a: asked.append(a[1]) or ask_once(*a))

    def made(method: str, epsilon: float = 5.0, trust: Trust = "local", seed: int = 0):
        given = Given(method=make(method, {}, epsilon), rounds=3, weights="size", clip=3.0, preparation=STEPS)
        plan = planned(digits, Budget(epsilon), recipe="paper", trust=trust, given=given)[0]
        return prepare(plan, digits, seed)

    first, second = made("fedgd"), made("fedadam")
    assert asked == [Phase.SCALES, Phase.MOMENTS]
    np.testing.assert_array_equal(first[0].dataset.x_train, second[0].dataset.x_train)
    others = [made("fedgd", 1.0), made("fedgd", seed=1), made("fedgd", trust="secure-sum")]
    assert len(asked) == 8
    assert all((other[0].dataset.x_train != first[0].dataset.x_train).any() for other in others)


def test_what_was_released_is_forgotten_with_the_split(skewed, monkeypatch):
    monkeypatch.setattr(preparing, "_kept", preparing._Kept())
    plan = plan_for(skewed, fedgd(lr=0.1), Budget(5.0), 3, weights="size", preparation=STEPS)
    before = prepare(plan, skewed, 0)[1].released[Phase.MOMENTS]["first"]
    other = replace(skewed, dataset=replace(skewed.dataset, x_train=skewed.dataset.x_train[::-1].copy()))
    after = prepare(plan, other, 0)[1].released[Phase.MOMENTS]["first"]
    assert (np.asarray(before) != np.asarray(after)).any()
