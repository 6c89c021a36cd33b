"""Features of known image sets by name: `cifar10-resnet20`, looked up in the user's data folder.

One command makes them there: fedsofim features cifar10 --backbone resnet20.
"""

from pathlib import Path

from fedsofim.data.image_sources import IMAGE_SETS
from fedsofim.errors import InputError
from fedsofim.files import data_folder

BACKBONES = ("resnet20", "resnet56", "vgg16_bn", "histograms")


def is_features(name: object) -> bool:
    """Is this the name of features?

    >>> is_features("cifar10-resnet20"), is_features("cifar10"), is_features("mine.npz")
    (True, False, False)
    """
    images, _, backbone = str(name).partition("-")
    return images in IMAGE_SETS and backbone in BACKBONES


def home_of(images: str, backbone: str) -> Path:
    """Where features of this name are kept."""
    return data_folder() / f"{images}-{backbone}.npz"


def find_features(name: str, source: str | Path | None = None) -> Path:
    """Their file: the source's (a file, or a folder that holds it), else that in the data folder."""
    images, _, backbone = name.partition("-")
    if source is not None:
        return _in_source(name, Path(source))
    home = home_of(images, backbone)
    if not home.is_file():
        raise InputError(
            f"the features {name} are not there yet: {home}. Make them once with: {command(name)} "
            f"(the folder is FEDSOFIM_DATA), or say where a copy of them is (--source FILE)"
        )
    return home


def command(name: str) -> str:
    """What makes features of a name."""
    images, _, backbone = name.partition("-")
    return f"fedsofim features {images} --backbone {backbone}"


def _in_source(name: str, source: Path) -> Path:
    """A folder may hold it under its name, or with the underscore that names had."""
    places = [source / f"{name}.npz", source / f"{name.replace('-', '_')}.npz"] if source.is_dir() else [source]
    found = [place for place in places if place.is_file()]
    if not found:
        raise InputError(f"{source}: no features {name} there; expected {places[0]}. Make them with: {command(name)}")
    return found[0]
