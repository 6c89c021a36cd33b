"""Labels as the user wrote them -> 0, 1, 2, ... and the table that says which is which."""

from typing import Any

import numpy as np

from fedsofim.errors import InputError


def encode(name: str, parts: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[int, Any]]:
    """Number the labels of `parts["train"]` in sorted order and apply that to every part.

    >>> codes, table = encode("pets", {"train": np.array(["dog", "cat", "dog"]), "test": np.array(["cat"])})
    >>> codes["train"].tolist(), codes["test"].tolist(), table
    ([1, 0, 1], [0], {0: 'cat', 1: 'dog'})
    """
    known = np.unique(parts["train"])
    codes = {part: _look_up(name, part, labels, known) for part, labels in parts.items()}
    return codes, {number: label.item() for number, label in enumerate(known)}


def _look_up(name: str, part: str, labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    if labels.dtype.kind in "US" and known.dtype.kind not in "US":
        labels = _numbers(name, part, labels)
    if known.dtype.kind in "US" and labels.dtype.kind not in "US":
        labels = labels.astype(str)
    strange = np.flatnonzero(~np.isin(labels, known))
    if len(strange):
        raise InputError(
            f"{name}: label {labels[strange[0]].item()!r} in record {strange[0]} of the {part} part never "
            "occurs in "
            f"training; known labels: {', '.join(map(str, known[:20].tolist()))}"
        )
    return np.searchsorted(known, labels).astype(np.int32)


def _numbers(name: str, part: str, labels: np.ndarray) -> np.ndarray:
    try:
        return labels.astype(float)
    except ValueError:
        raise InputError(f"{name}: the {part} part has text labels but training has numbers; use one kind") from None
