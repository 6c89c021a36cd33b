"""Images in class folders: `photos/cat/1.png`, `photos/dog/2.jpg`, or the same under train/ and test/."""

from pathlib import Path

import numpy as np
from PIL import Image

from fedsofim.data.images import Images
from fedsofim.errors import InputError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
SIDE = 32


def read_folder(path: Path) -> Images:
    """Every image, resized to 32x32; the labels are the names of the class folders."""
    if (path / "train").is_dir():
        parts = {part: path / part for part in ("train", "val", "test") if (path / part).is_dir()}
    else:
        parts = {"train": path}
    notes = {"source": f"images in {path.name}/, resized bilinearly to {SIDE}x{SIDE}"}
    return Images.of(str(path), {part: _read_classes(folder) for part, folder in parts.items()}, notes)


def read_images_flat(path: Path) -> np.ndarray:
    """All images below a folder, whatever the layout: for statistics, where labels do not matter."""
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"{path}: no images ({', '.join(sorted(SUFFIXES))}) in it")
    return np.stack([_read(file) for file in files])


def _read_classes(path: Path) -> tuple[np.ndarray, np.ndarray]:
    loose = _images_in(path)
    if loose:
        raise InputError(f"{loose[0]}: an image outside a class folder; expected {path}/CLASS/{loose[0].name}")
    folders = _folders(path)
    if not folders:
        raise InputError(f"{path}: no class folders in it; expected {path}/CLASS/IMAGE.png")
    empty = [folder for folder in folders if not _images_in(folder)]
    if empty:
        raise InputError(f"{empty[0]}: a class folder without images; remove it or fill it")
    files = [(file, folder.name) for folder in folders for file in _images_in(folder)]
    return np.stack([_read(file) for file, _ in files]), np.array([label for _, label in files])


def _folders(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def _images_in(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)


def _read(file: Path) -> np.ndarray:
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    except (OSError, SyntaxError, ValueError) as problem:
        raise InputError(f"{file}: not a readable image ({problem}); remove or replace it") from None
