"""A private search: within its budget altogether, scored by noise that was paid for, and silent about the losers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from commands import run_here
from fedsofim.core.budget import Budget
from fedsofim.core.gaussian import mu_of
from fedsofim.core.models import softmax_head
from fedsofim.core.plan import make_plan
from fedsofim.core.selection import EveryTrial, NegativeBinomial
from fedsofim.errors import InputError
from fedsofim.experiments import private_tuning
from fedsofim.experiments.grid import Entry, Experiment, Partition
from fedsofim.experiments.private_tuning import planned_search, search_privately, write_found
from fedsofim.experiments.tuning import Search, set_apart
from fedsofim.methods import make
from fedsofim.progress import Progress
from fedsofim.simulation.private_count import count
from toy import make_toy, write_blobs

GRID = {"A": {"lr": [0.01, 0.3, 1.0, 3.0]}}
SEARCH = Search("grid", 3, 0, 0.2)


@pytest.fixture(scope="module")
def described(tmp_path_factory) -> tuple[Experiment, Path]:
    folder = tmp_path_factory.mktemp("search")
    write_blobs(folder / "toy.npz")
    return Experiment(name="e", datasets=("toy.npz",), entries=(Entry("A", "fedgd"),), epsilons=(5.0,),
                      partitions=(Partition("iid", 3),)), folder  # fmt: skip


@pytest.mark.slow
def test_search_and_model_are_within_the_budget(described, tmp_path):
    experiment, folder = described
    job = planned_search(experiment, SEARCH, GRID, 3)
    assert isinstance(job.way, NegativeBinomial) and 5 - 1e-5 < job.epsilon <= 5
    assert job.trial.epsilon < 5 and job.trial.mu == pytest.approx(job.mu)
    found = search_privately(job, SEARCH, folder)
    assert found.settings["lr"] in GRID["A"]["lr"]
    assert found.ledger["epsilon"] == job.epsilon and found.ledger["ledger"][0]["releases"] == 3
    again = search_privately(job, SEARCH, folder)
    assert json.dumps(again.summary(), default=str) == json.dumps(found.summary(), default=str)  # the same draws
    write_found(found, tmp_path / "w.toml", tmp_path / "w")
    assert "Search and model together: epsilon 5 at delta 1e-05" in (tmp_path / "w.toml").read_text()
    assert "Covered by the budget: the search for its settings" in found.model.card
    assert "Not covered: what was tried" not in found.model.card
    assert "epsilon 5 at delta" in found.model.card
    text = "".join(p.read_text() for p in tmp_path.rglob("*") if p.suffix in (".json", ".toml"))
    assert text.count('"score"') == 1  # the winner's, and no other trial's


def test_the_best_is_what_wins_and_every_trial_is_priced(described, monkeypatch):
    """Trials of known scores: the best is released; all four are run where all are composed."""
    experiment, folder = described
    job = replace(planned_search(experiment, SEARCH, GRID, 3), way=EveryTrial(4))
    seen = []

    class Score:
        def __init__(self, accuracy):
            self.accuracy = accuracy

    def trial(job, kept, rows, entry, settings, seed):
        seen.append(settings["lr"])
        score: Any = Score(-abs(settings["lr"] - 1))
        none: Any = None
        return private_tuning.Tried(entry=entry, settings=settings, score=score, run=none)

    monkeypatch.setattr(private_tuning, "_trial", trial)
    monkeypatch.setattr(private_tuning, "_released", lambda job, best: best)
    assert search_privately(job, SEARCH, folder).settings == {"lr": 1.0}
    assert seen == GRID["A"]["lr"]
    seeds = [replace(job, way=NegativeBinomial(4.0), seed=s) for s in range(12)]
    lengths, shown = [], Shown()
    for other in seeds:
        seen.clear()
        search_privately(other, SEARCH, folder, progress=shown)
        lengths.append(len(seen))
    assert len(set(lengths)) > 2  # another seed, another number
    assert shown.told == [4.0] * 12  # which the bar does not tell


class Shown(Progress):
    """A bar that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def at(self, done: float) -> None:
        self.told.append(done)


def test_a_trial_beyond_its_price_is_an_error():
    plan = make_plan(make("fedgd"), softmax_head(), sizes=(30,), shape=(5,), classes=3, budget=Budget(1.0), rounds=2)
    private_tuning._check_price(plan, mu_of(1.0, 1e-5))
    with pytest.raises(InputError, match="priced for trials"):
        private_tuning._check_price(plan, 0.99 * mu_of(1.0, 1e-5))
    sampled = make_plan(make("fedgd"), softmax_head(), sizes=(30,), shape=(5,), classes=3, budget=Budget(1.0), rounds=2,
                        batch_rate=0.5)  # fmt: skip
    with pytest.raises(InputError, match="sampled"):
        private_tuning._check_price(sampled, 100.0)


def test_one_release_one_budget(described):
    with pytest.raises(InputError, match="one of each"):
        planned_search(replace(described[0], epsilons=(1.0, 5.0)), SEARCH, GRID, 3)
    with pytest.raises(InputError, match="one budget"):
        planned_search(replace(described[0], entries=(Entry("A", "fedgd", epsilons="1,rest"),)), SEARCH, GRID, 3)


def test_parts_do_not_meet_and_no_record_decides_them():
    toy = make_toy()
    kept, rows = set_apart(toy, SEARCH)
    trained = np.concatenate(kept.parts)
    assert not set(trained) & set(rows) and len(trained) + len(rows) == sum(toy.sizes)
    other = replace(
        toy, dataset=replace(toy.dataset, x_train=toy.dataset.x_train + 1, y_train=toy.dataset.y_train[::-1])
    )
    np.testing.assert_array_equal(set_apart(other, SEARCH)[1], rows)


@pytest.mark.parametrize("trust, clients", [("local", 4), ("secure-sum", 4), ("local", 1)])
def test_the_score_is_the_count_and_its_noise_what_was_paid_for(trust, clients):
    """Of std ratio·clip/mu at each client: neither two thirds nor three halves of it."""
    toy = make_toy()
    plan = make_plan(make("fedgd"), softmax_head(), sizes=toy.sizes[-clients:], shape=(5,), classes=3,
                     budget=Budget(1.0), rounds=1, trust=trust)  # fmt: skip
    x, y = toy.dataset.x_test, toy.dataset.y_test
    params = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    right = 100 * float(np.mean((x @ params[:-1] + params[-1]).argmax(1) == y))
    assert count(plan, params, x, y, np.inf, jax.random.key(0)).accuracy == pytest.approx(right, abs=1e-3)
    std = (1 / 0.5) * (1 if trust == "secure-sum" else np.sqrt(clients)) * 100 / len(y)
    assert count(plan, params, x, y, 0.5, jax.random.key(0)).error == pytest.approx(std, rel=2e-3)
    if (trust, clients) == ("local", 4):  # what is said is what is drawn
        found = [count(plan, params, x, y, 0.5, key) for key in jax.random.split(jax.random.key(1), 70)]
        measured = np.std([f.accuracy - right for f in found])
        assert 0.7 < measured / std < 1.35  # 3.6 standard errors; 2/3 and 3/2 are outside


@pytest.mark.slow
def test_on_the_command_line(tmp_path, capsys, monkeypatch):
    write_blobs(tmp_path / "toy.npz")
    text = 'datasets = ["toy.npz"]\nepsilons = [5]\npartitions = [{kind = "iid", clients = 3}]\nrounds = 2\n'
    (tmp_path / "e.toml").write_text(text + '[methods.A]\nmethod = "fedgd"\nsearch = {lr = [0.1, 1.0]}\n')
    args = [
        "tune",
        str(tmp_path / "e.toml"),
        "--strategy",
        "grid",
        "--out",
        str(tmp_path / "w.toml"),
        "--private",
        "--json",
    ]
    told = json.loads(run_here(capsys, monkeypatch, *args).stdout)
    assert told["epsilon"] == pytest.approx(5, rel=1e-4) and "a random number" in told["search"]["way"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["e.toml", "toy.npz", "w", "w.toml"]  # no journal of trials
