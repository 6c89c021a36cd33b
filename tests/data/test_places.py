"""Who is trained on, and where, is decided by places: no label, no other client and nobody's number of records moves
anybody."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedsofim as fs
from fedsofim.data.dataset import Dataset
from fedsofim.errors import InputError

X = np.random.default_rng(0).normal(size=(200, 4)).round(3).astype(np.float32)
Y = np.random.default_rng(1).permutation(["well"] * 101 + ["ill"] * 99)


def other(label: str) -> str:
    return "ill" if label == "well" else "well"


def records(x: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in x]


@pytest.mark.parametrize("changed", range(0, 200, 23))
def test_a_label_moves_no_record_between_training_and_test(changed: int):
    labels = Y.copy()
    labels[changed] = other(labels[changed])
    a, b = (Dataset.from_arrays(X, y) for y in (Y, labels))
    assert records(a.x_train) == records(b.x_train) and records(a.x_test) == records(b.x_test)
    assert a.notes == b.notes


def federation(folder: Path, rows: dict[str, list[str]]) -> fs.Dataset:
    folder.mkdir()
    for client, lines in rows.items():
        (folder / f"{client}.csv").write_text("\n".join(["a,b,who,label", *lines]) + "\n")
    return fs.load(clients_from=folder, person="who")


def visits(place: int, label: str, times: int = 2) -> list[str]:
    return [f"{place},{k},p{place},{label}" for k in range(times)]


def every(persons: dict[int, list[str]]) -> list[str]:
    return [line for lines in persons.values() for line in lines]


def at(data: fs.Dataset, client: int) -> set[bytes]:
    return set(records(data.x_train[fs.by_owner(data).parts[client]]))


@pytest.mark.parametrize("changed", range(0, 30, 7))
def test_another_client_moves_nobody_here(changed: int, tmp_path: Path):
    """Its labels do not, nor how many records its persons have, nor whether some are persons of ours too."""
    lyon = [line for i in range(25) for line in visits(100 + i, "ill" if i < 11 else "well")]
    berlin = {i: visits(i, "ill" if i < 13 else "well") for i in range(30)}
    changes = [visits(changed, "well" if changed < 13 else "ill"), visits(changed, "well", 1), visits(124, "ill")]
    was = federation(tmp_path / "was", {"berlin": every(berlin), "lyon": lyon})
    for number, instead in enumerate(changes):
        rows = every(berlin | {changed: instead})
        now = federation(tmp_path / str(number), {"berlin": rows, "lyon": lyon})
        assert at(now, 1) == at(was, 1)
        assert len(at(now, 1)) == 40


def of_persons(times: dict[int, int]) -> fs.Dataset:
    """A hundred persons in the order of their numbers, with three records each, or as many as is said."""
    pandas = pytest.importorskip("pandas")
    who = np.repeat(np.arange(100), [times.get(i, 3) for i in range(100)])
    rows = {"patient": [f"p{i}" for i in who], "a": who, "b": np.arange(len(who)) % 7, "label": who % 2}
    return Dataset.from_frame(pandas.DataFrame(rows), label="label", person="patient")


@pytest.mark.parametrize("times", [{99: 2}, {0: 9}, {50: 1, 3: 5}])
def test_how_many_records_a_person_has_moves_nobody(times: dict[int, int]):
    a, b = of_persons({}), of_persons(times)
    assert a.person is not None and b.person is not None
    assert set(a.person) == set(b.person) and len(set(a.person)) == 80
    assert a.notes == b.notes
    for one, two in zip(*(fs.split(d, clients=4, iid=True).parts for d in (a, b)), strict=True):
        assert set(a.person[one]) == set(b.person[two]) and len(set(a.person[one])) == 20


def test_where_persons_are_interleaved_their_first_record_is_their_place():
    data = of_persons({})
    late = np.r_[np.flatnonzero(np.arange(240) % 3 == 0), np.flatnonzero(np.arange(240) % 3 != 0)]
    assert data.person is not None
    mixed = replace(data, x_train=data.x_train[late], y_train=data.y_train[late], person=data.person[late])
    for one, two in zip(*(fs.split(d, clients=4, iid=True).parts for d in (data, mixed)), strict=True):
        assert set(data.person[one]) == set(mixed.person[two])  # type: ignore[index]


def test_every_client_is_tested_on_its_part_and_keeps_a_record(tmp_path: Path):
    rows = {f"c{n}": [f"{n},{k},{n}-{k},{'ill' if k % 2 else 'well'}" for k in range(n)] for n in (1, 2, 3, 10, 41)}
    data = federation(tmp_path / "all", rows)
    by_name = dict(zip(data.notes["clients"], fs.by_owner(data).sizes, strict=True))
    assert by_name == {"c1": 1, "c2": 2, "c3": 2, "c10": 8, "c41": 33}
    nearly_all = fs.load(clients_from=tmp_path / "all", person="who", holdout=0.99)
    assert all(size >= 1 for size in fs.by_owner(nearly_all).sizes)


def test_the_note_counts_nobody(tmp_path: Path):
    notes = [Dataset.from_arrays(X[:n], Y[:n]).notes["test"] for n in (150, 200)]
    assert notes[0] == notes[1] and re.findall(r"\d[\d.]*", notes[0]) == ["0.2", "0"]
    assert "persons" in of_persons({}).notes["test"]


def test_a_class_that_is_only_tested_on_is_a_class_still():
    """Which classes there are is public; where the one record of one of them lies is not."""
    y = np.arange(50) % 2
    for place in range(50):
        labels = y.copy()
        labels[place] = 2
        assert Dataset.from_arrays(X[:50], labels).classes == 3


def test_what_cannot_be_held_out_is_said():
    with pytest.raises(InputError, match=r"too few records to hold out 0\.2 of them; give a test file"):
        Dataset.from_arrays(X[:2], ["ill", "well"])
    for place in range(20):
        labels = ["ill" if k == place else "well" for k in range(20)]
        try:
            assert len(np.unique(Dataset.from_arrays(X[:20], labels).y_train)) == 2
        except InputError as error:
            assert "all records that are left to train on have the same label" in str(error)
            break
    else:
        pytest.fail("the one ill record was never held out")
