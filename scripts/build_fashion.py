"""Build `src/fedsofim/data/files/fashion.npz` from Debian's package dataset-fashion-mnist.

    apt-get install dataset-fashion-mnist
    python scripts/build_fashion.py [--check] [--images FOLDER]

`--check` writes nothing: it compares the shipped file with a fresh build and prints the accuracy of a
non-private linear probe on it.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
from linear_probe import probe

from fedsofim.data.embedded import load_embedded
from fedsofim.data.orientation_histograms import gradient_histograms

IMAGES = Path("/usr/share/datasets/fashion-mnist")
OUT = Path(__file__).parents[1] / "src/fedsofim/data/files/fashion.npz"
PARTS = {"train": "train", "test": "t10k"}


def read_idx(path: Path) -> np.ndarray:
    """An array in the IDX format of MNIST: two zero bytes, type, rank, big-endian sizes, then the bytes."""
    raw = gzip.decompress(path.read_bytes())
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", count=rank, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def build(folder: Path) -> dict[str, np.ndarray]:
    """Features (0..1 stored as 0..255) and labels of both parts."""
    arrays = {}
    for part, prefix in PARTS.items():
        features = gradient_histograms(read_idx(folder / f"{prefix}-images-idx3-ubyte.gz"))
        arrays[f"x_{part}"] = np.round(features * 255).astype(np.uint8)
        arrays[f"y_{part}"] = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
    return arrays


def check(fresh: dict[str, np.ndarray]) -> None:
    """Shipped file == fresh build, up to one step of rounding; then the probe."""
    with np.load(OUT) as shipped:
        for key, values in fresh.items():
            gap = np.abs(shipped[key].astype(int) - values.astype(int))
            print(f"{key}: {values.shape}, largest difference to the shipped file {gap.max()}")
            assert gap.max() <= (key[0] == "x"), f"{key} differs: rebuild and commit"
    data = load_embedded("fashion")
    norms = np.linalg.norm(data.x_train, axis=1)
    print("feature norms, percentiles 1, 50, 99:", np.percentile(norms, [1, 50, 99]).round(2))
    print(f"size {OUT.stat().st_size / 1e6:.2f} MB, linear probe {100 * probe(data):.2f} % on the test set")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--images", type=Path, default=IMAGES)
    options = parser.parse_args()
    arrays = build(options.images)
    if not options.check:
        np.savez_compressed(OUT, allow_pickle=False, **arrays)
        print(f"wrote {OUT}, {OUT.stat().st_size / 1e6:.2f} MB")
    check(arrays)


if __name__ == "__main__":
    main()
