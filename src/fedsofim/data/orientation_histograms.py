"""A frozen extractor without weights: gradient orientations and intensity, pooled over a grid of cells.

The idea is that of Dalal and Triggs (2005). Every number in it is a constant written here; nothing is learned
or estimated from images, so each record's features depend on that record alone and cost no privacy.
"""

import numpy as np

from fedsofim.errors import InputError

CELLS = 4  #: cells per side
ORIENTATIONS = 4  #: bins over half a turn: a dark-to-light edge and a light-to-dark one look the same
FLOOR = 0.03  #: gradient magnitude (of 0..1) below which a cell counts as flat and is not blown up to unit norm
CENTRE = 0.3  #: subtracted by `scaled`, so that features are not all of one sign
SCALE = 3.0  #: makes norms about 7: a softmax head's gradient (at most sqrt(2) times that) fills a clip of 10


def scaled(histograms: np.ndarray) -> np.ndarray:
    """Features in 0..1 -> features to train on, by the two constants above."""
    return (histograms - np.float32(CENTRE)) * np.float32(SCALE)


def gradient_histograms(images: np.ndarray) -> np.ndarray:
    """Features in 0..1 of grey (n, h, w) or colour (n, h, w, channels) uint8 images; 80 per image.

    >>> gradient_histograms(np.zeros((2, 28, 28), np.uint8)).shape
    (2, 80)
    """
    grey = _grey(images)
    edges = np.stack([_pool(channel) for channel in _orientations(grey)], axis=-1)
    edges /= np.linalg.norm(edges, axis=-1, keepdims=True) + FLOOR
    cells = np.concatenate([edges, _pool(grey)[..., None]], axis=-1)
    return cells.reshape(len(cells), -1).astype(np.float32)


def _grey(images: np.ndarray) -> np.ndarray:
    """Intensity in 0..1, one channel."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise InputError(
            f"images have shape {images.shape} and type {images.dtype}; expected uint8 of shape (n, "
            "height, width) "
            "or (n, height, width, channels)"
        )
    if images.shape[1] % CELLS or images.shape[2] % CELLS:
        raise InputError(f"images are {images.shape[1]}x{images.shape[2]}; both sides must divide by {CELLS}")
    grey = images.astype(np.float32) / 255
    return grey.mean(axis=-1) if grey.ndim == 4 else grey


def _orientations(grey: np.ndarray) -> list[np.ndarray]:
    """Gradient magnitude shared between the two nearest orientation bins, one array per bin."""
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)))
    across = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / 2
    down = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / 2
    magnitude = np.hypot(across, down)
    angle = np.mod(np.arctan2(down, across), np.pi) * (ORIENTATIONS / np.pi)
    gaps = [np.abs(angle - k) for k in range(ORIENTATIONS)]
    return [np.clip(1 - np.minimum(gap, ORIENTATIONS - gap), 0, None) * magnitude for gap in gaps]


def _pool(plane: np.ndarray) -> np.ndarray:
    """Mean over each cell of the grid."""
    n, height, width = plane.shape
    return plane.reshape(n, CELLS, height // CELLS, CELLS, width // CELLS).mean(axis=(2, 4))
