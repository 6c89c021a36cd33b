"""Image sets by name or path -> `Images`: what `fedsofim features` reads."""

from pathlib import Path

import numpy as np

from fedsofim.data.cifar import read_cifar10
from fedsofim.data.folders import read_folder, read_images_flat
from fedsofim.data.images import Images
from fedsofim.data.medmnist import SETS, images_of_medmnist, read_medmnist
from fedsofim.data.npz import PARTS, read_arrays
from fedsofim.errors import InputError, unknown

IMAGE_SETS = ("cifar10", *SETS)


def read_images(name_or_path: str | Path, source: str | Path | None = None) -> Images:
    """Images of a set known by name (from `source` or downloaded), or of a file or folder."""
    if name_or_path == "cifar10":
        return read_cifar10(source)
    if name_or_path in SETS:
        return read_medmnist(str(name_or_path), source)
    path = Path(name_or_path)
    if source is not None:
        raise InputError(f"--source goes with a known set ({', '.join(IMAGE_SETS)}); '{path}' is a path already")
    if not path.exists():
        raise unknown("image set", str(name_or_path), IMAGE_SETS)
    return _read_path(path)


def public_images(path: str | Path) -> np.ndarray:
    """Every image of a public collection, for its statistics; labels are not needed."""
    path = Path(path)
    if path.is_dir():
        return read_images_flat(path)
    if path.suffix == ".npz" and "images" in read_arrays(path, only=("images",)):
        images = read_arrays(path, only=("images",))["images"]
        return Images.of(str(path), {"train": (images, np.zeros(len(images), int))}).parts["train"][0]
    return np.concatenate([images for images, _ in read_images(path).parts.values()])


def _read_path(path: Path) -> Images:
    if path.is_dir():
        return read_folder(path)
    if path.name.endswith((".tar.gz", ".tgz")):
        return read_cifar10(path)
    if path.suffix != ".npz":
        raise InputError(f"{path}: expected a folder of images, an .npz of images or CIFAR-10's .tar.gz")
    if "train_images" in read_arrays(path, only=("train_images",)):
        return images_of_medmnist(path.stem, path)
    return _images_of_npz(path)


def _images_of_npz(path: Path) -> Images:
    arrays = read_arrays(path)
    if "x_train" not in arrays or "y_train" not in arrays:
        raise InputError(
            f"{path}: expected images in x_train (records, height, width, 3) and labels in y_train, or "
            "MedMNIST's "
            f"layout; found {', '.join(arrays) or 'nothing'}"
        )
    if arrays["x_train"].ndim == 2:
        raise InputError(f"{path}: x_train has one row of features per record already; use it as it is")
    pairs = {p: (arrays[f"x_{p}"], arrays[f"y_{p}"]) for p in PARTS if f"x_{p}" in arrays and f"y_{p}" in arrays}
    return Images.of(path.stem, pairs, {"source": path.name})
