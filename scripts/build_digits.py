"""Build `src/fedsofim/data/files/digits.npz` from scikit-learn's copy of the UCI digits.

    pip install scikit-learn
    python scripts/build_digits.py [--check]

The split is fixed: a permutation by NumPy's PCG64 seeded 0, its last 360 records are the test set.
"""

import sys
from pathlib import Path

import numpy as np
from linear_probe import probe
from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]

from fedsofim.data.embedded import load_embedded

OUT = Path(__file__).parents[1] / "src/fedsofim/data/files/digits.npz"
TEST = 360


def build() -> dict[str, np.ndarray]:
    """Pixel counts 0..16 and labels, split."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (np.asarray(part)[order].astype(np.uint8) for part in (x, y))
    return {"x_train": x[:-TEST], "y_train": y[:-TEST], "x_test": x[-TEST:], "y_test": y[-TEST:]}


def main() -> None:
    arrays = build()
    if "--check" not in sys.argv[1:]:
        np.savez_compressed(OUT, allow_pickle=False, **arrays)
    with np.load(OUT) as shipped:
        assert all(np.array_equal(shipped[key], values) for key, values in arrays.items()), "rebuild and commit"
    data = load_embedded("digits")
    norms = np.linalg.norm(data.x_train, axis=1)
    print("feature norms, percentiles 1, 50, 99:", np.percentile(norms, [1, 50, 99]).round(2))
    print(f"size {OUT.stat().st_size / 1e6:.3f} MB, linear probe {100 * probe(data):.2f} % on the test set")


if __name__ == "__main__":
    main()
