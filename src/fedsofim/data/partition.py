"""Who holds which record: IID and Dirichlet splits over clients, and how uneven they are."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.data.html import card
from fedsofim.data.unit_rows import counts, gathered, in_order, together, whose_records
from fedsofim.errors import DataWarning, InputError, expect_whole, is_number, shown
from fedsofim.protection import Unit, check_unit

FEW = 20  # records: a client with fewer is said, unless somebody asked for it
ALPHA = 0.5  # of Dirichlet's proportions, unless given
_BY_LABEL = "dirichlet"  # how the description of a split by label begins
SEEDS = 2**32  # of NumPy's legacy generator


@dataclass(frozen=True)
class Split:
    """A dataset with its training records dealt out to clients; `parts[i]` are the rows client i holds.

    `unit` is whom a run on it protects, and of a person at most `most` records count (None: all).
    """

    dataset: Dataset
    parts: tuple[np.ndarray, ...]
    description: str
    unit: Unit = "record"
    most: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many records each client holds."""
        return tuple(len(p) for p in self.parts)

    @cached_property
    def whose(self) -> list[np.ndarray]:
        """Of each client's records, the number of the unit that holds it; empty where each record is one."""
        if self.unit == "record":
            return []
        return whose_records(self.unit, self.dataset.person, self.parts, self.dataset.name)

    @property
    def units(self) -> tuple[int, ...]:
        """How many units of protection each client holds: what is public of a client."""
        return counts(self.whose) if self.whose else self.sizes

    @property
    def places(self) -> int | None:
        """How many records the largest unit has; None where each record is one."""
        return together(self.whose, self.most) if self.whose else None

    def laid(self) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
        """Features and labels by unit, and which units each client holds."""
        x, y = self.dataset.x_train, self.dataset.y_train
        return gathered(x, y, self.parts, self.whose, self.most) if self.whose else (x, y, self.parts)

    def protecting(self, unit: Unit, most: int | None = None) -> "Split":
        """The same records at the same clients, with another unit of protection.

        `most`: of a person with more records the first so many count; the others are left out of training.
        """
        check_unit(unit)
        if most is not None:
            expect_whole("the records of a person that count", most, 1)
        if most is not None and unit == "record":
            raise InputError(
                f"at most {most} records of a person are to count, but each record is protected by itself; protect "
                "persons (unit 'person'), or leave the number out"
            )
        return replace(self, unit=unit, most=most)

    def __post_init__(self) -> None:
        """What a split says of itself is its dataset's name and text: they are looked at here."""
        if not isinstance(self.dataset, Dataset):
            raise InputError(f"the data is {shown(self.dataset)}; expected a fs.Dataset, as fs.load gives one")
        if not isinstance(self.description, str):
            raise InputError(f"a split's description is {shown(self.description)}; expected text")

    def __repr__(self) -> str:
        """Sizes and names, never a record."""
        return f"<{self}>"

    def __str__(self) -> str:
        sizes = self.sizes
        return (
            f"Split of {self.dataset.name} ({self.description}): {len(sizes)} clients of {min(sizes)} to {max(sizes)} "
            "records"
        )

    def _repr_html_(self) -> str:
        sizes = self.sizes
        facts = {
            "clients": len(sizes),
            "dealt": self.description,
            "records": f"{sum(sizes):,} in all, {min(sizes):,} to {max(sizes):,} at a client",
            "data": str(self.dataset),
        }
        return card(f"Split of {self.dataset.name}", facts)


def split(
    data: Dataset,
    clients: int = 20,
    alpha: float | None = None,
    seed: int = 42,
    min_size: int | None = None,
    *,
    iid: bool | None = None,
) -> Split:
    """Deal the training records out: Dirichlet(alpha) over classes, by default 0.5, or evenly at random with iid=True.

    Where records have no classes (numbers, counts, several labels) they are dealt evenly, and alpha is refused.
    A client of fewer than `min_size` records is an error; where nobody says how few, one of fewer than 20 is said.
    Where records have persons, all of a person's go to one client.

    Even parts follow from the records' places, or the persons', alone. **Dirichlet's follow from the labels**: with one
    label changed other records are at other clients too. It is a simulation of unevenness: what is promised of a run is
    about each client's records as they were dealt, and no epsilon covers the dealing.

    >>> from fedsofim.data.dataset import Dataset
    >>> d = Dataset.of("toy", x_train=np.ones((8, 1)), y_train=[0, 1] * 4, x_test=[[1.0]], y_test=[0])
    >>> split(d, clients=2, min_size=1, iid=True).sizes
    (4, 4)
    """
    if not isinstance(data, Dataset):
        raise InputError(f"split got a {type(data).__name__}; expected a dataset, as fs.load gives one")
    if data.owner is not None:
        raise InputError(f"{data.name} came one file per client; it is split already, so use by_owner")
    iid = _checked_iid(data, alpha, iid)
    alpha = ALPHA if alpha is None else alpha
    expect_whole("the split's seed", seed, 0)
    if seed >= SEEDS:
        raise InputError(f"the split's seed is {seed}; expected a whole number below 2**32")
    least = 1 if min_size is None else min_size
    expect_whole("min_size", least, 0)
    _check_clients(clients, len(data.y_train), least)
    parts = _evenly(data, clients, seed) if iid else _unevenly(data, clients, alpha, seed)
    how = f"iid, seed {seed}" if iid else f"{_BY_LABEL}({alpha:g}), seed {seed}"
    _check_sizes(parts, least, how)
    if min_size is None:
        _say_small(data.name, parts, how)
    return Split(data, parts, how)


def _checked_iid(data: Dataset, alpha: float | None, iid: bool | None) -> bool:
    """Dirichlet's proportions are over classes: whatever has none is dealt evenly."""
    if data.task.by_class:
        if iid and alpha is not None:
            raise InputError(
                "alpha is for dealing by Dirichlet, and the records are dealt evenly; leave out alpha (--alpha), or "
                "iid=True (--partition iid)"
            )
        return bool(iid)
    if alpha is not None or iid is False:
        raise InputError(
            f"{data.name}: Dirichlet's proportions are over classes, and the task is {data.task}; deal evenly "
            "(iid=True, --partition iid), or give one file per client (clients_from, --clients-from)"
        )
    return True


def by_owner(data: Dataset) -> Split:
    """The split a real federation came with."""
    if not isinstance(data, Dataset):
        raise InputError(f"by_owner got a {type(data).__name__}; expected a dataset, as fs.load gives one")
    if data.owner is None:
        raise InputError(f"{data.name} does not say which client holds which record; split it instead")
    owners = np.unique(data.owner)
    return Split(data, tuple(np.flatnonzero(data.owner == o) for o in owners), "as given, one client per file")


def dealt_by_label(description: str) -> bool:
    """Whether labels decided who holds what, of a split that is described so: then no epsilon covers that.

    >>> dealt_by_label("dirichlet(0.5), seed 42"), dealt_by_label("iid, seed 42")
    (True, False)
    """
    return description.startswith(f"{_BY_LABEL}(")


def _evenly(data: Dataset, clients: int, seed: int) -> tuple[np.ndarray, ...]:
    """Records by their places; persons by theirs, whoever has how many records."""
    if data.person is None:
        return evenly(len(data.y_train), clients, seed)
    whose = in_order(data.person)
    persons = evenly(int(whose.max()) + 1, clients, seed)
    return tuple(np.flatnonzero(np.isin(whose, mine)) for mine in persons)


def _unevenly(data: Dataset, clients: int, alpha: float, seed: int) -> tuple[np.ndarray, ...]:
    parts = dirichlet(data.y_train, clients, alpha, seed)
    return parts if data.person is None else _with_whole_persons(parts, data.person)


def evenly(records: int, clients: int, seed: int) -> tuple[np.ndarray, ...]:
    """A random permutation cut into equal parts (sizes differ by at most one)."""
    order = np.random.RandomState(seed).permutation(records)
    return tuple(np.sort(part) for part in np.array_split(order, clients))


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> tuple[np.ndarray, ...]:
    """The paper's non-IID split: each class in turn is shuffled and cut by Dirichlet proportions.

    It reads labels: who holds a record follows from those of others (`split`).

    NumPy's legacy generator, because this order of calls reproduces both published partition tables cell by cell.
    """
    if not is_number(alpha) or not 0 < alpha < np.inf:
        raise InputError(
            f"alpha is {shown(alpha)}; expected a number above 0 (small: few classes per client); "
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


def statistics_of(dealt: Split) -> Statistics:
    """Of a split; where records have no classes there is one column, of all of them."""
    data = dealt.dataset
    if data.task.by_class:
        return statistics(data.y_train, dealt.parts, data.classes)
    return statistics(np.zeros(len(data.y_train), np.int32), dealt.parts, 1)


def _check_clients(clients: int, records: int, min_size: int) -> None:
    expect_whole("clients", clients, 1)
    if clients * max(min_size, 1) > records:
        raise InputError(f"{records} records cannot give {clients} clients {max(min_size, 1)} each; use fewer clients")


def _with_whole_persons(parts: Sequence[np.ndarray], person: np.ndarray) -> tuple[np.ndarray, ...]:
    """Every person's records at the client that was dealt the first of them."""
    holder = np.empty(len(person), np.int64)
    for client, rows in enumerate(parts):
        holder[rows] = client
    _, first, who = np.unique(person, return_index=True, return_inverse=True)
    at = holder[first][who]
    return tuple(np.flatnonzero(at == client) for client in range(len(parts)))


def _say_small(name: str, parts: Sequence[np.ndarray], how: str) -> None:
    small = sorted(len(p) for p in parts if len(p) < FEW)
    if small:
        warnings.warn(
            f"{name}: {len(small)} of {len(parts)} clients hold fewer than {FEW} records ({how}; least {small[0]}); "
            "their noise is large; use fewer clients (--clients N), or deal evenly (--partition iid)",
            DataWarning,
            stacklevel=3,
        )


def _check_sizes(parts: Sequence[np.ndarray], min_size: int, how: str) -> None:
    sizes = [len(p) for p in parts]
    least = int(np.argmin(sizes))
    if sizes[least] < max(min_size, 1):
        raise InputError(
            f"client {least} would hold {sizes[least]} records, fewer than {max(min_size, 1)}, under {how} and "
            f"{len(parts)} clients; use fewer clients, a larger alpha or another seed"
        )
