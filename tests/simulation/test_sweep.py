"""Sweeps over settings and seeds: the same runs as one at a time, side by side in one program."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax
import numpy as np
import pytest

from fedsofim import Budget
from fedsofim.core.plan import Weights
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split
from fedsofim.errors import InputError
from fedsofim.methods import PUBLISHED, factory, make
from fedsofim.simulation import simulator, sweep
from fedsofim.simulation.training import plan_for, train


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    y = np.arange(240) % 3
    x = random.normal(size=(240, 4)) + 2 * np.eye(3, 4)[y]
    return split(Dataset.of("toy", x_train=x, y_train=y, x_test=x, y_test=y), 3, seed=1, iid=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedsofim", "fedavg", "fedfc"])  # pooled, local steps, a one-shot release
def test_seeds_side_by_side_are_the_seeds_one_by_one(name, data):
    settings = [{"lr": 0.1}, {"lr": 0.5}] if name != "fedavg" else [{"client_lr": 0.1}, {"client_lr": 0.5}]
    together = sweep.scores(data, name, settings, Budget(2.0), 3, seeds=(0, 7))
    apart = [sweep.score(data, name, settings, Budget(2.0), 3, seed=seed) for seed in (0, 7)]
    assert together.shape == (2, 2)
    np.testing.assert_allclose(together.T, apart, atol=1.0)  # float sums in another order may move a record or two
    assert not np.array_equal(together[:, 0], together[:, 1])


#: Every number of every published method, none at its default; the second is a form with its own price or start.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "adafedprox": [{"client_lr": 0.2, "server_lr": 0.9, "local_steps": 2, "mu0": 0.3}, {"mu0": 0.3, "local_steps": 2}],
    "fedadam": [
        {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "tau": 0.01},
        {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "tau": 0.03, "bias_corrected": False},
        {"client_lr": 0.2, "local_steps": 2},
        {"clip_quantile": 0.4},
    ],
    "fedavg": [{"client_lr": 0.2, "server_lr": 0.9, "local_steps": 2}, {"server_lr": 0.9, "local_steps": 1}],
    "fedfc": [
        {"lr": 0.3, "gamma": 1.5, "share": 0.1, "feature_clip": 4.0},
        {"lr": 0.3, "gamma": 1.5, "share": 0.2, "feature_clip": 2.0, "as_published": True, "published_noise": 30.0},
    ],
    "fedgd": [{"lr": 0.3}, {"lr": 0.3, "clip_quantile": 0.4}],
    "fedsofim": [
        {"lr": 0.3, "rho": 0.7, "beta": 0.8, "weight_decay": 1e-3, "bias_correction": True, "warmup": 2},
        {"rho": 0.7, "beta": 0.8, "weight_decay": 1e-3, "direction": "gradient"},
        {"client_lr": 0.2, "local_steps": 2},
        {"lr": 0.3, "clip_quantile": 0.4},
    ],
    "fedyogi": [
        {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "tau": 0.01},
        {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "tau": 0.03, "bias_corrected": False},
        {"client_lr": 0.2, "local_steps": 2},
        {"clip_quantile": 0.4},
    ],
    "ftrl": [{"lr": 0.05}, {"lr": 0.05, "restart": 2}],
    "scaffold": [{"client_lr": 0.2, "server_lr": 0.9, "local_steps": 2}, {"server_lr": 0.9, "as_published": True}],
}


def test_the_settings_above_are_all_there_are():
    for name in PUBLISHED:
        numbers = {k for k, hint in get_type_hints(factory(name)).items() if float in (hint, *get_args(hint))}
        assert numbers == {k for given in SETTINGS[name] for k, v in given.items() if isinstance(v, float)}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_sweep_prices_the_settings_it_reports(name: str, data: Split):
    for given in SETTINGS[name]:
        plain = plan_for(data, make(name, given), Budget(5.0), 3)
        swept = plan_for(data, sweep.sweepable(name, *sweep.divided(given, name)[:2]), Budget(5.0), 3)
        assert swept.ledger == plain.ledger
        assert swept.multipliers == plain.multipliers
        assert swept.method.note == plain.method.note


RUN = [(name, each[0]) for name, each in SETTINGS.items()] + [
    (name, SETTINGS[name][1]) for name in ("fedadam", "fedfc")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "given"), RUN, ids=str)
def test_a_sweep_runs_the_settings_it_reports(name: str, given: dict[str, Any], data: Split):
    """Trained and scored as the same settings without a sweep."""
    plain = train(data, make(name, given), Budget(5.0), 3, recipe="paper", seed=3)
    fixed, numbers, hyper = sweep.divided(given, name)
    plan = plan_for(data, sweep.sweepable(name, fixed, numbers), Budget(5.0), 3)
    params, trace = sweep.simulate_with(plan, data, 3, hyper)
    np.testing.assert_allclose(np.asarray(params), np.asarray(plain.params), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(trace.accuracy, plain.trace.accuracy, atol=0.5)  # one of 240 records
    if name == "fedfc" or "bias_corrected" in given:  # whose start depends on settings, and a search makes its own
        final = sweep.score(data, name, [given], Budget(5.0), 3, seed=3)
        assert final[0] == pytest.approx(plain.accuracy, abs=0.5)


def test_a_number_that_enters_a_price_cannot_travel(data: Split):
    """Declared or not: where a plan is made, a number that travels has no value."""
    for wrong in ("share", "feature_clip"):
        with pytest.raises((InputError, jax.errors.JAXTypeError)):
            plan_for(data, sweep.sweepable("fedfc", (), ("gamma", "lr", wrong)), Budget(5.0), 3)
    with pytest.raises((InputError, jax.errors.JAXTypeError)):
        plan_for(data, sweep.sweepable("fedfc", (("as_published", True),), ("published_noise",)), Budget(5.0), 3)


@pytest.mark.slow
def test_a_run_that_is_given_no_numbers_ends_in_none(data: Split):
    plan = plan_for(data, sweep.sweepable("fedgd", (), ("lr",)), Budget(5.0), 2)
    assert np.isnan(simulator.simulate(plan, data)[0]).all()


@pytest.mark.slow
def test_a_grid_lays_its_records_out_once(data, monkeypatch):
    """And forgets them with the split they are of."""
    made = []
    monkeypatch.setattr(simulator, "layout", lambda *a, real=simulator.layout: made.append(a) or real(*a))
    fixed, numbers, hyper = sweep.divided({"lr": 0.1}, "fedgd")

    def run(mine, weights: Weights = "uniform"):
        plan = plan_for(mine, sweep.sweepable("fedgd", fixed, numbers), Budget(2.0), 2, weights=weights)
        return sweep.simulate_with(plan, mine, 0, hyper)[0]

    mine = replace(data, parts=(data.parts[0][:60], *data.parts[1:]))  # unequal, so that weights make a difference
    first, again = run(mine), run(mine)
    assert len(made) == 1 and np.array_equal(first, again)
    run(mine, "size")
    assert len(made) == 2
    other = replace(data, parts=data.parts[:2])
    assert not np.array_equal(run(other), first)
    assert len(made) == 3 and sweep._laid.records is not None
    made.clear()
    del other
    gc.collect()
    assert sweep._laid.records is None


@pytest.mark.slow
def test_batches_are_even(data, monkeypatch):
    monkeypatch.setattr(sweep, "_NUMBERS", 3 * 240 * 3)  # three runs at a time
    assert sweep.batch_width(4, 240 * 3) == 2
    found = sweep.scores(data, "fedgd", [{"lr": v} for v in (0.1, 0.2, 0.3, 0.4, 0.5)], Budget(2.0), 2, seeds=(0,))
    assert np.isfinite(found).all() and found.shape == (5, 1)


@pytest.mark.slow
def test_a_strangers_settings_are_compiled_in(data):
    """Its functions may look at their numbers in Python, so each setting is a program of its own."""
    heavyball = str(Path(__file__).resolve().parents[2] / "examples" / "heavyball.py")
    settings = [{"client_lr": 0.05, "local_steps": 1}, {"client_lr": 0.5, "local_steps": 1}]
    fixed, numbers, values = sweep.divided(settings[0], heavyball)
    assert (fixed, numbers, len(values)) == ((("client_lr", 0.05), ("local_steps", 1)), (), 0)
    found = sweep.score(data, heavyball, settings, Budget(5.0), 3, seed=4)
    alone = [train(data, make(heavyball, given), Budget(5.0), 3, recipe="paper", seed=4).accuracy for given in settings]
    np.testing.assert_allclose(found, alone, atol=1.0)
