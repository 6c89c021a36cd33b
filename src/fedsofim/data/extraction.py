"""Images through a frozen extractor, batch by batch: restartable, cached, and the same features every time.

An extractor sees one record at a time and is fixed before it sees any: features cost no privacy.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsofim.data.images import Images
from fedsofim.data.npz import read_arrays, save_npz
from fedsofim.data.orientation_histograms import gradient_histograms, scaled
from fedsofim.errors import InputError
from fedsofim.progress import progress_bar

if TYPE_CHECKING:
    from torch import nn  # pyright: ignore[reportMissingImports]

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # what the published weights were trained with
SIDE = 32
CHUNK = 2048  #: records per file kept while extracting; a killed run loses at most this many


@dataclass(frozen=True)
class Extractor:
    """A fixed function from uint8 images to rows of features, and what tells it from any other."""

    name: str
    identity: bytes
    run: Callable[[np.ndarray], np.ndarray]


def histograms() -> Extractor:
    """The extractor without weights; needs no torch."""
    return Extractor("histograms", b"histograms 1", lambda images: scaled(gradient_histograms(images)))


def torch_extractor(module: "nn.Module", name: str = "module") -> Extractor:
    """Any `torch.nn.Module` from (n, 3, 32, 32) normalised images to (n, features), frozen."""
    from fedsofim.data.torch_forward import forward, identity

    module = module.eval().requires_grad_(False)
    return Extractor(name, identity(module), lambda images: forward(module, images, SIDE, MEAN, STD))


def extractor(name: str, weights: str | Path | None = None) -> Extractor:
    """An extractor by name: `histograms`, or a backbone with its published weights or those of a file."""
    if name == "histograms":
        return histograms()
    from fedsofim.data.backbones import backbone

    return torch_extractor(backbone(name, weights), name)


def extract(images: Images, using: "Extractor | nn.Module", out: str | Path, *, batch: int = 64) -> Path:
    """Write the features of every part to the `.npz` file `out`, which `load` reads.

    Stopped half-way (even by kill -9), the same call continues where it stopped; finished, it is instant.
    Both hold only for the same images and the same extractor: their hash is part of what is kept.
    """
    if batch < 1:
        raise InputError(f"batch is {batch}; expected 1 or more")
    using = using if isinstance(using, Extractor) else torch_extractor(using)
    out = _target(out)
    mark = _fingerprint(images, using)
    if out.exists() and _mark_of(out) == mark:
        return out
    kept = out.with_name(f"{out.name}.{mark[:12]}.parts")
    kept.mkdir(parents=True, exist_ok=True)
    arrays = _extract_parts(images, using, kept, batch)
    notes = {**images.notes, "features": f"{using.name}, frozen, one record at a time"}
    save_npz(out, arrays | {"fingerprint": np.array(mark), "notes": np.array(json.dumps(notes))})
    shutil.rmtree(kept)
    return out


def _target(out: str | Path) -> Path:
    out = Path(out)
    if out.suffix != ".npz":
        raise InputError(f"--out {out}: expected a name that ends in .npz")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.parent}")
    return out


def _extract_parts(images: Images, using: Extractor, kept: Path, batch: int) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    total = sum(len(pictures) for pictures, _ in images.parts.values())
    done = 0
    with progress_bar(f"{images.name} through {using.name}", total) as progress:
        for part, (pictures, labels) in images.parts.items():
            chunks = []
            for start, chunk in _chunks(pictures):
                chunks.append(_chunk(kept / f"{part}-{start:08}.npy", chunk, using, batch))
                done += len(chunk)
                progress.at(done)
            arrays |= {f"x_{part}": np.concatenate(chunks), f"y_{part}": labels}
    return arrays


def _chunks(pictures: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    return ((start, pictures[start : start + CHUNK]) for start in range(0, len(pictures), CHUNK))


def _chunk(file: Path, pictures: np.ndarray, using: Extractor, batch: int) -> np.ndarray:
    """One chunk's features: from its file if an earlier run finished it, else computed and kept."""
    if file.exists():
        return np.load(file)
    batches = [using.run(pictures[start : start + batch]) for start in range(0, len(pictures), batch)]
    features = np.concatenate(batches).astype(np.float32)
    _check(using, pictures, features)
    part = file.with_suffix(".part")
    with part.open("wb") as opened:
        np.save(opened, features)
    part.replace(file)  # whole or absent, never half
    return features


def _check(using: Extractor, pictures: np.ndarray, features: np.ndarray) -> None:
    if features.ndim != 2 or len(features) != len(pictures):
        raise InputError(
            f"extractor {using.name} gave shape {features.shape} for {len(pictures)} images; expected "
            "(images, features)"
        )
    if not np.isfinite(features).all():
        raise InputError(f"extractor {using.name} gave NaN or infinite features; check its weights")


def _fingerprint(images: Images, using: Extractor) -> str:
    """A hash of everything that decides the result."""
    digest = hashlib.sha256(using.identity)
    for part, (pictures, labels) in sorted(images.parts.items()):
        digest.update(f"{part} {pictures.shape} {labels.dtype}".encode())
        for _, chunk in _chunks(pictures):
            digest.update(np.ascontiguousarray(chunk).data)
        digest.update(np.ascontiguousarray(labels).data)
    return digest.hexdigest()


def _mark_of(out: Path) -> str:
    try:
        return str(read_arrays(out).get("fingerprint", ""))
    except InputError:
        return ""
