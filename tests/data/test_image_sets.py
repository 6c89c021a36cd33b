"""CIFAR-10 and MedMNIST from local copies; hostile and mistaken files."""

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedsofim.data import load
from fedsofim.data.image_sources import read_images
from fedsofim.errors import InputError


def test_cifar10_sample(shared: Path) -> None:
    images = read_images("cifar10", shared / "samples/cifar-10-python-sample.tar.gz")
    assert images.parts["train"][0].shape == (320, 32, 32, 3) and images.parts["test"][0].shape == (
        64,
        32,
        32,
        3,
    )
    with np.load(shared / "data/cifar10_resnet20.npz") as stored:
        assert np.array_equal(images.parts["test"][1], stored["y_test"][:64])


def test_pathmnist_sample(shared: Path) -> None:
    images = read_images("pathmnist", shared / "samples/pathmnist-sample.npz")
    assert [len(x) for x, _ in images.parts.values()] == [256, 64, 64]
    with np.load(shared / "data/pathmnist_resnet20.npz") as stored:
        assert np.array_equal(images.parts["val"][1], stored["y_val"][:64])
    with pytest.raises(InputError, match=r"holds images.*fedsofim features"):
        load(shared / "samples/pathmnist-sample.npz")
    with pytest.raises(InputError, match="is it another set"):
        read_images("breastmnist", shared / "samples/pathmnist-sample.npz")


def medmnist(path: Path, channels: tuple[int, ...] = ()) -> Path:
    """A tiny file in MedMNIST's layout."""
    arrays = {}
    for part in ("train", "val", "test"):
        arrays[f"{part}_images"] = np.zeros((4, 28, 28, *channels), np.uint8)
        arrays[f"{part}_labels"] = np.array([[0], [1], [0], [1]], np.uint8)
    np.savez(path, **arrays)
    return path


def test_grey_sets_get_three_channels(tmp_path: Path) -> None:
    images = read_images("octmnist", medmnist(tmp_path / "octmnist.npz"))
    assert images.parts["train"][0].shape == (4, 28, 28, 3)
    assert images.parts["train"][1].tolist() == [0, 1, 0, 1]


def archive(path: Path, content: object) -> Path:
    """CIFAR-10's archive layout around any pickled content."""
    raw = pickle.dumps(content, protocol=2)
    with tarfile.open(path, "w:gz") as tar:
        for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


class Hostile:
    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("/tmp/fedsofim-hostile-pickle-ran"),))


def test_a_hostile_archive_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which a data file has no use for"):
        read_images("cifar10", archive(tmp_path / "c.tar.gz", Hostile()))
    assert not Path("/tmp/fedsofim-hostile-pickle-ran").exists()


def test_mistaken_files(tmp_path: Path) -> None:
    (tmp_path / "text.tar.gz").write_text("no")
    with pytest.raises(InputError, match=r"not a readable .tar.gz"):
        read_images("cifar10", tmp_path / "text.tar.gz")
    with pytest.raises(InputError, match="not CIFAR-10's python archive"):
        read_images("cifar10", archive(tmp_path / "c.tar.gz", {b"labels": [1]}))
    np.savez(tmp_path / "x.npz", x_train=np.zeros((3, 2)), y_train=np.zeros(3))
    with pytest.raises(InputError, match="expected MedMNIST's layout"):
        read_images("pathmnist", tmp_path / "x.npz")
    with pytest.raises(InputError, match="features per record already"):
        read_images(tmp_path / "x.npz")
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        read_images("cifar")
    with pytest.raises(InputError, match="--source goes with a known set"):
        read_images(tmp_path / "x.npz", source="y")


def test_images_of_the_wrong_kind(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x_train=np.zeros((3, 8, 8)), y_train=np.zeros(3))
    with pytest.raises(InputError, match="expected uint8"):
        read_images(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", x_train=np.zeros((3, 8, 8), np.uint8), y_train=np.zeros(2))
    with pytest.raises(InputError, match="one label per image"):
        read_images(tmp_path / "x.npz")
