"""What the shipped features are worth, in docs/data.md.

    python scripts/shipped_features.py

It takes half a minute, most of it for the probe of Fashion-MNIST.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from linear_probe import probe

from fedsofim.data import embedded

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "experiments"))

import pages  # noqa: E402 # pyright: ignore[reportMissingImports]

NAME = "shipped-features"
PERCENTILES = (1, 50, 99)


def measured(name: str) -> dict[str, Any]:
    data = embedded.load_embedded(name)
    norms = np.percentile(np.linalg.norm(data.x_train, axis=1), PERCENTILES)
    size = Path(embedded.__file__).with_name("files") / f"{name}.npz"
    return {
        "dataset": name,
        "accuracy": round(100 * probe(data), 2),
        **{f"norm {p}": round(float(n), 2) for p, n in zip(PERCENTILES, norms, strict=True)},
        "megabytes": round(size.stat().st_size / 1e6, 2),
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        ["linear probe (non-private softmax regression), test accuracy", *(f"{r['accuracy']:.2f} %" for r in rows)],
        [
            "norm of a record's features: percentiles 1, 50, 99",
            *(", ".join(f"{r[f'norm {p}']:.2f}" for p in PERCENTILES) for r in rows),
        ],
        ["file", *(f"{r['megabytes']:.2f} MB" for r in rows)],
    ]
    return pages.markdown(["", *(f"`{r['dataset']}`" for r in rows)], lines)


if __name__ == "__main__":
    rows = [measured(name) for name in ("fashion", "digits")]
    pages.keep(NAME, markdown(rows), rows)
