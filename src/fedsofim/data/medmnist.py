"""The 2D sets of MedMNIST v2 that give each image one label (Yang et al., 2023; https://medmnist.com).

Addresses and md5 sums are those of the `medmnist` package, release 3.0.2.
"""

from dataclasses import dataclass
from pathlib import Path

from fedsofim.data.download import Remote, fetch
from fedsofim.data.images import Images
from fedsofim.data.npz import read_arrays
from fedsofim.errors import InputError

RECORD = "https://zenodo.org/records/10519652/files"
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class MedSet:
    """One set: the md5 of its file, its number of classes and its licence."""

    md5: str
    classes: int
    licence: str = "CC BY 4.0"


SETS = {
    "pathmnist": MedSet("a8b06965200029087d5bd730944a56c1", 9),
    "dermamnist": MedSet("0744692d530f8e62ec473284d019b0c7", 7, "CC BY-NC 4.0"),
    "octmnist": MedSet("c68d92d5b585d8d81f7112f81e2d0842", 4),
    "pneumoniamnist": MedSet("28209eda62fecd6e6a2d98b1501bb15f", 2),
    "retinamnist": MedSet("bd4c0672f1bba3e3a89f0e4e876791e4", 5),
    "breastmnist": MedSet("750601b1f35ba3300ea97c75c52ff8f6", 2),
    "bloodmnist": MedSet("7053d0359d879ad8a5505303e11de1dc", 8),
    "tissuemnist": MedSet("ebe78ee8b05294063de985d821c1c34b", 8),
    "organamnist": MedSet("68e3f8846a6bd62f0c9bf841c0d9eacc", 11),
    "organcmnist": MedSet("b9ceb9546e10131b32923c5bbeaea2b1", 11),
    "organsmnist": MedSet("9ab87b696fb54e2a387ebe992d6ed5f1", 11),
}


def read_medmnist(name: str, source: str | Path | None = None) -> Images:
    """All 28x28 images of one set; downloaded unless `source` names the `.npz` file."""
    about = SETS[name]
    path = fetch(Remote(f"{RECORD}/{name}.npz?download=1", f"{name}.npz", "md5", about.md5), source)
    images = images_of_medmnist(name, path)
    worst = max(int(labels.max()) for _, labels in images.parts.values())
    if worst >= about.classes:
        raise InputError(f"{path}: label {worst}, but {name} has classes 0..{about.classes - 1}; is it another set?")
    images.notes["source"] = f"{name} (MedMNIST v2, {about.licence}), {path.name}"
    return images


def images_of_medmnist(name: str, path: Path) -> Images:
    """Images from an `.npz` in MedMNIST's layout: train_images, train_labels, val_..., test_..."""
    arrays = read_arrays(path)
    missing = [f"{part}_{kind}" for part in PARTS for kind in ("images", "labels") if f"{part}_{kind}" not in arrays]
    if missing:
        raise InputError(
            f"{path}: no array {', '.join(missing)}; expected MedMNIST's layout, found {', '.join(arrays) or 'nothing'}"
        )
    pairs = {part: (arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in PARTS}
    return Images.of(name, pairs, {"source": path.name})
