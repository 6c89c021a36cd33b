"""The command `fedsofim features`: images -> an `.npz` of frozen features that every other command reads."""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.data.extraction import extract, extractor
from fedsofim.data.image_sources import read_images
from fedsofim.data.npz import read_arrays
from fedsofim.data.public_statistics import write_public_stats
from fedsofim.errors import InputError


def features(
    images: Annotated[str, typer.Argument(help="cifar10, pathmnist, ..., a folder of class folders, or an .npz")],
    out: Annotated[Path, typer.Option(help="the .npz to write")],
    backbone: Annotated[str, typer.Option(help="resnet20, resnet56, vgg16_bn (extra torch), histograms")] = "resnet20",
    source: Annotated[Path | None, typer.Option(help="a local copy of the set's file")] = None,
    weights: Annotated[Path | None, typer.Option(help="a local state dict of the backbone")] = None,
    public_stats: Annotated[Path | None, typer.Option(help="public images to take mean, std, cov of")] = None,
    batch: Annotated[int, typer.Option(help="images at a time", min=1)] = 64,
) -> None:
    """Extract features of images with a frozen backbone; stop and repeat it freely, it continues."""
    try:
        pictures, using = read_images(images, source), extractor(backbone, weights)
        extract(pictures, using, out, batch=batch)
        print(f"wrote {out}: {_shape(out)} from {backbone}; next: --dataset {out}")
        if public_stats is not None:
            print(f"wrote {write_public_stats(pictures, using, public_stats, out, batch)}")
    except InputError as problem:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2) from None


def _shape(out: Path) -> str:
    arrays = read_arrays(out)
    parts = [f"{len(values):,} {key[2:]}" for key, values in arrays.items() if key.startswith("x_")]
    return f"{' + '.join(parts)} records of {arrays['x_train'].shape[1]} features"
