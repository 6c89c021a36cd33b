"""A sweep over seeds: the same runs as one seed at a time, side by side in one program."""

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsofim import Budget
from fedsofim.core.plan import Weights
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import split
from fedsofim.methods import make
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


@pytest.mark.slow
def test_a_grid_lays_its_records_out_once(data, monkeypatch):
    """And forgets them with the split they are of."""
    made = []
    monkeypatch.setattr(simulator, "layout", lambda *a, real=simulator.layout: made.append(a) or real(*a))
    fixed, numbers, hyper = sweep.divided({"lr": 0.1}, "fedgd")

    def run(mine, weights: Weights = "uniform"):
        plan = plan_for(mine, sweep.sweepable("fedgd", fixed, numbers), Budget(2.0), 2, weights=weights)
        return sweep.simulate_with(plan, mine, 0, hyper)[0]

    mine = replace(data)
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
    alone = [train(data, make(heavyball, given), Budget(5.0), 3, seed=4).final_accuracy for given in settings]
    np.testing.assert_allclose(found, alone, atol=1.0)
