"""Standardising by public statistics."""

from pathlib import Path

import numpy as np
import pytest

from fedsofim.data import Dataset
from fedsofim.data.public_statistics import load_stats, public_stats, save_stats, standardize_public
from fedsofim.errors import InputError

RANDOM = np.random.default_rng(0)
MIX = RANDOM.normal(size=(4, 4))
PUBLIC = RANDOM.normal(size=(500, 4)) @ MIX + 3


def data() -> Dataset:
    x = (RANDOM.normal(size=(30, 4)) @ MIX + 3).astype(np.float32)
    y = np.arange(30) % 2
    return Dataset.of("d", x_train=x, y_train=y, x_test=x[:5], y_test=y[:5], x_val=x[:3], y_val=y[:3])


def test_statistics_survive_the_disk(tmp_path: Path) -> None:
    save_stats(tmp_path / "s.npz", public_stats(PUBLIC))
    stats = load_stats(tmp_path / "s.npz")
    assert stats.count == 500
    np.testing.assert_allclose(stats.mean, PUBLIC.mean(axis=0))
    np.testing.assert_allclose(stats.cov, np.cov(PUBLIC.T))


def test_standardises_every_part_and_says_so() -> None:
    before = data()
    after = standardize_public(before, public_stats(PUBLIC))
    expected = (before.x_train - PUBLIC.mean(axis=0)) / PUBLIC.std(axis=0)
    np.testing.assert_allclose(after.x_train, expected, rtol=1e-5, atol=1e-5)
    assert after.x_val is not None and np.array_equal(after.x_val, after.x_train[:3])
    assert after.x_train.dtype == np.float32
    assert "500 public images" in after.notes["standardised"] and "standardised" not in before.notes


def test_whitening_makes_the_public_covariance_the_identity() -> None:
    public = Dataset.of("p", x_train=PUBLIC, y_train=np.arange(500) % 2, x_test=PUBLIC, y_test=np.arange(500) % 2)
    white = standardize_public(public, public_stats(PUBLIC), whiten=True)
    np.testing.assert_allclose(np.cov(white.x_train.T), np.eye(4), atol=1e-4)


@pytest.mark.parametrize("whiten", [False, True])
def test_a_constant_feature_stays_finite(whiten: bool) -> None:
    public = np.column_stack([PUBLIC[:, :3], np.ones(500)])
    assert np.isfinite(standardize_public(data(), public_stats(public), whiten=whiten).x_train).all()


def test_the_paper_s_public_statistics(shared: Path) -> None:
    stats = load_stats(shared / "data/cifar100_resnet20_public_stats.npz")
    assert stats.count == 916 and stats.mean.shape == (64,)


def test_bad_statistics(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="of 2 features but d has 4"):
        standardize_public(data(), public_stats(PUBLIC[:, :2]))
    with pytest.raises(InputError, match="two or more rows"):
        public_stats(PUBLIC[:1])
    np.savez(tmp_path / "x.npz", mean=np.zeros(3))
    with pytest.raises(InputError, match="no array std, cov, count"):
        load_stats(tmp_path / "x.npz")
