"""What is summed over a batch of a torch module's gradients: of single records or of units, alone or with a vote."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from fedsofim.core.torch.batches import batch_size, in_place, taken
from fedsofim.core.torch.rows import Row, Running, lengths, tensor_of, weighted


class Vote(NamedTuple):
    """A word on the clip beside each gradient (core/clip_search.py): c·(sqrt(1-a)·u, ±sqrt(a))."""

    part: float  # a
    clip: float  # c


class Summand(NamedTuple):
    """One vector for each record or unit."""

    unit: bool = False  # of units (core/unit.py): x is (units, K, ...), and a unit's gradients are added up first
    vote: Vote | None = None


ALONE = Summand()


def summed(rows: Sequence[Row], share: torch.Tensor, vote: Vote | None, scale: float, clip: float) -> list[np.ndarray]:
    """Σ share·clip(vector) of a batch, by leaf, in doubles."""
    length = lengths(rows)
    if vote is None:
        factor = share * _shortened(length, clip)
        return [weighted(row, factor).numpy() for row in rows]
    factor, word = _told(length, vote, scale)
    kept = share * _shortened(torch.hypot(factor * length, word), clip)
    return [*(weighted(row, kept * factor).numpy() for row in rows), (kept * word).sum().numpy()]


def vectors(rows: Sequence[Row], vote: Vote | None, scale: float) -> list[np.ndarray]:
    """Every vector, unclipped, by leaf."""
    if vote is None:
        return [row.dense.numpy() for row in rows]
    length = torch.stack([row.dense.flatten(1).double().square().sum(dim=1) for row in rows]).sum(dim=0).sqrt()
    factor, word = _told(length, vote, scale)
    return [*(_each(row.dense.double(), factor).numpy() for row in rows), word.numpy()]


def _told(length: torch.Tensor, vote: Vote, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """What a gradient of this length is multiplied by, and the vote: whatever these are, the vector is clipped."""
    bound = vote.clip * scale
    factor = math.sqrt(1 - vote.part) * vote.clip / length.clamp(min=bound)
    factor = torch.where(torch.isfinite(factor), factor, 0.0)
    return factor, torch.where(length <= bound, 1.0, -1.0).double() * (math.sqrt(vote.part) * vote.clip)


def _each(dense: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return dense * factor.reshape(-1, *[1] * (dense.ndim - 1))


def _shortened(length: torch.Tensor, clip: float) -> torch.Tensor:
    """min(1, clip/length), and 0 where there is no length."""
    if not math.isfinite(clip):
        return torch.ones_like(length)
    factor = torch.clamp(clip / length.clamp(min=1e-300), max=1.0)
    return torch.where(torch.isfinite(length), factor, 0.0)


def unit_rows(running: Running, x: np.ndarray, y: np.ndarray) -> list[Row]:
    """Every unit's gradient, the sum of its records', in doubles. x is (units, K, ...), y (units, K, ...).

    What is computed of a unit depends on its records, on where it stands and on K. A place without a record has a copy
    of the unit's first one there, and counts nothing.
    """
    units, places = y.shape[:2]
    here = _present(y)
    told = np.where(here.reshape(*here.shape, *[1] * (y.ndim - 2)), y, y[:, :1])
    flat_x, flat_y = x.reshape(units * places, *x.shape[2:]), told.reshape(units * places, *y.shape[2:])
    counts = tensor_of(here.reshape(-1))
    totals = [torch.zeros((units, *p.shape), dtype=torch.float64) for p in running.parameters_in_order]
    for batch in in_place(units * places, batch_size(units * places, running.formed)):
        mine = batch[batch >= 0]
        of = tensor_of(mine // places)
        keep = counts[tensor_of(mine)]
        for total, row in zip(totals, running.gradients(taken(flat_x, batch), taken(flat_y, batch)), strict=True):
            dense = row.dense[: len(mine)].double()
            total.index_add_(0, of, torch.where(keep.reshape(-1, *[1] * (dense.ndim - 1)), dense, 0.0))
    return [Row(formed=total) for total in totals]


def _present(y: np.ndarray) -> np.ndarray:
    """Which of the units' places hold a record: (units, K)."""
    first = y.reshape(*y.shape[:2], -1)[:, :, 0]
    return first == first if np.issubdtype(y.dtype, np.floating) else first >= 0
