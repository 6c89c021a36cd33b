"""`fedsofim features` in a throwaway app."""

from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fedsofim.cli.image_features import features
from fedsofim.data import load
from fedsofim.data.public_statistics import load_stats, standardize_public

app = typer.Typer()
app.command()(features)
run = CliRunner().invoke


def images(path: Path, seed: int = 0) -> Path:
    x = np.random.default_rng(seed).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    np.savez(path, x_train=x, y_train=np.arange(30) % 3)
    return path


def test_histograms_and_public_statistics(tmp_path: Path) -> None:
    private, public, out = (
        images(tmp_path / "mine.npz"),
        images(tmp_path / "public.npz", 1),
        tmp_path / "f.npz",
    )
    options = ["--backbone", "histograms", "--out", str(out), "--public-stats", str(public)]
    result = run(app, [str(private), *options])
    assert result.exit_code == 0, result.output
    assert "30 train records of 80 features" in result.output
    stats = load_stats(tmp_path / "f.stats.npz")
    assert stats.count == 30
    assert standardize_public(load(out), tmp_path / "f.stats.npz").features == 80


def test_statistics_of_training_records_are_refused(tmp_path: Path) -> None:
    private = images(tmp_path / "mine.npz")
    options = ["--backbone", "histograms", "--out", str(tmp_path / "f.npz"), "--public-stats", str(private)]
    result = run(app, [str(private), *options])
    assert result.exit_code == 2
    assert "30 of its images are training records" in result.output
    assert not (tmp_path / "f.stats.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nothing"], "there is no image set 'nothing'"),
        (["cifar10", "--source", "absent.tar.gz"], "no such file"),
    ],
)
def test_errors_are_one_line_without_a_traceback(tmp_path: Path, arguments: list[str], expected: str) -> None:
    result = run(app, [*arguments, "--out", str(tmp_path / "f.npz"), "--backbone", "histograms"])
    assert result.exit_code == 2
    assert expected in result.output and "Traceback" not in result.output


@pytest.mark.slow
def test_resnet_on_the_sample(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source, weights = (
        shared / "samples/cifar-10-python-sample.tar.gz",
        shared / "weights/cifar100_resnet20.pth",
    )
    options = ["--source", str(source), "--weights", str(weights), "--out", str(tmp_path / "f.npz")]
    result = run(app, ["cifar10", *options])
    assert result.exit_code == 0, result.output
    assert "320 train + 64 test records of 64 features" in result.output
