"""Standardise features by statistics of *public* images: no private record enters, so it costs nothing.

Statistics of the private records would have to be released with noise, and charged; that is not done here.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.affine import Affine
from fedsofim.data.dataset import Dataset
from fedsofim.data.extraction import Extractor
from fedsofim.data.image_sources import public_images
from fedsofim.data.images import Images
from fedsofim.data.npz import read_arrays, save_npz
from fedsofim.errors import InputError

FLOOR = 1e-6  #: a feature that is constant on the public images is centred only


@dataclass(frozen=True)
class PublicStats:
    """Mean, standard deviation and covariance of a backbone's features over `count` public images."""

    mean: np.ndarray
    std: np.ndarray
    cov: np.ndarray
    count: int


def public_stats(features: np.ndarray) -> PublicStats:
    """Statistics of the features (records x p) of public images.

    >>> public_stats(np.array([[0.0, 1.0], [2.0, 1.0]])).mean.tolist()
    [1.0, 1.0]
    """
    if features.ndim != 2 or len(features) < 2:
        raise InputError(f"public features have shape {features.shape}; expected two or more rows (images, features)")
    mean, cov = features.mean(axis=0, dtype=np.float64), np.cov(features, rowvar=False, dtype=np.float64)
    return PublicStats(mean, features.std(axis=0, dtype=np.float64), np.atleast_2d(cov), len(features))


def save_stats(path: str | Path, stats: PublicStats) -> None:
    """Write statistics as an `.npz` of mean, std, cov, count."""
    save_npz(Path(path), {key: np.asarray(value) for key, value in dataclasses.asdict(stats).items()})


def load_stats(path: str | Path) -> PublicStats:
    """Read what `save_stats` wrote."""
    arrays = read_arrays(Path(path))
    missing = [key for key in ("mean", "std", "cov", "count") if key not in arrays]
    if missing:
        raise InputError(f"{path}: no array {', '.join(missing)}; expected mean, std, cov, count of public features")
    return PublicStats(arrays["mean"], arrays["std"], arrays["cov"], int(arrays["count"]))


def write_public_stats(private: Images, using: Extractor, public: Path, out: Path, batch: int = 64) -> Path:
    """Statistics of public images' features, saved beside the private ones as `<out>.stats.npz`."""
    images = public_images(public)
    refuse_overlap(private, images, public)
    batches = [using.run(images[start : start + batch]) for start in range(0, len(images), batch)]
    target = out.with_suffix(".stats.npz")
    save_stats(target, public_stats(np.concatenate(batches)))
    return target


def refuse_overlap(private: Images, public: np.ndarray, origin: Path) -> None:
    """Statistics of images that are also training records would not be public."""
    pictures = private.parts["train"][0]
    if pictures.shape[1:] != public.shape[1:]:
        return
    shared = len({image.tobytes() for image in pictures} & {image.tobytes() for image in public})
    if shared:
        raise InputError(
            f"{origin}: {shared} of its images are training records of {private.name}; statistics over "
            "them are not "
            "public. Use other images"
        )


def standardize_public(dataset: Dataset, stats: PublicStats | str | Path, *, whiten: bool = False) -> Dataset:
    """Centre every part and divide by the public std; with `whiten`, decorrelate by the public covariance.

    >>> d = Dataset.of("toy", x_train=[[0.0], [4.0]], y_train=[0, 1], x_test=[[2.0]], y_test=[1])
    >>> standardize_public(d, public_stats(np.array([[1.0], [3.0]]))).x_train.tolist()
    [[-2.0], [2.0]]
    """
    origin = "given" if isinstance(stats, PublicStats) else Path(stats).name
    stats = stats if isinstance(stats, PublicStats) else load_stats(stats)
    if stats.mean.shape != (dataset.features,):
        raise InputError(
            f"the public statistics are of {stats.mean.size} features but {dataset.name} has "
            f"{dataset.features}; "
            "use statistics of the same backbone"
        )
    scale = _whitening(stats.cov) if whiten else np.diag(1 / np.where(stats.std > FLOOR, stats.std, 1))
    how = "whitened" if whiten else "standardised"
    said = f"{how} by statistics of {stats.count} public images ({origin}): no privacy cost"

    if dataset.standardised is not None:
        raise InputError(f"{dataset.name} is standardised by public statistics already; do it once")
    by = Affine(stats.mean, scale)
    features = {part: getattr(dataset, part) for part in ("x_train", "x_test", "x_val")}
    parts: Any = {part: None if x is None else by(x) for part, x in features.items()}
    return dataclasses.replace(dataset, **parts, standardised=by, notes={**dataset.notes, "standardised": said})


def _whitening(cov: np.ndarray) -> np.ndarray:
    """The symmetric inverse square root; directions the public images do not span are left alone."""
    values, vectors = np.linalg.eigh(cov)
    scale = 1 / np.sqrt(np.where(values > FLOOR * values.max(), values, 1))
    return (vectors * scale) @ vectors.T
