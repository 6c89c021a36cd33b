"""Datasets shipped inside the package, so that the first command works offline on real records.

They are stored as uint8 and read as `(stored - centre) * scale` with constants chosen by hand: no statistic
of the records enters. The files and their licences are in `files/`; `scripts/` holds what built them.
"""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.data.orientation_histograms import CENTRE, SCALE


@dataclass(frozen=True)
class Embedded:
    """How a shipped file is read, and what to say about it."""

    centre: float
    scale: float
    notes: dict[str, str]


EMBEDDED = {
    "fashion": Embedded(
        centre=CENTRE * 255,
        scale=SCALE / 255,
        notes={
            "source": "Fashion-MNIST (Zalando SE, MIT licence), all 60,000 + 10,000 images in the original order",
            "features": "80 gradient-orientation histograms and mean intensities per image; no statistic of the data",
        },
    ),
    "digits": Embedded(
        centre=8.0,
        scale=1 / 8,
        notes={
            "source": "Optical recognition of handwritten digits, test part (UCI, CC BY 4.0), 1,797 records",
            "features": "64 pixel counts 0..16 mapped to -1..1",
        },
    ),
}


def load_embedded(name: str) -> Dataset:
    """A shipped dataset, by name.

    >>> data = load_embedded("digits")
    >>> len(data.x_train), len(data.x_test), data.features, data.classes
    (1437, 360, 64, 10)
    """
    how = EMBEDDED[name]
    with files("fedsofim.data").joinpath("files", f"{name}.npz").open("rb") as file, np.load(file) as stored:
        arrays = {key: stored[key] for key in stored.files}
    for part in ("x_train", "x_test"):
        arrays[part] = (arrays[part].astype(np.float32) - np.float32(how.centre)) * np.float32(how.scale)
    return Dataset.of(name, **arrays, notes=dict(how.notes))
