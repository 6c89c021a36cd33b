"""Images in memory, before an extractor has turned them into features."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsofim.errors import InputError


@dataclass(frozen=True)
class Images:
    """uint8 images (n, height, width, 3) and their labels, for every part: train and perhaps val, test."""

    name: str
    parts: dict[str, tuple[np.ndarray, np.ndarray]]
    notes: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(name: str, parts: dict[str, tuple[Any, Any]], notes: dict[str, Any] | None = None) -> "Images":
        """Check and bring to one shape: grey images get three equal channels, label columns become rows.

        >>> pictures = Images.of("toy", {"train": (np.zeros((2, 4, 4), np.uint8), [[0], [1]])})
        >>> pictures.parts["train"][0].shape, pictures.parts["train"][1].tolist()
        ((2, 4, 4, 3), [0, 1])
        """
        return Images(name, {part: _checked(name, part, *pair) for part, pair in parts.items()}, notes or {})


def _checked(name: str, part: str, images: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    images, labels = np.asarray(images), np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if images.ndim == 3:
        images = images[..., None]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise InputError(
            f"{name}: {part} images have shape {images.shape} and type {images.dtype}; expected uint8 of "
            "shape "
            "(records, height, width) or (records, height, width, 3)"
        )
    if labels.ndim != 1 or len(images) != len(labels) or len(images) == 0:
        raise InputError(
            f"{name}: {len(images)} {part} images but labels of shape {labels.shape}; expected one label "
            "per image, "
            "and at least one image"
        )
    return np.broadcast_to(images, (*images.shape[:3], 3)), labels
