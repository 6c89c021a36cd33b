"""The command `fedsofim features`: images -> an `.npz` of frozen features that every other command reads."""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.data.extraction import extract, extractor
from fedsofim.data.image_sources import IMAGE_SETS, read_images
from fedsofim.data.named_features import home_of
from fedsofim.data.npz import read_arrays
from fedsofim.data.public_statistics import write_public_stats
from fedsofim.errors import InputError


def features(
    images: Annotated[str, typer.Argument(help="cifar10, pathmnist, ..., a folder of class folders, or an .npz")],
    out: Annotated[
        Path | None, typer.Option(show_default="in the data folder", help="the .npz to write; a known set has a home")
    ] = None,
    backbone: Annotated[str, typer.Option(help="resnet20, resnet56, vgg16_bn (extra torch), histograms")] = "resnet20",
    source: Annotated[Path | None, typer.Option(help="a local copy of the set's file")] = None,
    weights: Annotated[Path | None, typer.Option(help="a local state dict of the backbone")] = None,
    public_stats: Annotated[Path | None, typer.Option(help="public images to take mean, std, cov of")] = None,
    batch: Annotated[int, typer.Option(help="images at a time", min=1)] = 64,
) -> None:
    """Extract features of images with a frozen backbone; stop and repeat it freely, it continues."""
    try:
        known = out is None and images in IMAGE_SETS
        out = _home(images, backbone) if out is None else out
        pictures, using = read_images(images, source), extractor(backbone, weights)
        extract(pictures, using, out, batch=batch)
        name = f"{images}-{backbone}" if known else out
        print(f"wrote {out}: {_shape(out)} from {backbone}; next: fedsofim run --dataset {name}")
        if public_stats is not None:
            print(f"wrote {write_public_stats(pictures, using, public_stats, out, batch)}")
    except InputError as problem:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2) from None


def _home(images: str, backbone: str) -> Path:
    """Where features of a known set are looked up by name."""
    if images not in IMAGE_SETS:
        raise InputError(f"say where to write the features of {images}: --out FILE.npz")
    home = home_of(images, backbone)
    home.parent.mkdir(parents=True, exist_ok=True)
    return home


def _shape(out: Path) -> str:
    arrays = read_arrays(out)
    parts = [f"{len(values):,} {key[2:]}" for key, values in arrays.items() if key.startswith("x_")]
    return f"{' + '.join(parts)} records of {arrays['x_train'].shape[1]} features"
