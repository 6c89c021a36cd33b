"""Made-up rows of features for tests of preparations."""

import jax.numpy as jnp
import numpy as np

from fedsofim.core.preparation import _sizes


def records(rows: int = 400, features: int = 6, seed: int = 0) -> np.ndarray:
    """Of one unit, off centre, of unequal spread."""
    random = np.random.default_rng(seed)
    return (random.normal(size=(rows, features)) * np.linspace(0.5, 1.5, features) + 1.0).astype(np.float32)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def sizes_of(x: np.ndarray) -> dict[str, np.ndarray]:
    """What every record gives to the column scales, as the door would be given it."""
    rows = [_sizes(jnp.asarray(row, jnp.float32), jnp.int32(0)) for row in x]
    return {k: np.stack([np.asarray(r[k], np.float64) for r in rows]) for k in rows[0]}
