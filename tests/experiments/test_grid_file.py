"""Reading experiments: what a few lines mean, and what is said when they are wrong."""

import re
from pathlib import Path

import pytest

from fedsofim.errors import InputError
from fedsofim.experiments.grid import Partition, points, resolved
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.reading import read_dataset

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
MINIMAL = 'datasets = ["fashion"]\nepsilons = [1]\n'
GD = "[methods.A]\nmethod = 'fedgd'\n"


def read(tmp_path: Path, text: str):
    path = tmp_path / "x.toml"
    path.write_text(text)
    return read_experiment(path)


def test_a_few_lines_are_enough(tmp_path):
    found = read(tmp_path, MINIMAL + GD)
    assert (found.name, found.rounds, found.seeds, found.delta) == ("x", None, (0, 1, 2), 1e-5)
    assert found.partitions == (Partition("dirichlet", 20, 0.5, 42),)


def test_a_model_is_a_name_or_a_table_of_its_settings(tmp_path):
    named = read(tmp_path, MINIMAL + "model = 'mlp'\n" + GD)
    assert (named.model, named.model_settings) == ("mlp", {})
    table = read(tmp_path, MINIMAL + GD + "[model]\nname = 'mlp'\nhidden = [8, 4]\n")
    assert (table.model, table.model_settings) == ("mlp", {"hidden": [8, 4]})
    former = read(tmp_path, MINIMAL + "model = 'softmax_head'\n" + GD)
    assert former.model == "linear" == read(tmp_path, MINIMAL + GD).model


def test_runs_of_two_models_are_two_runs_and_the_head_has_its_old_id(tmp_path):
    data = {"digits": read_dataset("digits", tmp_path)}
    head = MINIMAL.replace("fashion", "digits") + "seeds = [0]\n"
    more = ["model = 'linear'\n", "model = 'mlp'\n", "model = {name = 'mlp', hidden = [8]}\n"]
    ids = [points(read(tmp_path, head + line + GD), data)[0].id for line in ["", *more]]
    assert ids[0] == ids[1] and len(set(ids)) == 3
    assert ids[0] == "c322e45415cfb218"  # as in rows that were made when it was called softmax_head


def test_presets_are_written_out_per_budget(tmp_path):
    found = read(tmp_path, 'datasets = ["fashion"]\nepsilons = [0.5, 10]\n[methods.S]\nmethod = "fedsofim"\n'
                 'preset = "paper-resnet20"\nrho = 2\n')  # fmt: skip
    assert resolved(found.entries[0], 0.5)["warmup"] == 10
    assert resolved(found.entries[0], 10.0) == {
        "lr": 0.8,
        "rho": 2.0,
        "beta": 0.9,
        "bias_correction": False,
        "warmup": 0,
    }


def test_a_sweep_is_one_entry_per_value(tmp_path):
    found = read(tmp_path, MINIMAL + "[methods.S]\nmethod = 'fedsofim'\nsweep = { rho = [0.1, 1] }\n")
    assert [e.label for e in found.entries] == ["S rho=0.1", "S rho=1"]


TUNED = '[methods.A]\nmethod = "fedgd"\n[methods.A."1"]\nlr = 0.25\n'


def test_tuned_settings_are_entries_beside_the_files_own(tmp_path):
    (tmp_path / "t.toml").write_text(TUNED)
    found = read(tmp_path, MINIMAL.replace("[1]", "[1]\ntuned = 't.toml'") + "[methods.B]\nmethod = 'fedadam'\n")
    assert {e.label: e.method for e in found.entries} == {"A": "fedgd", "B": "fedadam"}
    assert resolved(found.entries[0], 1.0) == {"lr": 0.25}


def test_a_label_that_was_tuned_and_stands_in_the_file_too_is_refused(tmp_path):
    (tmp_path / "t.toml").write_text(TUNED)
    with pytest.raises(InputError, match=r"'A' stands in .methods. and in t.toml; leave it out of one of them"):
        read(tmp_path, MINIMAL.replace("[1]", "[1]\ntuned = 't.toml'") + "[methods.A]\nmethod = 'fedadam'\n")


def test_a_sweep_that_makes_the_label_of_another_method_is_refused(tmp_path):
    twice = "[methods.S]\nmethod = 'fedsofim'\nsweep = { rho = [1] }\n[methods.'S rho=1']\nmethod = 'fedgd'\n"
    with pytest.raises(InputError, match="'S rho=1' stands more than once"):
        read(tmp_path, MINIMAL + twice)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MINIMAL + "round = 3\n" + GD, "did you mean 'rounds'"),
        ("epsilons = [1]\n" + GD, "datasets is missing"),
        (MINIMAL, "no entries"),
        (MINIMAL.replace("[1]", "[-1]") + GD, "epsilon is -1"),
        (MINIMAL.replace("[1]", "['a']") + GD, "expected a number above 0, or no-privacy"),
        (MINIMAL.replace("[1]", "[inf]") + GD, "a run without noise is fs.NO_PRIVACY, written no-privacy"),
        (MINIMAL.replace("[1]", "[[1]]") + GD, "expected a list like [0.5, 1, 5]"),
        (MINIMAL + "model = 'softmax'\n" + GD, "there is no model 'softmax'"),
        (MINIMAL + "model = 3\n" + GD, "model is 3; expected a name, or { name = 'mlp', hidden = [64, 64] }"),
        (MINIMAL + GD + "[model]\nname = 'mlp'\nhiden = 3\n", "there is no parameter of mlp 'hiden'"),
        (MINIMAL + "[methods.A]\nmethod = './nowhere.py'\n", "nowhere.py: no such file"),
        (MINIMAL.replace("[1]", "[1, 1]") + GD, "more than once"),
        (MINIMAL + "[methods.A]\nmethod = 'fedgb'\n", "did you mean 'fedgd'"),
        (MINIMAL + "[methods.A]\nmethod = 'fedgd'\nlrr = 1\n", "did you mean 'lr'"),
        (MINIMAL + "[methods.A]\nlr = 1\n", "needs method = NAME"),
        (MINIMAL + "rounds = 0\n" + GD, "rounds is 0"),
        (MINIMAL + "trust = 'me'\n" + GD, "there is no trust 'me'"),
        (MINIMAL + "partitions = [{ kind = 'idd' }]\n" + GD, "did you mean 'iid'"),
        (MINIMAL + "tuned = 'nowhere.toml'\n", "make it with: fedsofim tune"),
        ("datasets = [", "not valid TOML"),
    ],
)
def test_wrong_files_are_refused_with_a_way_out(tmp_path, text, said):
    with pytest.raises(InputError, match=re.escape(said)):
        read(tmp_path, text)


def test_missing_features_say_how_to_make_them(tmp_path):
    with pytest.raises(InputError, match=r"use 'cifar10-resnet20', .*: fedsofim features cifar10 --backbone resnet20$"):
        read_dataset("data/cifar10_resnet20.npz", tmp_path)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda p: p.stem)
def test_every_experiment_of_the_project_reads(path):
    assert read_experiment(path).entries


def test_equal_settings_of_budgets_stand_together(small):
    found = read_experiment(small)
    data = {"toy.npz": read_dataset("toy.npz", small.parent)}
    todo = points(found, data)
    assert len(todo) == 8
    assert len({c.id for c in todo}) == 8
    assert [c.seed for c in todo] == [0, 1] * 4
