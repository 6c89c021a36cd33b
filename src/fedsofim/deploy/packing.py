"""Arrays, and trees of them, as one .npz: to keep in a file or a ledger."""

import io
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def to_bytes(arrays: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{k: np.asarray(v) for k, v in arrays.items()})  # type: ignore[arg-type]
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def tree_to_bytes(tree: Any) -> bytes:
    return to_bytes({f"leaf{i}": leaf for i, leaf in enumerate(jax.tree.leaves(tree))})


def tree_from_bytes(data: bytes, like: Any) -> Any:
    arrays = from_bytes(data)
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[f"leaf{i}"] for i in range(len(arrays))])
