"""Who holds which record: IID and Dirichlet splits over clients, and how uneven they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.errors import InputError, expect_whole, is_number


@dataclass(frozen=True)
class Split:
    """A dataset with its training records dealt out to clients; `parts[i]` are the rows client i holds."""

    dataset: Dataset
    parts: tuple[np.ndarray, ...]
    description: str

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(p) for p in self.parts)


def split(
    data: Dataset, clients: int = 20, alpha: float = 0.5, seed: int = 42, min_size: int = 1, *, iid: bool = False
) -> Split:
    """Deal the training records out: Dirichlet(alpha) over classes, or evenly at random with iid=True.

    >>> from fedsofim.data.dataset import Dataset
    >>> d = Dataset.of("toy", x_train=np.ones((8, 1)), y_train=[0, 1] * 4, x_test=[[1.0]], y_test=[0])
    >>> split(d, clients=2, iid=True).sizes
    (4, 4)
    """
    if not isinstance(data, Dataset):
        raise InputError(f"split got a {type(data).__name__}; expected a dataset, as fs.load gives one")
    if data.owner is not None:
        raise InputError(f"{data.name} came one file per client; it is split already, so use by_owner")
    expect_whole("seed", seed, 0)
    expect_whole("min_size", min_size, 0)
    _check_clients(clients, len(data.y_train), min_size)
    if iid:
        return Split(data, evenly(len(data.y_train), clients, seed), f"iid, seed {seed}")
    parts = dirichlet(data.y_train, clients, alpha, seed)
    _check_sizes(parts, min_size, alpha, seed)
    return Split(data, parts, f"dirichlet({alpha:g}), seed {seed}")


def by_owner(data: Dataset) -> Split:
    """The split a real federation came with."""
    if not isinstance(data, Dataset):
        raise InputError(f"by_owner got a {type(data).__name__}; expected a dataset, as fs.load gives one")
    if data.owner is None:
        raise InputError(f"{data.name} does not say which client holds which record; split it instead")
    owners = np.unique(data.owner)
    return Split(data, tuple(np.flatnonzero(data.owner == o) for o in owners), "as given, one client per file")


def evenly(records: int, clients: int, seed: int) -> tuple[np.ndarray, ...]:
    """A random permutation cut into equal parts (sizes differ by at most one)."""
    order = np.random.RandomState(seed).permutation(records)
    return tuple(np.sort(part) for part in np.array_split(order, clients))


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> tuple[np.ndarray, ...]:
    """The paper's non-IID split: each class in turn is shuffled and cut by Dirichlet proportions.

    NumPy's legacy generator, because this order of calls reproduces both published partition tables cell by cell.
    """
    if not is_number(alpha) or not 0 < alpha < np.inf:
        raise InputError(
            f"alpha is {alpha!r}; expected a number above 0 (small: few classes per client); "
            "for even parts use iid=True"
        )
    random = np.random.RandomState(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for c in range(int(labels.max()) + 1):
        rows = np.flatnonzero(labels == c)
        random.shuffle(rows)
        share = random.dirichlet(np.full(clients, alpha))
        cuts = np.floor(np.cumsum(share)[:-1] * len(rows)).astype(int)
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    return tuple(np.sort(np.concatenate(p)) for p in parts)


@dataclass(frozen=True)
class Statistics:
    """How uneven a split is; `kl` is each client's divergence of its class mix from uniform, in nats."""

    counts: np.ndarray  # (clients, classes)
    kl: np.ndarray
    absent: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return self.counts.sum(axis=1)


def statistics(labels: np.ndarray, parts: Sequence[np.ndarray], classes: int) -> Statistics:
    """Counts per client and class with what they say about heterogeneity.

    >>> s = statistics(np.array([0, 0, 1, 1]), [np.array([0, 1]), np.array([2, 3])], classes=2)
    >>> s.kl.round(4).tolist(), s.absent.tolist()
    ([0.6931, 0.6931], [1, 1])
    """
    counts = np.stack([np.bincount(labels[p], minlength=classes) for p in parts])
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    logs = np.log(np.where(share > 0, share * classes, 1.0))
    return Statistics(counts, np.sum(share * logs, axis=1), np.sum(counts == 0, axis=1))


def _check_clients(clients: int, records: int, min_size: int) -> None:
    expect_whole("clients", clients, 1)
    if clients * max(min_size, 1) > records:
        raise InputError(f"{records} records cannot give {clients} clients {max(min_size, 1)} each; use fewer clients")


def _check_sizes(parts: Sequence[np.ndarray], min_size: int, alpha: float, seed: int) -> None:
    sizes = [len(p) for p in parts]
    least = int(np.argmin(sizes))
    if sizes[least] < max(min_size, 1):
        raise InputError(
            f"client {least} would hold {sizes[least]} records, fewer than {max(min_size, 1)}, under "
            f"dirichlet({alpha:g}) with seed {seed} and {len(parts)} clients; use fewer clients, a larger alpha "
            "or another seed"
        )
