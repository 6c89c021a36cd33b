"""Clients laid out some at a time: groups that take turns (core/participation.py), of which a round reads one, and
pieces that are asked one after another where all uploads at once would not fit."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedsofim.core.cohort import Cohort
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.core.pooled import pool
from fedsofim.core.records import Records, block_size, in_blocks
from fedsofim.data.partition import Split


def in_groups(plan: Plan, split: Split, key: jax.Array, pooled: bool) -> Cohort:
    """The clients of each group that takes its turn, a row for each group; what is missing in a row counts nothing."""
    x, y, parts = split.laid()
    most = max(len(m) for m in plan.members)
    each = []
    for m, factors in zip(plan.members, plan.group_factors, strict=True):
        mine = [parts[i] for i in m]
        tile = plan.program.sites[0].query.tile
        each.append(pool(x, y, mine, factors, tile) if pooled else in_blocks(x, y, mine, block_size(split.units)))
    stds = plan.stds_by_site(Phase.ROUND)
    gains = [g if pooled else 1.0 for g in plan.group_gains]
    sizes = [np.asarray(plan.sizes)[m] for m in plan.members]
    return Cohort(
        records=jax.device_put(Records(*(_stacked(column, axis=pooled) for column in zip(*each, strict=True)))),
        sizes=_device([[1.0]] * len(gains) if pooled else [_filled(s, most, 1.0) for s in sizes]),
        weights=_device([_filled(w, most, 0.0) for w in plan.group_weights]),
        stds=_device([stds * g for g in gains]),
        noise_std=_device([plan.sum_std * g / plan.expected for g in plan.group_gains]),
        key=key,
    )


def in_pieces(split: Split, sizes: Sequence[int], weights: np.ndarray, at_once: int) -> list[dict[str, Any]]:
    """Records, sizes and weights of so many clients at a time, all of one shape; what is missing in the last counts
    nothing."""
    x, y, parts = split.laid()
    if len(sizes) <= at_once:
        whole = {"sizes": _device(sizes), "weights": _device(weights)}
        return [{"records": jax.device_put(in_blocks(x, y, parts)), **whole}]
    block, found = block_size(split.units), []
    cuts = range(0, len(sizes), at_once)
    blocks = max(sum(-(-n // block) for n in sizes[first : first + at_once]) for first in cuts)
    for first in cuts:
        mine = slice(first, first + at_once)
        records = in_blocks(x, y, parts[mine], block)
        missing = blocks - len(records.owner)
        features, labels, weight = (np.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)) for a in records[:3])
        padded = Records(features, labels, weight, np.pad(records.owner, (0, missing), mode="edge"))
        found.append(
            {
                "records": jax.device_put(padded),
                "sizes": _device(_filled(np.asarray(sizes[mine]), at_once, 1.0)),
                "weights": _device(_filled(weights[mine], at_once, 0.0)),
            }
        )
    return found


def _device(rows: Any) -> jax.Array:
    return jax.device_put(np.asarray(rows, np.float32))


def _filled(row: np.ndarray, length: int, value: float) -> np.ndarray:
    return np.concatenate([row, np.full(length - len(row), value)])


def _stacked(arrays: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Arrays of unequal length along an axis in one, with zeros behind the shorter ones."""
    longest = max(a.shape[axis] if a.ndim > axis else 0 for a in arrays)

    def filled(a: np.ndarray) -> np.ndarray:
        missing = longest - a.shape[axis] if a.ndim > axis else 0
        how = "edge" if a.ndim == 1 else "constant"  # owners stay in order
        return np.pad(a, [(0, missing if i == axis else 0) for i in range(a.ndim)], mode=how)

    return np.stack([filled(np.asarray(a)) for a in arrays])
