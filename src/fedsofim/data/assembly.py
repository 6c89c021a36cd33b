"""Rows of one file, or of one file per client -> a checked `Dataset`."""

from typing import Any

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.data.labels import encode
from fedsofim.data.rows import Rows, joined
from fedsofim.errors import InputError

SEED = 0


def assemble(
    name: str, clients: dict[str, dict[str, Rows]], test: Rows | None, holdout: float, notes: dict[str, Any]
) -> Dataset:
    """Join the clients (one: yet to be split), number the labels, find or hold out a test set."""
    rows = _joined_parts(name, clients, test)
    codes, table = _coded(name, {part: joined_rows.y for part, joined_rows in rows.items()})
    sizes = [len(parts["train"].x) for parts in clients.values()]
    owner = np.repeat(np.arange(len(clients)), sizes)
    arrays = {f"x_{part}": part_rows.x for part, part_rows in rows.items()} | {f"y_{p}": y for p, y in codes.items()}
    notes = notes | ({"labels": table} if table else {})
    if "test" not in rows:
        held = hold_out(name, arrays["y_train"], owner, holdout)
        arrays |= {"x_test": arrays["x_train"][held], "y_test": arrays["y_train"][held]}
        arrays |= {"x_train": arrays["x_train"][~held], "y_train": arrays["y_train"][~held]}
        owner = owner[~held]
        notes |= {"test": f"held out {held.sum()} of {len(held)} records ({holdout:g} of each label, seed {SEED})"}
    if len(clients) == 1:
        return Dataset.of(name, **arrays, notes=notes)
    return Dataset.of(name, **arrays, owner=owner.astype(np.int32), notes=notes | {"clients": list(clients)})


def hold_out(name: str, y: np.ndarray, owner: np.ndarray, fraction: float) -> np.ndarray:
    """Which records form the test set: the same fraction of every label, the same every time.

    >>> hold_out("toy", np.array([0] * 5 + [1] * 5), np.zeros(10, int), 0.2).sum()
    np.int64(2)
    """
    if not 0 < fraction < 1:
        raise InputError(f"holdout is {fraction}; expected a fraction between 0 and 1, e.g. 0.2")
    order = np.random.default_rng(SEED).permutation(len(y))
    held = np.zeros(len(y), bool)
    for label in np.unique(y):
        same = order[y[order] == label]
        held[same[: int(len(same) * fraction)]] = True
    for client in np.unique(owner):  # a client keeps its records rather than lose them all
        mine = owner == client
        held[mine] &= not held[mine].all()
    if not held.any():
        raise InputError(
            f"{name}: too few records per label to hold out {fraction:g} of them; give a test file (test=FILE)"
        )
    return held


def _joined_parts(name: str, clients: dict[str, dict[str, Rows]], test: Rows | None) -> dict[str, Rows]:
    with_test = [parts["test"].origin for parts in clients.values() if "test" in parts]
    if test is not None and with_test:
        raise InputError(f"{name}: a test file was given, but {with_test[0]} holds a test part too; give one of them")
    train = [parts["train"] for parts in clients.values()]
    lists = {"train": train} | {
        part: [parts[part] for parts in clients.values() if part in parts] for part in ("val", "test")
    }
    if test is not None:
        lists["test"] = [test]
    # Every part is joined behind the first training file: columns in its order, widths checked against it.
    return {part: _behind(train[0], parts) for part, parts in lists.items() if parts}


def _behind(first: Rows, parts: list[Rows]) -> Rows:
    if parts[0] is first:
        return joined(parts)
    together = joined([first, *parts])
    return Rows(together.x[len(first.x) :], together.y[len(first.x) :], parts[0].origin, first.columns)


def _coded(name: str, labels: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[int, Any]]:
    """Labels that already count from 0 stay; all others are numbered in sorted order."""
    train = labels["train"]
    known = np.unique(train)
    if len(known) < 2:
        raise InputError(f"{name}: one class only ('{train[0]}'); a classifier needs two or more")
    numbers = all(part.dtype.kind == "i" for part in labels.values())
    if numbers and known[0] == 0 and known[-1] < 2 * len(known):
        return labels, {}
    return encode(name, labels)
