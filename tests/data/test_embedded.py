"""The sets shipped with the package: whole, on a sensible scale, and made by the extractor in the package."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedsofim.data import load, names
from fedsofim.data.embedded import EMBEDDED
from fedsofim.data.orientation_histograms import gradient_histograms, scaled
from fedsofim.errors import InputError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.parametrize(
    ("name", "train", "test", "features"), [("fashion", 60_000, 10_000, 80), ("digits", 1_437, 360, 64)]
)
def test_shape_type_and_scale(name: str, train: int, test: int, features: int) -> None:
    data = load(name)
    assert data.x_train.shape == (train, features)
    assert data.x_test.shape == (test, features)
    assert data.x_train.dtype == np.float32
    assert data.classes == 10
    norms = np.linalg.norm(data.x_train, axis=1)
    assert 2 < np.percentile(norms, 1) < np.percentile(norms, 99) < 10
    assert "licence" in data.notes["source"] or "CC BY" in data.notes["source"]


def test_classes_are_balanced_as_published() -> None:
    data = load("fashion")
    assert np.bincount(data.y_train).tolist() == [6000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10


@pytest.mark.parametrize("name", ["fashion", "digits"])
def test_nearest_class_mean_is_far_better_than_chance(name: str) -> None:
    data = load(name)
    means = np.stack([data.x_train[data.y_train == k].mean(axis=0) for k in range(10)])
    distance = ((data.x_test[:, None] - means) ** 2).sum(axis=2)
    assert np.mean(distance.argmin(axis=1) == data.y_test) > 0.65


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_shipped_features_are_those_of_the_extractor() -> None:
    raw = gzip.decompress((DEBIAN / "t10k-images-idx3-ubyte.gz").read_bytes())
    images = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)
    fresh = scaled(gradient_histograms(images[:200]))
    assert np.abs(fresh - load("fashion").x_test[:200]).max() <= 3 / 255 / 2 + 1e-6  # half a step of rounding


def test_each_record_alone_decides_its_features() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    together = gradient_histograms(images)
    assert np.array_equal(together[2:3], gradient_histograms(images[2:3]))
    assert together.min() >= 0 and together.max() <= 1


@pytest.mark.parametrize("images", [np.zeros((2, 28, 28)), np.zeros((2, 27, 28), np.uint8), np.zeros(3, np.uint8)])
def test_extractor_refuses_what_is_not_images(images: np.ndarray) -> None:
    with pytest.raises(InputError, match="images"):
        gradient_histograms(images)


def test_names_and_unknown_names() -> None:
    assert set(EMBEDDED) | {"cifar10", "pathmnist"} <= set(names())
    with pytest.raises(InputError, match="did you mean 'fashion'"):
        load("fashoin")
    with pytest.raises(InputError, match="clients_from"):
        load()
    with pytest.raises(InputError, match="needs no source"):
        load("fashion", source="x.npz")
    with pytest.raises(InputError, match="own labels"):
        load("fashion", label="y")


def test_image_sets_say_how_to_get_features() -> None:
    with pytest.raises(InputError, match=r"fedsofim features cifar10 --backbone resnet20 .*cifar10-resnet20"):
        load("cifar10")
