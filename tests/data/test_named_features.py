"""Features have names: found in one folder, made there by one command, or given as a copy."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.data import load
from fedsofim.errors import InputError
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.reading import read_datasets
from fedsofim.files import data_folder
from toy import write_blobs

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FEDSOFIM_DATA", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_one_folder_by_one_setting(home, monkeypatch):
    assert data_folder() == home
    monkeypatch.delenv("FEDSOFIM_DATA")
    assert data_folder().name == "fedsofim"


def test_what_is_not_there_says_the_command_that_makes_it(home):
    with pytest.raises(
        InputError, match=r"Make them once with: fedsofim features cifar10 --backbone resnet20 "
    ) as said:
        load("cifar10-resnet20")
    assert str(home / "cifar10-resnet20.npz") in str(said.value)
    write_blobs(home / "cifar10-resnet20.npz")
    found = load("cifar10-resnet20")
    assert found.name == "cifar10-resnet20" and found.features == 5


def test_a_copy_elsewhere_is_given_as_a_file_or_a_folder(home, tmp_path):
    write_blobs(tmp_path / "cifar10_resnet20.npz")
    for source in (tmp_path, tmp_path / "cifar10_resnet20.npz"):
        assert load("cifar10-resnet20", source=source).name == "cifar10-resnet20"
    with pytest.raises(InputError, match="no features pathmnist-resnet20 there"):
        load("pathmnist-resnet20", source=tmp_path)


def test_the_command_writes_where_the_name_is_looked_up(home, tmp_path, capsys, monkeypatch):
    from commands import run_here
    from fedsofim.cli import image_features as module

    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "i.npz", x_train=images, y_train=np.arange(20) % 2, x_test=images, y_test=np.arange(20) % 2)
    image_features: Any = module
    real = image_features.read_images
    monkeypatch.setattr(image_features, "read_images", lambda name, source: real(tmp_path / "i.npz"))
    done = run_here(capsys, monkeypatch, "features", "cifar10", "--backbone", "histograms")
    assert done.returncode == 0 and "next: fedsofim run --dataset cifar10-histograms" in done.stdout
    assert load("cifar10-histograms").features == 80
    refused = run_here(capsys, monkeypatch, "features", str(tmp_path / "i.npz"), "--backbone", "histograms")
    assert refused.returncode == 2 and "--out FILE.npz" in refused.stderr


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("**/*.toml")), ids=lambda p: p.stem)
def test_no_experiment_points_out_of_the_project(path):
    for name in re.findall(r'"([^"]*)"', "".join(re.findall(r"datasets = \[.*?\]", path.read_text()))):
        assert ".." not in name, name


def test_an_experiment_finds_them(home):
    for name in ("cifar10-resnet20", "pathmnist-resnet20"):
        write_blobs(home / f"{name}.npz")
    experiment = read_experiment(EXPERIMENTS / "paper-runtime.toml")
    assert list(read_datasets(experiment.datasets, EXPERIMENTS)) == ["cifar10-resnet20", "pathmnist-resnet20"]
