"""The search: on training records only, each stage as described, its winners a file that compare reads."""

import numpy as np
import pytest

from fedsofim.data.partition import split
from fedsofim.errors import InputError
from fedsofim.experiments import search_spaces
from fedsofim.experiments.grid import resolved
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.reading import read_dataset
from fedsofim.experiments.tuning import Search, held_out, search_settings, stages
from fedsofim.methods import PUBLISHED, make


def test_validation_records_come_from_the_training_records_and_leave_them(small):
    whole = split(read_dataset("toy.npz", small.parent), 3, seed=1, iid=True)
    part = held_out(whole, Search(holdout=0.2))
    rows = np.concatenate(part.parts)
    assert len(np.unique(rows)) == len(rows) == 720
    left = np.setdiff1d(np.arange(900), rows)
    np.testing.assert_array_equal(part.dataset.x_test, whole.dataset.x_train[left])
    np.testing.assert_array_equal(part.dataset.y_test, whole.dataset.y_train[left])
    for kept, all_of_it in zip(part.parts, whole.parts, strict=True):
        assert set(kept) < set(all_of_it)


def test_every_client_keeps_a_record():
    from fedsofim.data.dataset import Dataset
    from fedsofim.data.partition import Split

    data = Dataset.of("d", x_train=np.ones((5, 1)), y_train=[0, 1, 0, 1, 0], x_test=[[1.0]], y_test=[0])
    part = held_out(Split(data, (np.array([0]), np.array([1, 2, 3, 4])), "d"), Search(holdout=0.5))
    assert part.sizes == (1, 2)


@pytest.mark.slow
def test_winners_are_a_file_that_compare_reads_and_the_search_resumes(small, tmp_path):
    text = small.read_text().replace("lr = 0.5 }\nDP", "search = { lr = [0.01, 0.5, 2.0] } }\nDP")
    (small.parent / "tune.toml").write_text(text[: text.index("DP-FedSOFIM")])
    experiment = read_experiment(small.parent / "tune.toml")
    out = tmp_path / "tuned.toml"
    search = Search("grid", rounds=4)
    grids = {"DP-FedGD": {"lr": [0.01, 0.5, 2.0]}}
    winners = search_settings(experiment, search, out, small.parent, grids)
    assert [w.epsilon for w in winners] == [1.0, 10.0]
    trials = (tmp_path / "tuned.trials.jsonl").read_text()
    assert len(trials.splitlines()) == 6
    assert search_settings(experiment, search, out, small.parent, grids) == winners
    assert (tmp_path / "tuned.trials.jsonl").read_text() == trials
    (tmp_path / "use.toml").write_text('datasets = ["fashion"]\nepsilons = [1, 10]\ntuned = "tuned.toml"\n')
    entry = read_experiment(tmp_path / "use.toml").entries[0]
    assert resolved(entry, 10.0) == winners[1].settings
    assert "privacy cost of the search is not covered" in out.read_text()


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_method_has_the_papers_two_stages_and_equal_trials_in_the_common_grid(name):
    coarse, fine = stages(Search("paper"), name, None)
    (common,) = stages(Search("common"), name, None)
    (drawn,) = stages(Search("random", trials=5), name, None)
    assert len(common) == search_spaces.TRIALS
    assert len(drawn) == 5
    for settings in (coarse[0], coarse[-1], fine[0], fine[-1], *common, *drawn):
        make(name, settings)


def test_a_bounded_stage_is_a_part_of_it():
    (few, _) = stages(Search("paper", trials=10), "adafedprox", None)
    assert len(few) == 10


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda: Search("papr"), "did you mean 'paper'"),
        (lambda: Search(holdout=0.0), "holdout is 0.0"),
        (lambda: stages(Search("grid"), "fedgd", None), "needs search ="),
    ],
)
def test_senseless_searches_are_refused(bad, said):
    with pytest.raises(InputError, match=said):
        bad()
