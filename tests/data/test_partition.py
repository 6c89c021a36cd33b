"""Splits: the published tables cell by cell, and the edges."""

import csv

import numpy as np
import pytest

from fedsofim.data import Dataset, load
from fedsofim.data.partition import by_owner, dirichlet, evenly, split, statistics
from fedsofim.errors import InputError


@pytest.mark.parametrize("name", ["cifar10", "pathmnist"])
def test_equals_the_published_partition(shared, name):
    data = load(shared / "data" / f"{name}_resnet20.npz")
    parts = dirichlet(data.y_train, 20, 0.5, 42)
    with (shared / "published" / f"partition_{name}.csv").open() as file:
        rows = np.array([[int(v) for v in row] for row in list(csv.reader(file))[1:]])
    counts = statistics(data.y_train, parts, data.classes).counts
    np.testing.assert_array_equal(counts, rows[:, 1:-1])
    np.testing.assert_array_equal(counts.sum(axis=1), rows[:, -1])


def test_published_statistics_of_cifar10(shared):
    data = load(shared / "data" / "cifar10_resnet20.npz")
    stats = statistics(data.y_train, dirichlet(data.y_train, 20, 0.5, 42), 10)
    assert (stats.sizes.min(), stats.sizes.max()) == (891, 3498)
    assert stats.kl.mean() == pytest.approx(0.666, abs=5e-4)
    assert stats.kl.max() == pytest.approx(1.039, abs=5e-4)
    assert stats.absent.mean() == pytest.approx(0.3)
    assert np.flatnonzero(stats.absent == 2).tolist() == [4, 18]


@pytest.mark.parametrize("clients", [1, 3, 20, 100])
@pytest.mark.parametrize("how", [{"iid": True}, {"alpha": 5.0}])
def test_every_record_has_exactly_one_owner(clients, how):
    data = load("digits")
    parts = split(data, clients, min_size=1, **how).parts
    assert len(parts) == clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(data.y_train)))


def test_iid_sizes_differ_by_at_most_one():
    sizes = [len(p) for p in evenly(103, 10, 0)]
    assert max(sizes) - min(sizes) == 1


def test_seeds_matter_and_repeat():
    data = load("digits")
    a, b, c = (split(data, 5, 0.5, seed=s).parts for s in (1, 1, 2))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not all(np.array_equal(x, y) for x, y in zip(a, c, strict=True))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"clients": 0}, "at least 1"),
        ({"clients": 2000}, "use fewer clients"),
        ({"clients": 200, "alpha": 0.05}, "client .* would hold 0 records"),
        ({"clients": 5, "min_size": 400}, "cannot give"),
        ({"clients": 5, "alpha": 0.5, "min_size": 250}, "fewer than 250"),
        ({"alpha": 0.0}, "above 0"),
    ],
)
def test_impossible_splits(options, message):
    with pytest.raises(InputError, match=message):
        split(load("digits"), **options)


def test_a_federation_that_came_split():
    data = Dataset.of(
        "two", x_train=np.ones((5, 1)), y_train=[0, 1, 0, 1, 1], x_test=[[1.0]], y_test=[0], owner=[1, 0, 1, 0, 0]
    )
    assert by_owner(data).sizes == (3, 2)
    with pytest.raises(InputError, match="split already"):
        split(data, 2)
    with pytest.raises(InputError, match="split it instead"):
        by_owner(load("digits"))
